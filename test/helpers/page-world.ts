import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { missingLines, type PageFile, readConsolePage } from './console-page.ts';
import { openPageShell, type PageShell, type Shown } from './page-shell.ts';
import { removeFolder } from './remove-folder.ts';
import { cliPackage } from './run-cli.ts';
import { startWireServer, type WireScript } from './wire-server.ts';

const COLUMNS = 100;
const PACKAGE = 'rye-threads';
/** Such a command stays, as its comment states. */
/** The end of an error that a page shows: its command fails. */
const ERROR_CODE = /\[[a-z_]+\]$/;
const UNTIL_INTERRUPTED = /# .*until Ctrl-C/;

/** A page needs these from its reader, and does not create them. */
export interface PageWorld {
  /** Typed before the page. */
  readonly before?: readonly string[];
  /** The answers of the model. */
  readonly model?: WireScript;
  /** Text of the page, and what a reader types instead. */
  readonly replace?: Readonly<Record<string, string>>;
}

/**
 * Follows a page as its reader does: in a terminal with `rye` in PATH, in an empty folder, with an empty home and a scripted
 * model. Returns each command that failed or did not print what the page shows.
 */
export async function followPage(page: string, world: PageWorld): Promise<readonly string[]> {
  const root = realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-page-')));
  const project = path.join(root, 'project');
  for (const name of ['bin', 'home', 'project']) mkdirSync(path.join(root, name));
  await install(root);
  const server = world.model === undefined ? undefined : await startWireServer(world.model);
  const env = {
    PATH: `${root}/bin:${process.env['PATH']}`,
    HOME: path.join(root, 'home'),
    ...(server === undefined ? {} : { ANTHROPIC_BASE_URL: server.url }),
  };
  const shells: PageShell[] = [];
  const open = async (): Promise<PageShell> => {
    const shell = await openPageShell({ cwd: project, columns: COLUMNS, env });
    shells.push(shell);
    return shell;
  };
  try {
    return await follow(open, page, { ...world, project });
  } finally {
    for (const shell of shells) await shell.close();
    await server?.close();
    remove(root, 10);
  }
}

async function follow(
  open: () => Promise<PageShell>,
  page: string,
  { before = [], replace = {}, project }: PageWorld & { readonly project: string },
): Promise<readonly string[]> {
  const shell = await open();
  for (const command of before) {
    const { code, lines } = await shell.type(command);
    if (code !== 0) throw new Error(`${command}: ${lines.join('\n')}`);
  }
  const surprises: string[] = [];
  const staying: PageShell[] = [];
  for (const step of readConsolePage(page)) {
    if (step.kind === 'file') {
      save(project, step);
      continue;
    }
    if (step.kind === 'clone') continue;
    if (step.kind === 'interrupt') {
      for (const other of staying.splice(0)) await other.stop();
      continue;
    }
    const { line, expected } = step;
    let { command } = step;
    for (const [name, value] of Object.entries(replace)) command = command.replaceAll(name, value);
    const shows = (lines: readonly string[]): boolean => missingLines(lines, expected).length === 0;
    let shown: Shown;
    if (UNTIL_INTERRUPTED.test(command)) {
      // a reader leaves it running and types in another terminal
      const other = await open();
      shown = await other.open(command, shows);
      staying.push(other);
    } else shown = await shell.type(command);
    const fails = expected.some((wanted) => ERROR_CODE.test(wanted));
    if (shows(shown.lines) && (shown.code === 0 || fails)) continue;
    const missing = missingLines(shown.lines, expected);
    const problem = [`exit ${shown.code}`, ...missing.map((wanted) => `not shown: ${wanted}`)];
    surprises.push([`${line}: ${command}`, ...problem, ...shown.lines.slice(0, 20)].join('\n  '));
  }
  for (const other of staying) await other.stop();
  return surprises;
}

/** Installs the built program as a package beside the project and as a command. */
async function install(root: string): Promise<void> {
  const folder = await cliPackage();
  const packages = path.join(root, 'node_modules');
  mkdirSync(path.join(packages, '.bin'), { recursive: true });
  symlinkSync(folder, path.join(packages, PACKAGE));
  symlinkSync(path.resolve('node_modules/vitest/vitest.mjs'), path.join(packages, '.bin/vitest'));
  const launcher = path.join(root, 'bin', 'rye');
  const program = path.join(folder, 'bin', 'rye.js');
  writeFileSync(launcher, `#!/bin/sh\nexec '${process.execPath}' '${program}' "$@"\n`);
  chmodSync(launcher, 0o755);
}

function save(project: string, { path: name, content }: PageFile): void {
  const target = path.join(project, name);
  mkdirSync(path.dirname(target), { recursive: true });
  writeFileSync(target, content);
}

/** A thread that a page started may still write its last files, which are not removed if they are new meanwhile. */
function remove(folder: string, tries: number): void {
  try {
    removeFolder(folder);
  } catch (error) {
    if (tries === 0) throw error;
    remove(folder, tries - 1);
  }
}
