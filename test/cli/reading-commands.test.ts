import { mkdirSync, mkdtempSync, readdirSync, realpathSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Command, loadTree } from '../../src/faces/cli/command.ts';
import { ROOT } from '../../src/faces/cli/root.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { type CliResult, runCli } from '../helpers/run-cli.ts';

/** Command lines of every command that only reads, by command. None of them finds a thread. */
const READING: Readonly<Record<string, readonly string[]>> = {
  list: ['list directive', 'list tool'],
  fetch: ['fetch directive hello', 'fetch directive nope', 'fetch directive hello --raw'],
  search: ['search all hello', 'search knowledge nope'],
  validate: ['validate', 'validate directive hello'],
  verify: ['verify directive hello', 'verify thread nope'],
  'lock status': ['lock', 'lock status'],
  'keys list': ['keys list'],
  'keys export': ['keys export'],
  ask: ['ask Why?'],
  run: [
    'run hello --dry-run',
    'run nope',
    'run hello --model nope',
    'run hello --provider anthropic',
    'run hello --input x=1',
    'run hello --limit nope=1',
    'run hello --thread-id ../evil',
    'run hello --parent nope',
    'run unsigned',
  ],
  'execute directive': ['execute directive hello --dry-run'],
  'execute tool': ['execute tool rye/file-system/ls', 'execute tool nope'],
  'threads list': ['threads', 'threads list', 'threads list --active'],
  'threads show': ['threads show nope', 'threads show @'],
  'threads receipt': ['threads receipt nope'],
  open: ['open nope'],
  ps: ['ps', 'ps --active'],
  show: ['show nope'],
  logs: ['logs nope'],
  tree: ['tree', 'tree nope'],
  resume: ['resume nope'],
  stop: ['stop nope'],
  'threads logs': ['threads logs nope', 'threads logs nope --follow'],
  'threads tree': ['threads tree', 'threads tree nope'],
  'threads stats': ['threads stats'],
  'threads wait': ['threads wait nope'],
  'threads cancel': ['threads cancel nope'],
  'threads kill': ['threads kill nope'],
  'threads steer': ['threads steer nope Hi'],
  'threads deliveries': ['threads deliveries nope'],
  'threads resume': ['threads resume nope'],
  'threads recover': ['threads recover', 'threads recover nope'],
  'threads gc': ['threads gc --older-than 1d', 'threads gc --older-than 1d --dry-run'],
  'threads entries': ['threads entries nope'],
  'threads label': ['threads label nope entry here'],
  'threads rename': ['threads rename nope Title'],
  'threads compact': ['threads compact nope'],
  'threads replay': ['threads replay nope'],
  'threads open': ['threads open nope'],
  'threads branch': ['threads branch nope --at root'],
  'threads export': ['threads export nope'],
  'threads import': ['threads import nope.jsonl'],
  'threads pull': ['threads pull nope'],
  'schedule list': ['schedule', 'schedule list'],
  'schedule pause': ['schedule pause nope'],
  'schedule resume': ['schedule resume nope'],
  'schedule run': ['schedule run nope'],
  'schedule remove': ['schedule remove nope'],
  'fleet status': ['fleet', 'fleet status'],
  'fleet workers': ['fleet workers'],
  'fleet queues': ['fleet queues'],
  'fleet root': ['fleet root'],
  'fleet enroll': ['fleet enroll --label a'],
  'fleet drain': ['fleet drain nope'],
  'fleet pause': ['fleet pause nope'],
  'fleet limits': ['fleet limits nope --global 1'],
  worker: ['worker', 'worker --token nope'],
  'rules list': ['rules list'],
  'rules test': ['rules test text'],
  'rules scan': ['rules scan .'],
  'import rye-os': ['import rye-os nope'],
  'hooks list': ['hooks list'],
  'hooks explain': ['hooks explain hello'],
  'hooks schema': ['hooks schema'],
  'config show': ['config show'],
  'config get': ['config get resilience.limits.spend'],
  'config path': ['config path'],
  'models list': ['models', 'models list'],
  doctor: ['doctor'],
  'models prices': ['models prices'],
  'mcp list': ['mcp', 'mcp list'],
  'mcp test': ['mcp test nope'],
  attach: ['attach nope'],
  'threads attach': ['threads attach nope'],
  'threads undo': ['threads undo nope'],
  'approvals list': ['approvals list'],
  'approvals show': ['approvals show nope'],
  'approvals verify': ['approvals verify nope'],
  approve: ['approve nope'],
  deny: ['deny nope'],
  answer: ['answer nope yes'],
  completion: ['completion bash'],
};

