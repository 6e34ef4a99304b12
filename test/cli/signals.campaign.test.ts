import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, openSync, readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { afterEach, describe, expect, it, onTestFinished } from 'vitest';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import type { WireScript, WireServer, WireTurn } from '../helpers/wire-server.ts';

const POLL = { timeout: 60_000, interval: 20 };

const labs: Lab[] = [];

afterEach(async () => {
  for (const lab of labs.splice(0)) await lab.remove();
});

/** A phase of a run: what the model does, and how the test sees that the phase has begun. */
interface Phase {
  readonly name: string;
  readonly script: WireScript;
  readonly begun: (lab: Lab, stdout: () => string) => boolean;
}

const bash = (command: string): WireScript => [
  { steps: [{ kind: 'tool', name: 'rye_bash', chunks: [JSON.stringify({ command })] }] },
  'hang',
];

const isMarked = (lab: Lab): boolean => existsSync(path.join(lab.project, 'mark'));

const STREAMING: Phase = {
  name: 'the answer streams',
  script: [
    {
      steps: [
        { kind: 'text', chunks: ['Half of an '] },
        { kind: 'wait', until: new Promise(() => {}) },
      ],
    },
  ],
  begun: (_, stdout) => stdout().includes('"token_delta"'),
};
const WAITING: Phase = {
  name: 'the model is silent',
  script: ['hang'],
  begun: (_, stdout) => stdout().includes('"turn_started"'),
};
const IN_TOOL: Phase = {
  name: 'a tool runs',
  script: bash('touch mark; sleep 300'),
  begun: isMarked,
};
const IN_STUBBORN_TOOL: Phase = {
  name: 'a tool that ignores SIGTERM runs',
  script: bash("trap '' TERM HUP INT; echo $$ > mark; while :; do sleep 0.05; done"),
  begun: (lab) => isMarked(lab) && readFileSync(path.join(lab.project, 'mark'), 'utf8') !== '',
};
const PHASES = [STREAMING, WAITING, IN_TOOL, IN_STUBBORN_TOOL];

type SignalLab = Lab & { readonly server: () => WireServer };

async function labWith({ script }: Pick<Phase, 'script'>): Promise<SignalLab> {
  const lab = await openLab();
  labs.push(lab);
  // the process ids of a sandbox are its own
  lab.sandbox('off');
  const server = await lab.model(script);
  lab.signed(
    'directives/work.md',
    directive('work', { permissions: '<execute><tool>rye/bash</tool></execute>' }),
  );
  return Object.assign(lab, { server: () => server });
}

interface Started {
  readonly child: ChildProcess;
  readonly stdout: () => string;
  readonly ended: Promise<number | null>;
}

async function start(lab: Lab, args: readonly string[]): Promise<Started> {
  const program = path.join(await cliPackage(), 'bin', 'rye.js');
  const child = spawn(process.execPath, [program, ...args], { cwd: lab.project, env: lab.env });
  let stdout = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  child.stderr.resume();
  const ended = once(child, 'close').then(() => child.exitCode);
  return { child, stdout: () => stdout, ended };
}

const RUN = 'run work --thread-id t --acknowledge elevated --output-format stream-json'.split(' ');

/** Checks that every record of the thread states the same end. */
async function expectFinal(lab: Lab, { stdout, ended }: Started): Promise<void> {
  expect(await ended).toBe(130);
  const last: unknown = JSON.parse(stdout().trimEnd().split('\n').at(-1) ?? '');
  expect(last).toMatchObject({ event_type: 'result', success: false, status: 'cancelled' });
  await expectCancelled(lab, 't');
}

