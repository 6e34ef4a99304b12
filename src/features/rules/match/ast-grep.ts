import { createRequire } from 'node:module';
import { messageOf } from '../../../kernel/core/errors.ts';
import type { AstPlace, MatchWorld } from './evaluate.ts';
import { extensionsOf } from './languages.ts';
import type { AstNode, Node } from './parse.ts';

/** The package of people who have rules with patterns of syntax. */
const PACKAGE = '@ast-grep/napi';

/** Grammars in the package, by the first extension of their language. */
const BUILT_IN: Readonly<Record<string, string>> = {
  ts: 'TypeScript',
  tsx: 'Tsx',
  js: 'JavaScript',
  jsx: 'JavaScript',
  html: 'Html',
  css: 'Css',
};

/** Grammars with a package each, by the first extension of their language. */
const SEPARATE: Readonly<Record<string, string>> = {
  go: 'go',
  py: 'python',
  rs: 'rust',
  c: 'c',
  cc: 'cpp',
  cs: 'csharp',
  java: 'java',
  kt: 'kotlin',
  rb: 'ruby',
  php: 'php',
  sh: 'bash',
  swift: 'swift',
  scala: 'scala',
  lua: 'lua',
  ex: 'elixir',
  hs: 'haskell',
  dart: 'dart',
  sql: 'sql',
  json: 'json',
  yaml: 'yaml',
  toml: 'toml',
};

/** A larger text would hold up the program. */
const MAX_TEXT = 1024 * 1024;

/** The parts of the package that are used, so that rye compiles without it. */
interface Napi {
  parse(grammar: string, text: string): { root(): SyntaxNode };
  registerDynamicLanguage(grammars: Readonly<Record<string, Grammar>>): void;
}

interface SyntaxNode {
  findAll(config: { readonly rule: object }): readonly SyntaxNode[];
  getMatch(metavariable: string): SyntaxNode | null;
  text(): string;
  range(): { readonly start: { readonly index: number }; readonly end: { readonly index: number } };
}

/** Loads a package that is installed beside rye. Throws if it is not. */
export type LoadPackage = (name: string) => unknown;

// `import()` does not work in the compiled program, see bin/rye.js
const loadBesideRye: LoadPackage = createRequire(import.meta.url);

/** ast-grep with the grammars that are installed. */
class AstGrep {
  readonly #napi: Napi;
  readonly #grammars: ReadonlySet<string>;

  /** Takes all grammars at once: the package takes them once in a process. */
  constructor(load: LoadPackage) {
    this.#napi = load(PACKAGE) as Napi;
    const found = Object.values(SEPARATE).flatMap((name) => {
      try {
        const grammar = load(packageOf(name)) as Grammar;
        return [[name, { ...grammar, libraryPath: grammar.libraryPath }] as const];
      } catch {
        return [];
      }
    });
    this.#grammars = new Set(found.map(([name]) => name));
    if (found.length > 0) this.#napi.registerDynamicLanguage(Object.fromEntries(found));
  }

  /** Returns the grammar for files with the extension, or what to do about a missing one. */
  grammarOf(extension: string): { readonly name: string } | { readonly problem: string } {
    const [first = extension] = extensionsOf(extension) ?? [];
    const separate = SEPARATE[first];
    const name = BUILT_IN[first] ?? separate;
    if (name === undefined) return { problem: `ast-grep has no grammar for .${extension} files` };
    if (separate === undefined || this.#grammars.has(separate)) return { name };
    const missing = `ast-grep has no grammar for .${extension} files here`;
    return { problem: `${missing}. ${installOf(packageOf(separate))}` };
  }

  /** Finds the places of a pattern. Throws if it is none of the grammar. */
  find({ patterns, strictness, selector }: AstNode, text: string, grammar: string): AstPlace[] {
    const root = this.#napi.parse(grammar, text).root();
    return patterns.flatMap((context) => {
      const pattern = { context, strictness, ...(selector ? { selector } : {}) };
      return root.findAll({ rule: { pattern } }).map((node) => {
        const { start, end } = node.range();
        return {
          start: start.index,
          end: end.index,
          text: (name: string) => node.getMatch(name)?.text(),
        };
      });
    });
  }
}

interface Grammar {
  readonly libraryPath: string;
  readonly extensions: readonly string[];
}

function packageOf(grammar: string): string {
  return `@ast-grep/lang-${grammar}`;
}

function installOf(name: string): string {
  return `Install it beside rye: npm install ${name}`;
}

const NOT_INSTALLED = `ast-grep is not installed. ${installOf(PACKAGE)}`;

const loaded = new WeakMap<LoadPackage, AstGrep>();

function open(load: LoadPackage): AstGrep | undefined {
  const known = loaded.get(load);
  if (known) return known;
  try {
    const made = new AstGrep(load);
    loaded.set(load, made);
    return made;
  } catch {
    return undefined;
  }
}

/** Returns why the patterns of a condition cannot be found in the files of these extensions; undefined if they can. */
export function astProblem(
  node: Node,
  extensions: Iterable<string>,
  load = loadBesideRye,
): string | undefined {
  const nodes = astNodes(node);
  if (nodes.length === 0) return undefined;
  const engine = open(load);
  if (!engine) return NOT_INSTALLED;
  for (const extension of extensions) {
    const grammar = engine.grammarOf(extension);
    if ('problem' in grammar) return grammar.problem;
    for (const one of nodes) {
      try {
        engine.find(one, '', grammar.name);
      } catch (error) {
        const patterns = one.patterns.join(', ');
        return `no pattern of .${extension} files: ${patterns}: ${messageOf(error)}`;
      }
    }
  }
  return undefined;
}

/** Finds the places of patterns in a text; undefined, with a note, if that is not possible. */
export const findAst: MatchWorld['ast'] = async (node, text, extension, note) => {
  const engine = open(loadBesideRye);
  const grammar = engine ? engine.grammarOf(extension) : { problem: NOT_INSTALLED };
  if (!engine || 'problem' in grammar) {
    note(`a rule was not checked: ${'problem' in grammar ? grammar.problem : NOT_INSTALLED}`);
    return undefined;
  }
  if (text.length > MAX_TEXT) {
    note(`a rule was not checked: ast-grep gets ${MAX_TEXT} characters at most`);
    return undefined;
  }
  try {
    return engine.find(node, text, grammar.name);
  } catch (error) {
    note(`a rule was not checked: ${messageOf(error)}`);
    return undefined;
  }
};

/** The `ast` conditions in a condition. */
function astNodes(node: Node): readonly AstNode[] {
  switch (node.kind) {
    case 'ast':
    case 'regex': {
      const { inside, notInside, has, notHas } = node;
      const others = [inside, notInside, has, notHas].flatMap((one) => (one ? astNodes(one) : []));
      return node.kind === 'ast' ? [node, ...others] : others;
    }
    case 'all':
    case 'any':
      return node.of.flatMap(astNodes);
    case 'not':
      return astNodes(node.of);
    case 'if':
      return [node.test, node.yes, ...(node.no ? [node.no] : [])].flatMap(astNodes);
    case 'lang':
    case 'path':
    case 'did':
    case 'llm':
      return [];
  }
}

/** The extensions of files that globs name. */
export function extensionsIn(globs: readonly string[]): ReadonlySet<string> {
  const text = globs.join(' ');
  const known = [...Object.keys(BUILT_IN), ...Object.keys(SEPARATE)].flatMap(
    (first) => extensionsOf(first) ?? [],
  );
  return new Set(
    known.filter((extension) => new RegExp(`(?:\\.|[{,])${extension}(?![\\w.])`).test(text)),
  );
}
