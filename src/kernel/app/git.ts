import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, extname, join } from 'node:path';
import { messageOf, RyeError } from '../core/errors.ts';
import { absoluteSearchPath } from '../core/text.ts';
import { readTextInside, writeInside } from '../disk/inside.ts';
import { writeWhole } from '../disk/whole-file.ts';
import { foreignRepository, isOfOtherUser, shellWord } from '../tools/git.ts';
import { unsignedText } from '../trust/signature.ts';
import { signatureStyle } from '../trust/signature-line.ts';

/** The outcome of `rye git setup`. */
export interface GitSetup {
  /** The file with the attributes. */
  readonly attributes: string;
  /** The command that git runs to merge a signed file. */
  readonly driver: string;
  /** False if all of it was there before. */
  readonly changed: boolean;
}

export interface GitRequest {
  readonly projectPath: string;
  readonly env: Readonly<Record<string, string | undefined>>;
}

const ATTRIBUTES = ['directives', 'tools', 'knowledge', 'rules', 'config'].map(
  (folder) => `.ai/${folder}/** merge=rye`,
);
const COMMENT = '# rye merges signed files without their signature lines: rye git setup';

/**
 * Tells git to merge signed files with rye: attributes in the project, which are committed, and the driver in the local
 * configuration of this clone. Throws `usage` outside of a git repository.
 */
export function setUpGit({ projectPath, env }: GitRequest, program: readonly string[]): GitSetup {
  const git = (...args: readonly string[]): string => runGit(args, projectPath, env);
  try {
    git('rev-parse', '--git-dir');
  } catch (error) {
    const why = messageOf(error);
    if (isOfOtherUser(why)) throw foreignRepository('usage', projectPath, why);
    throw new RyeError('usage', `${projectPath} is not in a git repository`, {
      hint: 'Run: git init',
      cause: error,
    });
  }
  const attributes = join(projectPath, '.gitattributes');
  const text = readTextInside(projectPath, attributes) ?? '';
  const driver = `${program.map(shellWord).join(' ')} git merge-driver %O %A %B %P`;
  const before = gitValue(git, 'merge.rye.driver');
  git('config', '--local', 'merge.rye.name', 'merge of files that rye signs');
  git('config', '--local', 'merge.rye.driver', driver);
  const lines = new Set(text.split('\n').map((line) => line.trim()));
  const missing = ATTRIBUTES.filter((line) => !lines.has(line));
  if (missing.length > 0) {
    const gap = text === '' || text.endsWith('\n') ? '' : '\n';
    const comment = lines.has(COMMENT) ? [] : [COMMENT];
    writeInside(projectPath, attributes, `${text}${gap}${[...comment, ...missing].join('\n')}\n`);
  }
  return { attributes, driver, changed: missing.length > 0 || before !== driver };
}

function gitValue(git: (...args: readonly string[]) => string, name: string): string | undefined {
  try {
    return git('config', '--local', '--get', name).trim();
  } catch {
    return undefined;
  }
}

/** The three versions of a file that git merges; `path` is its name in the repository. */
export interface MergeRequest {
  readonly base: string;
  readonly ours: string;
  readonly theirs: string;
  readonly path: string;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** The outcome of a merge: nothing of one side to merge, a text without a signature, or conflicts to resolve. */
export type MergeOutcome = 'kept' | 'merged' | 'conflicts';

/**
 * Merges a signed file as git's merge driver: its signature lines are taken out first, because they always conflict, and
 * the merged text has none. A side that changed nothing but its signature leaves the other as it is. Reads the three
 * files that git names, writes `ours`, and runs only git itself.
 */
export function mergeSigned(request: MergeRequest): MergeOutcome {
  const style = signatureStyle(extname(request.path)) ?? 'html';
  const [base, ours, theirs] = [request.base, request.ours, request.theirs].map(readVersion);
  const bare = [base, ours, theirs].map((text = '') => unsignedText(text, style));
  const [bareBase = '', bareOurs = '', bareTheirs = ''] = bare;
  if (bareOurs === bareTheirs || bareTheirs === bareBase) return 'kept';
  if (bareOurs === bareBase) {
    writeWhole(request.ours, theirs ?? '');
    return 'kept';
  }
  const { text, hasConflicts } = mergeTexts([bareOurs, bareBase, bareTheirs], request);
  writeWhole(request.ours, text);
  return hasConflicts ? 'conflicts' : 'merged';
}

function mergeTexts(
  texts: readonly string[],
  { path, env }: MergeRequest,
): { readonly text: string; readonly hasConflicts: boolean } {
  const folder = mkdtempSync(join(tmpdir(), 'rye-merge-'));
  try {
    const names = ['ours', 'base', 'theirs'];
    for (const [index, text] of texts.entries())
      writeFileSync(join(folder, names[index] ?? ''), text);
    const labels = names.flatMap((name) => ['-L', `${name}: ${basename(path)}`]);
    const args = ['merge-file', '-p', '-q', ...labels, ...names];
    try {
      return { text: runGit(args, folder, env), hasConflicts: false };
    } catch (error) {
      const text = conflictText(error);
      if (text === undefined) throw error;
      return { text, hasConflicts: true };
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** `git merge-file` exits with the number of conflicts, at most 127, and prints the text with their markers. */
function conflictText(error: unknown): string | undefined {
  if (!(error instanceof Error) || !('status' in error) || !('stdout' in error)) return undefined;
  const { status, stdout } = error;
  const isCount = typeof status === 'number' && status > 0 && status < 128;
  return isCount && typeof stdout === 'string' && stdout !== '' ? stdout : undefined;
}

const MAX_BYTES = 16 * 1024 * 1024;

function readVersion(file: string): string {
  try {
    if (statSync(file).size > MAX_BYTES) throw new Error('it is larger than 16 MiB');
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new RyeError('invalid_input', `cannot merge ${file}: ${messageOf(error)}`, {
      hint: 'Git calls this command with the three versions of a file: rye git setup',
    });
  }
}

function runGit(
  args: readonly string[],
  cwd: string,
  env: Readonly<Record<string, string | undefined>>,
): string {
  return execFileSync('git', args, {
    cwd,
    encoding: 'utf8',
    maxBuffer: 4 * MAX_BYTES,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: gitEnvironment(env),
  });
}

/** Git gets what it needs to find its configuration, and no key. */
function gitEnvironment(
  env: Readonly<Record<string, string | undefined>>,
): Record<string, string | undefined> {
  const passed = Object.entries(env).filter(([name]) =>
    /^(?:HOME|LANG|LC_\w+|TMPDIR|XDG_CONFIG_HOME|GIT_(?:CONFIG|DIR|WORK_TREE|INDEX)\w*)$/.test(
      name,
    ),
  );
  const own = { PATH: absoluteSearchPath(env['PATH'] ?? ''), LC_ALL: 'C' };
  return { ...Object.fromEntries(passed), ...own };
}
