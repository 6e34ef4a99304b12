import { lstatSync, readdirSync, realpathSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { RyeError } from '../core/errors.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import { searchedFiles } from './builtin/grep.ts';
import { type PathRules, realPathOf, shownPath } from './paths.ts';

/** The files that a call names or opens, found before it runs. */
interface JudgedInput {
  readonly input: JsonObject;
  /** null: more than can be listed. */
  readonly files?: readonly string[] | null;
}

interface Judging extends PathRules {
  /** Lists the files that a search opens. */
  readonly listsFiles: boolean;
}

const SEARCH = 'rye/file-system/grep';
const FOLDER_TOOLS: ReadonlySet<string> = new Set([
  SEARCH,
  'rye/file-system/glob',
  'rye/file-system/ls',
]);
/** Files that are listed before a search; a longer list takes longer than a rule may. */
const MAX_FILES = 20_000;

/** Returns the input of a call as rules judge it: with real paths, relative to the project if they are in it. */
export async function judgedInput(
  tool: string,
  given: JsonObject,
  judging: Judging,
): Promise<JudgedInput> {
  const { projectPath } = judging;
  const input = FOLDER_TOOLS.has(tool) ? { path: '.', ...given } : given;
  const members = Object.entries(input).map(([name, value]) => [
    name,
    isPathName(name) ? realPaths(value, projectPath) : value,
  ]);
  const isSame = members.every(([name, value]) => given[name as string] === value);
  const judged: JsonObject = isSame ? given : Object.fromEntries(members);
  if (tool !== SEARCH || !judging.listsFiles) return { input: judged };
  return { input: judged, files: await filesOf(input, judging) };
}

/** True for the member of a call that holds paths: `path`, `paths`, `file`, `file_path`, `notebookPath`. */
function isPathName(name: string): boolean {
  return /(?:paths?|^files?|filename|file_name)$/i.test(name);
}

function realPaths(value: JsonValue | undefined, projectPath: string): JsonValue | undefined {
  if (typeof value === 'string') return realPath(value, projectPath);
  if (!Array.isArray(value)) return value;
  const paths = value.map((one) => realPaths(one, projectPath) ?? null);
  return paths.every((one, at) => one === value[at]) ? value : paths;
}

/** The real path of a file that a call names; as it was given if there can be no such file. */
function realPath(path: string, projectPath: string): string {
  if (path === '' || path.includes('\0')) return path;
  try {
    const project = realpathSync.native(projectPath);
    return shownPath(spelled(realPathOf(path, resolve(project, path))), project);
  } catch {
    return path;
  }
}

/** A path with the letter case that its names have on disk, where the file system ignores it. */
function spelled(real: string): string {
  const parent = dirname(real);
  if (parent === real) return real;
  const folder = spelled(parent);
  const name = real.slice(parent.length).replace(/^[/\\]/, '');
  return join(
    folder,
    nameOnDisk(name, isIn(folder), () => readdirSync(folder)),
  );
}

/** Tells if a folder has a file of a name, as its file system compares names. */
function isIn(folder: string): (name: string) => boolean {
  return (name) => lstatSync(join(folder, name), { throwIfNoEntry: false }) !== undefined;
}

/** Returns the name that a folder lists for a name, which may differ in letter case. Lists it only if case may not count. */
export function nameOnDisk(
  name: string,
  has: (name: string) => boolean,
  list: () => readonly string[],
): string {
  const other = name === name.toLowerCase() ? name.toUpperCase() : name.toLowerCase();
  if (other === name || !has(name) || !has(other)) return name;
  const names = list();
  if (names.includes(name)) return name;
  const folded = name.normalize('NFC').toLowerCase();
  return names.find((one) => one.normalize('NFC').toLowerCase() === folded) ?? name;
}

async function filesOf(input: JsonObject, rules: PathRules): Promise<readonly string[] | null> {
  const files: string[] = [];
  try {
    const project = realpathSync.native(rules.projectPath);
    for await (const file of searchedFiles(input, rules)) {
      files.push(shownPath(file, project));
      if (files.length > MAX_FILES) return null;
    }
  } catch (error) {
    // the search is refused for the same reason
    return error instanceof RyeError ? [] : null;
  }
  return files;
}
