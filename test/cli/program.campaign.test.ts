import { expect, it } from 'vitest';
import { ROOT } from '../../src/faces/cli/root.ts';
import { systemSpacePath } from '../../src/kernel/app/system.ts';
import { type CliResult, cliPackage } from '../helpers/run-cli.ts';
import { workspace } from '../helpers/workspace.ts';

/** A command line of each command of the program. None of them changes what the others print. */
const LINES: Readonly<Record<string, string>> = {
  answer: 'answer nope {}',
  approvals: 'approvals',
  approve: 'approve nope',
  ask: 'ask Why?',
  attach: 'attach nope',
  chat: 'chat',
  completion: 'completion bash',
  config: 'config show nope',
  deny: 'deny nope --comment No',
  doctor: 'doctor',
  edit: 'edit directive nope',
  execute: 'execute directive example --dry-run',
  fetch: 'fetch directive example',
  fleet: 'fleet workers',
  git: 'git setup',
  hooks: 'hooks list',
  import: 'import rye-os nope',
  init: 'init',
  keys: 'keys list',
  list: 'list directive',
  lock: 'lock status',
  logs: 'logs nope',
  mcp: 'mcp list',
  models: 'models list',
  new: 'new directive example',
  open: 'open nope',
  ps: 'ps',
  resume: 'resume nope',
  rules: 'rules list',
  run: 'run example --dry-run',
  schedule: 'schedule list',
  search: 'search all nope',
  show: 'show nope',
  sign: 'sign directive example',
  stop: 'stop nope',
  threads: 'threads list',
  tree: 'tree',
  validate: 'validate',
  verify: 'verify directive example',
  worker: 'worker',
};

it('the program has a command line here for each of its commands', () => {
  const names = (ROOT.commands ?? []).map(({ name }) => name);
  expect(Object.keys(LINES)).toEqual(names.toSorted());
});

it('each command of the built program does in a process what it does in the tests', async () => {
  const here = await workspace();
  const [installed, sources] = [await cliPackage(), systemSpacePath()];
  const textOf = (result: CliResult): string =>
    JSON.stringify(result).replaceAll(installed, sources);
  const tried = Object.values(LINES).map(async (line) => ({
    line,
    program: textOf(await here.rye(line.split(' '), { spawned: true })),
    main: textOf(await here.rye(line.split(' '))),
  }));
  const all = await Promise.all(tried);
  expect(all.filter(({ program, main }) => program !== main)).toEqual([]);
});
