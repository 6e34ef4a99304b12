import { describe, expect, it } from 'vitest';
import { main } from '../../../src/faces/cli/main.ts';
import type {
  DeliveriesService,
  SentDelivery,
  ThreadsService,
} from '../../../src/kernel/app/api/threads.ts';
import { createFakeIo, type FakeIo } from '../../helpers/fake-io.ts';
import { assistantMessage, event, STARTED } from '../events.ts';

const EVENTS = [STARTED, event('token_delta', { text: 'Hel' }), assistantMessage('Hello.\nBye.')];

const mark: ThreadsService['mark'] = () => Promise.resolve({ verified: true });

async function rye(
  args: readonly string[],
  threads: Partial<ThreadsService>,
): Promise<[number, FakeIo]> {
  const resolveId = (part: string): Promise<string> => Promise.resolve(`full-${part}`);
  const session = (id: string): Promise<readonly string[]> => Promise.resolve([id]);
  const io = createFakeIo({
    rye: { threads: { resolveId, session, mark, ...threads } as ThreadsService },
  });
  return [await main(args, io), io];
}

describe('logs', () => {
  const asked: unknown[] = [];
  const logs: ThreadsService['logs'] = async function* (threadId, options) {
    asked.push([threadId, options]);
    yield* EVENTS;
  };

  it('prints lines for people, without deltas', async () => {
    const [code, io] = await rye(['threads', 'logs', '1', '--tail', '5', '--since', '2'], { logs });
    expect(io.out()).toBe(
      [
        '2026-11-21T08:00:00.000Z     0 thread_started hello on acme/large',
        '2026-11-21T08:00:00.000Z     0 message assistant',
        '  Hello.',
        '  Bye.',
        '',
      ].join('\n'),
    );
    expect(asked.at(-1)).toEqual(['full-1', { tail: 5, since: 2, follow: false }]);
    expect(code).toBe(0);
  });

  it('is one document with --json', async () => {
    const [, io] = await rye(['threads', 'logs', '1', '--json'], { logs });
    expect(JSON.parse(io.out())).toEqual({
      success: true,
      thread_id: 'full-1',
      verified: true,
      events: EVENTS,
      total: 3,
      warnings: [],
    });
  });

  it('is one line for each event with --json --follow', async () => {
    const [, io] = await rye(['threads', 'logs', '1', '--json', '--follow'], { logs });
    const lines = io.out().trimEnd().split('\n');
    expect(lines.map((line): unknown => JSON.parse(line))).toEqual(EVENTS);
  });
});

describe('list', () => {
  it('is what `rye threads` means, with a filter made of the options', async () => {
    const filters: unknown[] = [];
    const list: ThreadsService['list'] = (filter) => {
      filters.push(filter);
      return Promise.resolve([]);
    };
    const options = [
      '--active',
      '--status',
      'error',
      '--directive',
      't/*',
      '--parent',
      'p',
      '--limit',
      '5',
    ];
    const [code, io] = await rye(['threads', ...options, '--json'], {
      list,
      unlisted: () => Promise.resolve([]),
    });
    // --limit cuts the rows; the total counts all
    const filter = { active: true, status: 'error', directive: 't/*', parent: 'full-p' };
    expect(filters).toEqual([{ ...filter, limit: 5 }]);
    expect(JSON.parse(io.out())).toEqual({ success: true, threads: [], total: 0, warnings: [] });
    expect(code).toBe(0);
  });
});

describe('verify thread', () => {
  it('names the byte and exits with 3', async () => {
    const error = { code: 'transcript_tampered', message: 'the hash differs' } as const;
    const verify: ThreadsService['verify'] = (threadId) =>
      Promise.resolve({
        thread_id: threadId,
        ok: false,
        warnings: [],
        checks: [
          { name: 'thread.json', ok: true },
          { name: 'transcript', ok: false, error, offset: 812 },
        ],
      });
    const [code, io] = await rye(['verify', 'thread', '1'], { verify });
    expect(io.out()).toBe(
      'ok   thread.json\nFAIL transcript at byte 812: the hash differs [transcript_tampered]\n',
    );
    expect(code).toBe(3);
  });
});

describe('execute tool', () => {
  it('fails with the tool', async () => {
    const executeTool: ThreadsService['executeTool'] = ({ toolId, params }) =>
      Promise.resolve({
        success: params?.['fine'] === 'yes',
        tool: toolId,
        result: 'output',
        duration_ms: 1,
      });
    const [good, goodIo] = await rye(['execute', 'tool', 'x', '--param', 'fine=yes'], {
      executeTool,
    });
    const [bad, badIo] = await rye(['execute', 'tool', 'x', '--json'], { executeTool });
    expect([good, goodIo.out()]).toEqual([0, 'output\n']);
    expect([bad, JSON.parse(badIo.out())]).toMatchObject([
      1,
      { success: false, error: { code: 'tool_failed' } },
    ]);
  });
});

describe('steer', () => {
  it.each([
    ['Use metres.', 'Use metres.'],
    ['-', 'What was piped in.\n'],
  ])('sends %j as the message', async (given, expected) => {
    const sent: unknown[] = [];
    const resolveId = (part: string): Promise<string> => Promise.resolve(`full-${part}`);
    const session = (id: string): Promise<readonly string[]> => Promise.resolve([id]);
    const send: DeliveriesService['send'] = (...all) => {
      sent.push(all);
      return Promise.resolve({
        delivery: { seq: 1, thread_id: 'full-1' },
        outlook: 'soon',
      } as SentDelivery);
    };
    const io = createFakeIo({
      stdin: 'What was piped in.\n',
      rye: {
        threads: { resolveId, session, mark } as ThreadsService,
        deliveries: { send } as DeliveriesService,
      },
    });
    expect(await main(['threads', 'steer', '1', given], io)).toBe(0);
    expect(sent).toEqual([['full-1', expected, {}]]);
    expect(io.out()).toBe('Message 1 queued; soon\n');
  });
});