async function expectCancelled(lab: Lab, id: string): Promise<void> {
  const { thread, document } = await lab.rye().threads.show(id);
  expect([thread.status, document?.['status']]).toEqual(['cancelled', 'cancelled']);
  const events = await lab.events(id);
  expect(
    events.findLast(({ event_type }) => event_type === 'thread_finished')?.payload,
  ).toMatchObject({
    status: 'cancelled',
  });
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

describe('a foreground run finalizes its thread as cancelled with exit 130', () => {
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const;
  const cases = PHASES.flatMap((phase) => signals.map((signal) => ({ phase, signal })));

  it.each(cases)('when $signal comes while $phase.name', async ({ phase, signal }) => {
    const lab = await labWith(phase);
    const run = await start(lab, RUN);
    await expect.poll(() => phase.begun(lab, run.stdout), POLL).toBe(true);
    run.child.kill(signal);
    await expectFinal(lab, run);
  });

  it.each(PHASES)('when twenty SIGINT come while $name', async (phase) => {
    const lab = await labWith(phase);
    const run = await start(lab, RUN);
    await expect.poll(() => phase.begun(lab, run.stdout), POLL).toBe(true);
    for (let sent = 0; sent < 20; sent += 1) run.child.kill('SIGINT');
    await expectFinal(lab, run);
  });

  it('and kills the tool at once when a second SIGINT comes while it ignores SIGTERM', async () => {
    const lab = await labWith(IN_STUBBORN_TOOL);
    const run = await start(lab, RUN);
    await expect.poll(() => IN_STUBBORN_TOOL.begun(lab, run.stdout), POLL).toBe(true);
    const tool = Number(lab.read('../mark'));
    const repeat = setInterval(() => run.child.kill('SIGINT'), 300);
    run.child.kill('SIGINT');
    try {
      await expectFinal(lab, run);
    } finally {
      clearInterval(repeat);
    }
    expect(isAlive(tool)).toBe(false);
  });
});

it('a signal to a parent cancels its background child', async () => {
  const child: WireTurn = {
    steps: [
      {
        kind: 'tool',
        name: 'rye_execute',
        chunks: [JSON.stringify({ item_type: 'directive', item_id: 'work', async: true })],
      },
    ],
  };
  const lab = await labWith({
    script: ({ body }) => {
      const said = JSON.stringify(body.messages);
      return said.includes('I am the parent') && !said.includes('tool_result') ? child : 'hang';
    },
  });
  const permissions = '<execute><directive>work</directive></execute>';
  lab.signed('directives/top.md', directive('top', { permissions, body: 'I am the parent.' }));
  const args = 'run top --thread-id t --output-format stream-json'.split(' ');
  const run = await start(lab, args);
  // the parent's second request and the first of the child
  await lab.server().request(2);
  run.child.kill('SIGTERM');
  await expectFinal(lab, run);
  const kid = (await lab.rye().threads.list()).find(({ parent_id: parent }) => parent === 't');
  expect(kid?.thread_id).toMatch(/^work-/);
  const state = async () => (await lab.rye().threads.show(kid?.thread_id ?? '')).thread;
  await expect.poll(async () => (await state()).status, POLL).toBe('cancelled');
  const { pid } = await state();
  await expect.poll(() => pid !== null && isAlive(pid), POLL).toBe(false);
});

/** A model context server that accepts connections and answers nothing. */
async function silentServer(): Promise<Server> {
  const server = createServer(() => undefined);
  await once(server.listen(0, '127.0.0.1'), 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return server;
}

const ASYNC = 'run work --thread-id t --acknowledge elevated --async'.split(' ');

async function launched(lab: Lab): Promise<number> {
  const starter = await start(lab, ASYNC);
  expect(await starter.ended).toBe(0);
  return (JSON.parse(starter.stdout()) as { pid: number }).pid;
}

describe('other commands', () => {
  it('start no thread when SIGINT comes while a server of the plan is silent', async () => {
    const lab = await labWith(WAITING);
    const server = await silentServer();
    const { port } = server.address() as AddressInfo;
    lab.signed('config/mcp.yaml', `servers:\n  mute: { url: "http://127.0.0.1:${port}/mcp" }\n`);
    const permissions = '<execute><tool>mcp/mute/*</tool></execute>';
    lab.signed('directives/work.md', directive('work', { permissions }));
    const connected = once(server, 'request');
    const run = await start(lab, RUN);
    await connected;
    run.child.kill('SIGINT');
    expect(await run.ended).toBe(130);
    expect(JSON.parse(run.stdout())).toMatchObject({
      event_type: 'result',
      status: 'cancelled',
      error: { code: 'cancelled' },
    });
    expect(await lab.rye().threads.list()).toEqual([]);
  });

  it.each(['SIGHUP', 'SIGTERM'] as const)(
    'run a background thread in its own session and finalize it on %s',
    async (signal) => {
      const lab = await labWith(WAITING);
      const pid = await launched(lab);
      await lab.server().request(0);
      const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
      const session = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[3];
      expect(Number(session)).toBe(pid);
      process.kill(pid, signal);
      // after_complete hooks, thread.json and the head in the user space follow the final status in the registry
      await expect.poll(() => isAlive(pid), POLL).toBe(false);
      await expectCancelled(lab, 't');
    },
  );

  it('resume a thread and finalize it when SIGHUP comes', async () => {
    const lab = await labWith({ script: ['hang', 'hang'] });
    const first = await start(lab, RUN);
    await lab.server().request(0);
    first.child.kill('SIGKILL');
    await first.ended;
    // the killed request is charged, so the rest of the budget may not pay for another one
    const args =
      'threads resume t --limit spend=1 --raise-limits --output-format stream-json'.split(' ');
    const resumed = await start(lab, args);
    await lab.server().request(1);
    resumed.child.kill('SIGHUP');
    expect(await resumed.ended).toBe(130);
    const last = JSON.parse(resumed.stdout().trimEnd().split('\n').at(-1) ?? '') as {
      readonly thread_id: string;
    };
    await expectCancelled(lab, last.thread_id);
  });

  it('wait and follow until SIGHUP, which leaves the background thread alone', async () => {
    const lab = await labWith(WAITING);
    const pid = await launched(lab);
    onTestFinished(() => void process.kill(pid, 'SIGKILL'));
    await lab.server().request(0);
    for (const words of [
      ['wait', 't'],
      ['logs', 't', '--follow'],
    ]) {
      const waiting = await start(lab, ['threads', ...words]);
      if (words[0] === 'logs') await expect.poll(waiting.stdout, POLL).toContain('turn_started');
      else await listensForHangUp(waiting.child.pid ?? 0);
      waiting.child.kill('SIGHUP');
      expect(await waiting.ended).toBe(130);
    }
    expect((await lab.rye().threads.show('t')).thread.status).toBe('running');
  });

  it('stop following when the reader of stdout has gone', async () => {
    const lab = await labWith(WAITING);
    const pid = await launched(lab);
    await lab.server().request(0);
    const following = await start(lab, ['threads', 'logs', 't', '--follow']);
    await expect.poll(following.stdout, POLL).toContain('turn_started');
    following.child.stdout?.destroy();
    await lab.rye().children.cancel('t');
    expect(await following.ended).toBe(0);
    await expect.poll(() => isAlive(pid), POLL).toBe(false);
  });
});

/** Resolves when the process catches SIGHUP: bit 0 of SigCgt in proc(5). */
async function listensForHangUp(pid: number): Promise<void> {
  const catches = (): boolean => {
    const mask = /^SigCgt:\s*(\S+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1];
    return (BigInt(`0x${mask ?? '0'}`) & 1n) === 1n;
  };
  await expect.poll(catches, POLL).toBe(true);
}

const STREAMS = ['text', 'json', 'stream-json'] as const;

describe('a closed stdout changes neither the run nor its exit status', () => {
  const reply: WireScript = [
    { steps: [{ kind: 'text', chunks: ['One.'] }] },
    { steps: [{ kind: 'text', chunks: ['Two.'] }] },
  ];
  const run = async (format: string, tail: string): Promise<readonly [Lab, number]> => {
    const lab = await labWith({ script: reply });
    const program = path.join(await cliPackage(), 'bin', 'rye.js');
    const words = [...RUN.slice(0, -1), format].map((word) => `'${word}'`).join(' ');
    const script = `{ '${process.execPath}' '${program}' ${words}; echo $? >&3; } ${tail}`;
    const file = path.join(lab.project, 'status');
    const status = openSync(file, 'w');
    const shell = spawn('/bin/sh', ['-c', script], {
      cwd: lab.project,
      env: lab.env,
      stdio: ['ignore', 'ignore', 'ignore', status],
    });
    await once(shell, 'close');
    closeSync(status);
    return [lab, Number(readFileSync(file, 'utf8'))];
  };

  const tails = ['| true', '| head -n 1', '>&-'];
  const closed = STREAMS.flatMap((format) => tails.map((tail) => ({ format, tail })));

  it.each(closed)('when $format goes to $tail', async ({ format, tail }) => {
    const [lab, status] = await run(format, tail);
    expect(status).toBe(0);
    expect((await lab.rye().threads.show('t')).thread.status).toBe('completed');
  });

  it.each(STREAMS)(
    'but a full device makes the exit status 1 and lets the run end, in %s',
    async (format) => {
      const [lab, status] = await run(format, '> /dev/full');
      expect(status).toBe(1);
      expect((await lab.rye().threads.show('t')).thread.status).toBe('completed');
    },
  );
});
