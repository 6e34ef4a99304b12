import { didYouMean } from '../../../kernel/core/text.ts';

/** A part of a source text that begins with `open`: a comment, or a literal. */
export interface Token {
  readonly kind: 'comment' | 'string';
  readonly open: string;
  /** Ends the part; without it, the end of the line does. */
  readonly close?: string;
  /** True if a backslash takes away the meaning of the next character. */
  readonly escapes?: true;
  /** True if it may contain line ends. One that may not, and does, is no part at all. */
  readonly lines?: true;
  /** True if it begins only where a word could begin. */
  readonly atWord?: true;
  /** True if parts of this kind may contain each other. */
  readonly nests?: true;
  /** Opens code inside of a literal, up to the matching brace. */
  readonly hole?: string;
}

/** Tells code, comments and literals of a language apart; longer openings come first. */
export interface Profile {
  readonly tokens: readonly Token[];
  /** True if a slash may begin a regular expression. */
  readonly hasRegex?: true;
  /** A literal of one character, whose quote also has another use. */
  readonly character?: RegExp;
}

const comment = (open: string, close?: string, more: Partial<Token> = {}): Token => ({
  kind: 'comment',
  open,
  ...(close === undefined ? {} : { close, lines: true }),
  ...more,
});
const quoted = (quote: string, more: Partial<Token> = {}): Token => ({
  kind: 'string',
  open: quote,
  close: quote,
  escapes: true,
  ...more,
});
const raw = (open: string, close = open): Token => ({ kind: 'string', open, close, lines: true });

const SLASHES = [comment('//'), comment('/*', '*/')];
const QUOTES = [quoted('"'), quoted("'")];
const TRIPLE = [quoted('"""', { lines: true }), quoted("'''", { lines: true })];
const LONG = QUOTES.map((token) => ({ ...token, lines: true }) as const);
const HASH = comment('#', undefined, { atWord: true });

const C: Profile = { tokens: [...SLASHES, ...QUOTES] };
const JVM: Profile = { tokens: [...SLASHES, quoted('"""', { lines: true }), ...QUOTES] };
const SCRIPT: Profile = {
  tokens: [...SLASHES, ...QUOTES, quoted('`', { lines: true, hole: '${' })],
  hasRegex: true,
};
const GO: Profile = { tokens: [...SLASHES, ...QUOTES, raw('`')] };
const RUST: Profile = {
  tokens: [
    comment('//'),
    comment('/*', '*/', { nests: true }),
    atWord(raw('r##"', '"##')),
    atWord(raw('r#"', '"#')),
    atWord(raw('r"', '"')),
    quoted('"', { lines: true }),
  ],
  character: /'(?:\\[^\n]{1,12}?|[^\\'\n]{1,2})'/y,
};
const PHP: Profile = { tokens: [...SLASHES, comment('#'), ...LONG] };
const PYTHON: Profile = { tokens: [comment('#'), ...TRIPLE, ...QUOTES] };
const RUBY: Profile = { tokens: [comment('=begin', '=end', { atWord: true }), HASH, ...LONG] };
const SHELL: Profile = {
  tokens: [HASH, quoted('"', { lines: true }), raw("'")],
};
const DATA: Profile = { tokens: [HASH, ...TRIPLE, ...QUOTES.map(atWord)] };
const SQL: Profile = { tokens: [comment('--'), comment('/*', '*/'), raw("'"), raw('"')] };
const LUA: Profile = {
  tokens: [comment('--[[', ']]'), comment('--'), raw('[[', ']]'), ...QUOTES],
};
const HASKELL: Profile = {
  tokens: [comment('{-', '-}', { nests: true }), comment('--'), quoted('"')],
};
const MARKUP: Profile = { tokens: [comment('<!--', '-->'), raw('="', '"'), raw("='", "'")] };
const STYLE: Profile = { tokens: [comment('/*', '*/'), ...QUOTES] };

function atWord(token: Token): Token {
  return { ...token, atWord: true };
}

interface Language {
  /** By which rules name it, the extensions of its files first. */
  readonly names: readonly string[];
  readonly extensions: readonly string[];
  readonly profile?: Profile;
}

function language(extensions: string, names: string, profile?: Profile): Language {
  const files = extensions.split(' ');
  const all = [...files, ...names.split(' ').filter(Boolean)];
  return { names: all, extensions: files, ...(profile ? { profile } : {}) };
}

const LANGUAGES: readonly Language[] = [
  language('ts mts cts', 'typescript', SCRIPT),
  language('tsx', '', SCRIPT),
  language('js mjs cjs', 'javascript', SCRIPT),
  language('jsx', '', SCRIPT),
  language('py pyi', 'python', PYTHON),
  language('go', 'golang', GO),
  language('rs', 'rust', RUST),
  language('c h', '', C),
  language('cc cpp cxx hh hpp', 'c++', C),
  language('cs', 'csharp c#', JVM),
  language('java', '', JVM),
  language('kt kts', 'kotlin', JVM),
  language('scala', '', JVM),
  language('groovy gradle', '', JVM),
  language('swift', '', JVM),
  language('dart', '', { tokens: [...SLASHES, ...TRIPLE, ...QUOTES] }),
  language('zig', '', C),
  language('proto', 'protobuf', C),
  language('tf hcl', 'terraform', { tokens: [...SLASHES, HASH, quoted('"')] }),
  language('php', '', PHP),
  language('rb', 'ruby', RUBY),
  language('pl pm', 'perl', RUBY),
  language('r', '', PYTHON),
  language('ex exs', 'elixir', PYTHON),
  language('jl', 'julia', PYTHON),
  language('sh bash zsh', 'shell', SHELL),
  language('ps1', 'powershell', { tokens: [comment('<#', '#>'), HASH, ...LONG] }),
  language('sql', '', SQL),
  language('lua', '', LUA),
  language('hs', 'haskell', HASKELL),
  language('css', '', STYLE),
  language('scss less', '', { tokens: [...SLASHES, ...QUOTES] }),
  language('html htm', '', MARKUP),
  language('xml svg', '', MARKUP),
  language('vue', '', MARKUP),
  language('svelte', '', MARKUP),
  language('json', '', { tokens: [quoted('"')] }),
  language('jsonc json5', '', C),
  language('yaml yml', '', DATA),
  language('toml', '', DATA),
  language('ini conf', '', DATA),
  language('md mdx markdown', ''),
  language('txt', 'text'),
];

const BY_NAME = new Map(LANGUAGES.flatMap((one) => one.names.map((name) => [name, one] as const)));

/** Returns the extensions of a language's files; undefined if rye does not know it. */
export function extensionsOf(name: string): readonly string[] | undefined {
  return BY_NAME.get(name.toLowerCase())?.extensions;
}

export function similarLanguage(name: string): string | undefined {
  return didYouMean(name.toLowerCase(), [...BY_NAME.keys()]);
}

/** Returns how to read a source text; undefined for prose and for languages that rye does not know. */
export function profileOf(extension: string): Profile | undefined {
  return BY_NAME.get(extension)?.profile;
}

/** True for files of prose with fences of code. */
export function isProse(extension: string): boolean {
  return BY_NAME.get(extension)?.extensions.includes('md') ?? false;
}

/** The extension of a path's last part, lower case; undefined if it has none. */
export function extensionOf(path: string): string | undefined {
  return /[^/]\.([A-Za-z0-9]+)$/.exec(path)?.[1]?.toLowerCase();
}
