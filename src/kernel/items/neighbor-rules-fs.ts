import { readdirSync } from 'node:fs';
import { extname, join, relative, sep } from 'node:path';
import { RyeError } from '../core/errors.ts';
import { didYouMean, headBytes } from '../core/text.ts';
import { type NeighborRule, readNeighborRule, renderNeighbors } from './neighbor-rule.ts';
import { decode, readInside, realPathOf } from './read-inside-fs.ts';

/** Ids of knowledge that is no file of rye: rules that a project has for other programs. */
const PREFIX = 'neighbors/';

/** Files, and folders that are searched for names with an ending, by the program that reads them. */
const PLACES: Readonly<Record<string, readonly (string | readonly [string, RegExp])[]>> = {
  agents: ['AGENTS.md'],
  claude: ['CLAUDE.md', '.claude/CLAUDE.md', ['.claude/rules', /\.md$/]],
  cursor: ['.cursorrules', ['.cursor/rules', /\.mdc?$/]],
  copilot: ['.github/copilot-instructions.md', ['.github/instructions', /\.instructions\.md$/]],
  cline: ['.clinerules', ['.clinerules', /\.(?:md|txt)$/]],
  windsurf: ['.windsurfrules', ['.windsurf/rules', /\.md$/]],
  gemini: ['GEMINI.md'],
};
const ALL = 'all';

/** Folders of rules are not deeper, and have no more files, unless an attacker made them. */
const MAX_DEPTH = 5;
const MAX_FILES = 200;
const MAX_BYTES = 64 * 1024;
const MAX_IMPORTS = 20;

export interface NeighborRules {
  /** The text for the prompt, which names each file and that none is signed. */
  readonly content: string;
  /** Paths relative to the project, with forward slashes. */
  readonly paths: readonly string[];
}

/** True for an id that names rules for other programs. */
export function isNeighborId(id: string): boolean {
  return id.startsWith(PREFIX);
}

/**
 * Reads the rules that a project has for another program, or with `neighbors/all` for all of them; a text that several files
 * have is read once. Throws `item_not_found` if there is none.
 */
export function readNeighborRules(projectPath: string, id: string): NeighborRules {
  const name = id.slice(PREFIX.length);
  const places = name === ALL ? Object.values(PLACES).flat() : PLACES[name];
  if (places === undefined || !(name === ALL || Object.hasOwn(PLACES, name))) {
    const known = [...Object.keys(PLACES), ALL].map((one) => `${PREFIX}${one}`);
    throw new RyeError('item_not_found', `unknown knowledge ${id}`, {
      hint: didYouMean(id, known) ?? `Known are ${known.join(', ')}.`,
    });
  }
  const found = new Map<string, NeighborRule>();
  for (const path of places.flatMap((place) => pathsOf(projectPath, place))) {
    const text = textOf(projectPath, path);
    if (text === undefined || [...found.values()].some((one) => one.text === text)) continue;
    found.set(path, readNeighborRule(path, text));
  }
  if (found.size === 0) {
    const files = places.map((place) => (typeof place === 'string' ? place : `${place[0]}/`));
    throw new RyeError('item_not_found', `the project has no rules for ${id}`, {
      hint: `They are in ${[...new Set(files)].join(', ')}.`,
    });
  }
  const rules = [...found.values()].map((rule) => withImports(projectPath, rule));
  return { content: headOf(renderNeighbors(id, rules)), paths: [...found.keys()] };
}

function headOf(content: string): string {
  const head = headBytes(content, MAX_BYTES);
  return head === content ? content : `${head}\n(the rest of these files is omitted)`;
}

function pathsOf(
  projectPath: string,
  place: string | readonly [string, RegExp],
): readonly string[] {
  if (typeof place === 'string') return [place];
  const [folder, ending] = place;
  return filesBelow(join(projectPath, folder), MAX_DEPTH)
    .map((path) => relative(projectPath, path).split(sep).join('/'))
    .filter((path) => ending.test(path))
    .toSorted()
    .slice(0, MAX_FILES);
}

function filesBelow(folder: string, depth: number): readonly string[] {
  try {
    return readdirSync(folder, { withFileTypes: true })
      .slice(0, MAX_FILES)
      .flatMap((entry) => {
        const path = join(folder, entry.name);
        if (!entry.isDirectory()) return [path];
        return depth === 0 ? [] : filesBelow(path, depth - 1);
      });
  } catch {
    return [];
  }
}

/**
 * Returns the text of a file, without the mark of its encoding; undefined if it is none. A link may lead to another text of the
 * project, but neither to what rye and git keep nor to a file of another kind, which could be a secret.
 */
function textOf(projectPath: string, path: string): string | undefined {
  const file = join(projectPath, path);
  const real = realPathOf(file);
  const project = realPathOf(projectPath) ?? projectPath;
  if (real === undefined) return undefined;
  const parts = relative(project, real).split(sep);
  const isText = ['.md', '.mdc', '.txt'].includes(extname(real)) || parts.at(-1) === path;
  if (!isText || parts.some((part) => part === '.ai' || part === '.git')) return undefined;
  try {
    const item = { type: 'knowledge', id: path, path: file } as const;
    const bytes = readInside(item, () => project);
    return decode(bytes, item, 'knowledge_malformed')
      .replace(/^\uFEFF/, '')
      .replaceAll('\r\n', '\n');
  } catch {
    return undefined;
  }
}

/** Adds the texts that a file names by lines such as `@docs/style.md`, each once. */
function withImports(projectPath: string, rule: NeighborRule): NeighborRule {
  const seen = new Set([rule.path]);
  const resolve = (text: string): string =>
    text.replaceAll(/^@(?:\.\/)?([^\s@]+\.(?:md|txt))[ \t]*$/gm, (line, path: string) => {
      if (seen.has(path) || seen.size > MAX_IMPORTS || path.split('/').includes('..')) return line;
      seen.add(path);
      const imported = textOf(projectPath, path);
      return imported === undefined ? line : `${line}\n${resolve(imported)}`;
    });
  return { ...rule, body: resolve(rule.body) };
}
