import { describe, expect, it } from 'vitest';
import { main } from '../../../src/faces/cli/main.ts';
import type { Rye } from '../../../src/kernel/app/api/rye.ts';
import type {
  ChildrenService,
  RecoveryService,
  ThreadTreeNode,
  WaitOptions,
} from '../../../src/kernel/app/api/threads.ts';
import { createFakeIo, type FakeIoOptions } from '../../helpers/fake-io.ts';
import { NOON, node, record } from '../thread-nodes.ts';

const ESCAPE = '\u001b';
/** Returns the sequence that clears `count` lines. */
const erased = (count: number): string => `${ESCAPE}[${count}A${ESCAPE}[0J`;

/** A registry that shows one picture after the other; waiting for a change shows the next. */
function films(...pictures: readonly (readonly ThreadTreeNode[])[]): Partial<Rye> {
  let at = 0;
  const children: Partial<ChildrenService> = {
    tree: (id) => {
      const now = pictures[Math.min(at, pictures.length - 1)] ?? [];
      return Promise.resolve(
        id === undefined ? now : now.filter((one) => one.thread.thread_id === id),
      );
    },
    wait: async (ids, { onLook, onEnd }: WaitOptions = {}) => {
      at += 1;
      await onLook?.();
      const ended = pictures[at]?.filter(({ thread }) => ids.includes(thread.thread_id)) ?? [];
      for (const { thread } of ended) if (thread.status === 'completed') onEnd?.(thread);
      return { success: true, timed_out: false, threads: [] };
    },
  };
  const threads = {
    resolveId: (part: string) => Promise.resolve(part),
    session: (id: string) => Promise.resolve([id]),
    mark: () => Promise.resolve({ verified: true }),
    count: () => Promise.resolve(pictures[0]?.length ?? 0),
  };
  return { children, threads } as unknown as Partial<Rye>;
}

const SMALL = [node(record('t', 'running'), node(record('k', 'running')))];
const DONE = [node(record('t', 'completed'), node(record('k', 'completed')))];

async function rye(args: readonly string[], options: FakeIoOptions) {
  const io = createFakeIo({ now: NOON, ...options });
  return { code: await main(['--no-color', ...args], io), io };
}

describe('threads tree --watch', () => {
  const watch = ['threads', 'tree', '--watch'];

  it('draws in place on a terminal until nothing is open', async () => {
    const { code, io } = await rye(watch, { rye: films(SMALL, DONE), stdoutIsTty: true });
    expect(io.out()).toBe(
      [
        '● t  0/1  1m 00s  $0.00  1m ago\n└─ ● job  1m 00s  $0.00  k\n0/1 done · 1 running · $0.00\n',
        erased(3),
        '✓ t  1/1  0ms  $0.00  1m ago\n└─ ✓ job  0ms  $0.00  k\n1/1 done · $0.00\n',
      ].join(''),
    );
    expect(code).toBe(0);
  });

  it('stays within the screen while it moves, and ends with the whole', async () => {
    const many = (status: 'running' | 'completed') => [
      node(
        record('t', status),
        ...Array.from({ length: 40 }, (_, n) =>
          node(record(`k${n}`, n < 38 ? 'completed' : status)),
        ),
      ),
    ];
    const { io } = await rye(watch, {
      rye: films(many('running'), many('completed')),
      stdoutIsTty: true,
      rows: 10,
    });
    const [live = '', whole = ''] = io.out().split(erased(5));
    expect(live.trimEnd().split('\n')).toEqual([
      '● t  38/40  1m 00s  $0.00  1m ago',
      '├─ 38 completed  $0.00',
      '├─ ● job  1m 00s  $0.00  k38',
      '└─ ● job  1m 00s  $0.00  k39',
      '38/40 done · 2 running · $0.00',
    ]);
    // folded once more when all but the root has ended, then whole
    expect(whole.split(`${ESCAPE}[0J`).at(-1)?.trimEnd().split('\n')).toHaveLength(42);
  });

  it('prints again where there is no terminal, without a clock that ticks', async () => {
    const { io } = await rye(watch, { rye: films(SMALL, DONE) });
    expect(io.out()).toBe(
      [
        '● t  0/1  $0.00  running\n└─ ● job  $0.00  running  k\n0/1 done · 1 running · $0.00\n',
        '✓ t  1/1  0ms  $0.00  completed\n└─ ✓ job  0ms  $0.00  completed  k\n1/1 done · $0.00\n',
      ].join(''),
    );
  });

  it('is one line of JSON for each change with --json', async () => {
    const { io } = await rye([...watch, '--json'], { rye: films(SMALL, DONE), stdoutIsTty: true });
    const lines = io.out().trimEnd().split('\n');
    expect(lines.map((line) => JSON.parse(line).threads[0].thread.status)).toEqual([
      'running',
      'completed',
    ]);
  });

  it('ends with the status of an interrupt when it is interrupted', async () => {
    const io = createFakeIo({ rye: films(SMALL), now: NOON });
    io.interrupt();
    expect(await main(watch, io)).toBe(130);
  });
});