/** Commands that write what they are asked for. */
const WRITING: ReadonlySet<string> = new Set([
  'new',
  'edit',
  'git setup',
  'init',
  'sign',
  'lock accept',
  'keys init',
  'keys trust',
  'keys revoke',
  'keys rotate',
  'keys protect',
  'keys untrust',
  'keys publish',
  'chat',
  'models use',
  'mcp add',
  'schedule add',
  'schedule serve',
  'fleet init',
  'fleet try',
]);

const LINES = Object.values(READING).flat();

let base = '';
let project = '';
let home = '';

beforeEach(() => {
  base = realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-reads-')));
  project = path.join(base, 'project');
  home = path.join(base, 'home');
  mkdirSync(project);
  mkdirSync(home);
});
afterEach(() => removeFolder(base));

async function rye(args: readonly string[]): Promise<CliResult> {
  return await runCli(args, { cwd: project, env: { HOME: home } });
}

const filesOf = (): string[] =>
  readdirSync(base, { recursive: true, encoding: 'utf8' })
    .filter((name) => name !== 'project' && name !== 'home')
    .toSorted();

function namesOf(command: Command, below = ''): string[] {
  const name = `${below} ${command.name}`.trim();
  return command.commands === undefined
    ? [name]
    : command.commands.flatMap((child) => namesOf(child, name));
}

describe('in an empty folder, with an empty home', () => {
  it('each command is known as one that reads or one that writes', async () => {
    const tree = await loadTree(ROOT);
    const names = (tree.commands ?? []).flatMap((command) => namesOf(command));
    expect(names.filter((name) => !(name in READING) && !WRITING.has(name))).toEqual([]);
  });

  it.each(LINES)('`rye %s` creates no file and no folder', async (line) => {
    if (line === 'run unsigned') {
      mkdirSync(path.join(project, '.ai/directives'), { recursive: true });
      writeFileSync(path.join(project, '.ai/directives/unsigned.md'), '# Not signed\n');
    }
    const before = filesOf();
    const { stderr } = await rye(line.split(' '));
    expect(stderr).not.toContain('[internal]');
    expect(filesOf()).toEqual(before);
  });
});

describe('in a project without a thread', () => {
  it.each(
    LINES.filter((line) =>
      /^(?:search|list|fetch|validate|verify|threads|doctor|schedule)/.test(line),
    ),
  )('`rye %s` creates no file and no folder', async (line) => {
    expect((await rye(['init'])).code).toBe(0);
    const before = filesOf();
    await rye(line.split(' '));
    expect(filesOf()).toEqual(before);
  });
});

/** Each of these has another fault that is found before the project is opened. */
const FAULTY: ReadonlySet<string> = new Set([
  'run hello --limit nope=1',
  'threads open nope',
  'open nope',
  'answer nope yes',
  'import rye-os nope',
]);

describe('a folder that does not exist', () => {
  const lines = LINES.filter((line) => !FAULTY.has(line));
  it.each([...lines, 'init', 'sign directive hello', 'keys init'])(
    'is an error for `rye -C missing %s`',
    async (line) => {
      const { code, stdout, stderr } = await rye(['-C', 'missing', ...line.split(' ')]);
      expect([code, stdout]).toEqual([6, '']);
      expect(stderr).toMatch(/missing.*\[file_not_found\]\nhint: .*folder/);
      expect(filesOf()).toEqual([]);
    },
  );
});

describe('rye run without rye init', () => {
  it('creates the signing key with a notice, and the thread verifies', async () => {
    const { code, stdout, stderr } = await rye(['run', 'hello']);
    expect([code, stdout]).toEqual([0, 'greeting: Hello, world!\n']);
    expect(stderr).toMatch(/^rye: new signing key [0-9a-f]{16}$/m);
    const verified = await rye(['verify', 'thread', 'hello']);
    expect([verified.code, verified.stderr]).toEqual([0, '']);
    expect((await rye(['run', 'hello'])).stderr).not.toContain('new signing key');
  });

  it('creates it for --async too', async () => {
    const { code, stdout, stderr } = await rye(['run', 'hello', '--async', '--thread-id', 'one']);
    expect([code, JSON.parse(stdout)['thread_id']]).toEqual([0, 'one']);
    expect(stderr).toContain('new signing key');
    expect((await rye(['threads', 'wait', 'one'])).code).toBe(0);
  });
});
