import { createHash } from 'node:crypto';
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import { oncePerRun } from './once-per-run.ts';
import { removeFolder } from './remove-folder.ts';
import { type CliOptions, type CliResult, runCli } from './run-cli.ts';

const FIXTURES = path.resolve(import.meta.dirname, '../fixtures/spaces');

/** A person's machine in a temporary folder: a project and a home, removed when the test ends. */
export interface Workspace {
  readonly project: string;
  readonly home: string;
  /** Runs `rye` in the project with this home, in the process of the test. */
  rye(args: readonly string[], options?: Omit<CliOptions, 'cwd'>): Promise<CliResult>;
  /** Runs `rye --json` and parses its one document. */
  json(
    args: readonly string[],
    options?: Omit<CliOptions, 'cwd'>,
  ): Promise<Record<string, unknown>>;
}

interface WorkspaceOptions {
  readonly fixture?: string;
  readonly init?: boolean;
}

/** A {@link temporaryWorkspace} that is removed when the running test ends. */
export async function workspace(options: WorkspaceOptions = {}): Promise<Workspace> {
  const made = await temporaryWorkspace(options);
  onTestFinished(made.remove);
  return made;
}

/** True while a workspace of this process has the key of the templates. */
let isTemplateInUse = false;

/**
 * Makes a workspace, filled from `test/fixtures/spaces/<fixture>/{project,user}` where one is named. Unless `init` is
 * false it has a signing key, and everything that the fixture brings is signed. A second workspace beside it is another
 * person's: its key is its own.
 */
export async function temporaryWorkspace(
  options: WorkspaceOptions,
): Promise<Workspace & { readonly remove: () => void }> {
  const root = realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-e2e-')));
  const isInitialized = options.init ?? true;
  const isCopy = isInitialized && !isTemplateInUse;
  isTemplateInUse ||= isCopy;
  const made = placed(root);
  if (isCopy) await copyTemplate(options.fixture, root);
  else await fill(root, options.fixture, isInitialized);
  const remove = () => {
    removeFolder(root);
    if (isCopy) isTemplateInUse = false;
  };
  return { ...made, remove };
}

/** The folders and commands of a workspace below this folder. */
function placed(root: string): Workspace {
  const project = path.join(root, 'project');
  const home = path.join(root, 'home');
  const rye: Workspace['rye'] = async (args, { env, ...rest } = {}) =>
    await runCli(args, { ...rest, cwd: project, env: { HOME: home, ...env } });
  return {
    project,
    home,
    rye,
    json: async (args, rest) => {
      const { stdout } = await rye(['--json', ...args], rest);
      return JSON.parse(stdout) as Record<string, unknown>;
    },
  };
}

async function fill(
  root: string,
  fixture: string | undefined,
  isInitialized: boolean,
): Promise<void> {
  const { project, home, rye } = placed(root);
  mkdirSync(project);
  mkdirSync(home);
  if (fixture !== undefined) {
    cpSync(path.join(FIXTURES, fixture, 'project'), project, { recursive: true });
    cpSync(path.join(FIXTURES, fixture, 'user'), home, { recursive: true });
  }
  if (!isInitialized) return;
  const { code, stderr } = await rye(['init']);
  if (code !== 0) throw new Error(stderr);
  if (fixture === undefined) return;
  for (const type of ['directive', 'tool', 'knowledge']) await rye(['sign', type, '*']);
  await rye(['sign', 'config', 'agent/hooks']);
}

/** Copies what `rye init` made once in this test run: starting it costs as much as many tests do. */
async function copyTemplate(fixture: string | undefined, root: string): Promise<void> {
  const template = await oncePerRun(`workspace-${fixture ?? 'empty'}`, async (folder) => {
    // made where no folder above it is a repository or a project
    const origin = realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-e2e-')));
    await fill(origin, fixture, true);
    cpSync(origin, folder, { recursive: true });
    removeFolder(origin);
  });
  cpSync(template, root, { recursive: true });
  // the home remembers the project in a file that is named by the project's path
  const memories = path.join(root, 'home', '.ai', 'state', 'projects');
  const project = path.join(root, 'project');
  const sha256 = createHash('sha256').update(project).digest('hex');
  const moved = path.join(memories, `${sha256.slice(0, 32)}.json`);
  for (const name of readdirSync(memories)) renameSync(path.join(memories, name), moved);
  const memory = JSON.parse(readFileSync(moved, 'utf8')) as Record<string, unknown>;
  writeFileSync(moved, `${JSON.stringify({ ...memory, project }, null, 2)}\n`);
}