describe('threads wait', () => {
  it('shows the progress of the tree on stderr, and a line for each ended thread', async () => {
    const half = [
      node(
        record('t', 'running'),
        node(record('k1', 'completed')),
        node(record('k2', 'running')),
        node(record('k3', 'created', { pid: null })),
      ),
    ];
    const { io } = await rye(['threads', 'wait', 't'], {
      rye: films(half, half),
      stderrIsTty: true,
    });
    expect(io.err()).toContain('1/4 ended · 2 running · 1 queued · $0.00 · 0ms');
    const end = await rye(['threads', 'wait', 't'], { rye: films(SMALL, DONE), stderrIsTty: true });
    expect(end.io.err()).toContain('completed t\n');
    expect(end.io.err().endsWith(`\r${ESCAPE}[2K`)).toBe(true);
  });

  it.each([['--json'], ['--quiet']])('draws nothing with %s', async (option) => {
    const { io } = await rye(['threads', 'wait', 't', option], {
      rye: films(SMALL, DONE),
      stderrIsTty: true,
    });
    expect(io.err()).toBe('');
  });
});

describe('threads stats', () => {
  const row = {
    key: 'team/job',
    threads: 3,
    open: 0,
    completed: 1,
    continued: 1,
    error: 1,
    cancelled: 0,
    spend: 0.5,
    tokens: 12_300,
    turns: 9,
    elapsed_seconds: 65,
  };

  it('keeps what was only estimated apart, if anything was', async () => {
    const cut = { ...row, key: 'cut', spend: 0.524, estimated_spend_usd: 0.024 };
    const children = { stats: () => Promise.resolve([row, cut]) } as unknown as ChildrenService;
    const { io } = await rye(['threads', 'stats'], { rye: { children }, columns: 200 });
    const [head, first, second] = io.out().split('\n');
    expect(head).toMatch(/^DIRECTIVE +SPEND +ESTIMATED +TOKENS/);
    expect(first).toMatch(/^team\/job +\$0\.5000 +\$0\.00 +12\.3k/);
    expect(second).toMatch(/^cut +≤ \$0\.5240 +\$0\.0240 +12\.3k/);
  });

  it('shows what matters most in the columns that a narrow terminal keeps', async () => {
    const children = { stats: () => Promise.resolve([row]) } as unknown as ChildrenService;
    const { io } = await rye(['threads', 'stats'], {
      rye: { children },
      stdoutIsTty: true,
      columns: 60,
    });
    expect(io.out()).toBe(
      [
        'DIRECTIVE  SPEND    TOKENS  TIME    TURNS  THREADS  OPEN  C…',
        'team/job   $0.5000  12.3k   1m 05s  9      3        0     2…',
        '',
      ].join('\n'),
    );
  });
});

describe('threads recover', () => {
  it('reports the amount booked for the call that the crash cut', async () => {
    const one = { status: 'error', action: 'failed', reason: 'it died' };
    const recovered = [
      { ...one, thread_id: 'a', unverified_bytes: 820, estimated_spend_usd: 0.0204 },
      { ...one, thread_id: 'b' },
    ];
    const report = { recovered, failures: [], resumed: [] };
    const recovery = { recover: () => Promise.resolve(report) } as unknown as RecoveryService;
    const { io } = await rye(['threads', 'recover'], { rye: { recovery } });
    expect(io.out()).toBe(
      [
        'a  error  failed: it died (820 unverified bytes of its log set aside); booked ≤ $0.0204 for the model call that it cut',
        'b  error  failed: it died',
        '',
      ].join('\n'),
    );
  });
});

describe('threads gc', () => {
  it('lists compressed and skipped threads with the reason', async () => {
    const recovery = {
      collect: (request: unknown) => {
        expect(request).toEqual({ olderThanMs: 7 * 86_400_000, dryRun: false });
        return Promise.resolve({
          archived: [
            {
              thread_id: 'a',
              completed_at: '2026-02-17T12:00:00.000Z',
              bytes_before: 900,
              bytes_after: 90,
            },
          ],
          copies: { files: 0, bytes: 0 },
          failures: [
            { thread_id: 'b', error: { code: 'transcript_tampered', message: 'it was changed' } },
          ],
        });
      },
    } as unknown as Rye['recovery'];
    const { io, code } = await rye(['threads', 'gc', '--older-than', '1w'], { rye: { recovery } });
    expect(io.out()).toBe(
      [
        'a  ended 2026-02-17T12:00:00.000Z',
        'compressed 1 log, 900 to 90 bytes',
        'b  skipped: it was changed [transcript_tampered]',
        '',
      ].join('\n'),
    );
    expect(code).toBe(3);
  });
});
