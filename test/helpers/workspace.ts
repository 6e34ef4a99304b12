import { cpSync, mkdirSync, mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import { type CliOptions, type CliResult, runCli } from './run-cli.ts';

const FIXTURES = path.resolve(import.meta.dirname, '../fixtures/spaces');

/** A person's machine in a temporary folder: a project and a home, removed when the test ends. */
export interface Workspace {
  readonly project: string;
  readonly home: string;
  /** Runs the built `rye` in the project with this home. */
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

/**
 * Makes a workspace, filled from `test/fixtures/spaces/<fixture>/{project,user}` where one is named. Unless `init` is
 * false it has a signing key, and everything that the fixture brings is signed.
 */
export async function temporaryWorkspace(
  options: WorkspaceOptions,
): Promise<Workspace & { readonly remove: () => void }> {
  const root = realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-e2e-')));
  const project = path.join(root, 'project');
  const home = path.join(root, 'home');
  mkdirSync(project);
  mkdirSync(home);
  if (options.fixture !== undefined) {
    cpSync(path.join(FIXTURES, options.fixture, 'project'), project, { recursive: true });
    cpSync(path.join(FIXTURES, options.fixture, 'user'), home, { recursive: true });
  }
  const rye: Workspace['rye'] = async (args, { env, stdin } = {}) =>
    await runCli(args, {
      cwd: project,
      env: { HOME: home, ...env },
      ...(stdin === undefined ? {} : { stdin }),
    });
  const made = {
    remove: () => rmSync(root, { recursive: true, force: true }),
    project,
    home,
    rye,
    json: async (args: readonly string[], rest?: Omit<CliOptions, 'cwd'>) => {
      const { stdout } = await rye(['--json', ...args], rest);
      return JSON.parse(stdout) as Record<string, unknown>;
    },
  };
  if (options.init ?? true) await prepare(made, options.fixture !== undefined);
  return made;
}

async function prepare({ rye }: Workspace, signAll: boolean): Promise<void> {
  const { code, stderr } = await rye(['init']);
  if (code !== 0) throw new Error(stderr);
  if (!signAll) return;
  for (const type of ['directive', 'tool', 'knowledge']) await rye(['sign', type, '*']);
  await rye(['sign', 'config', 'agent/hooks']);
}
