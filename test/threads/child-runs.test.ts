import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { deliveryFacts } from '../../src/kernel/log/delivery-facts.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { calls, reply, toolUse, type WireTurn } from '../helpers/wire-server.ts';

const MODEL = { model: 'claude-haiku-5-5', provider: 'anthropic' } as const;
const HOOKS = `hooks:
  - id: hear
    event: child_finished
    action: { emit: { custom_type: heard, data: { child: "\${child_thread_id}", result: "\${result}" } } }
`;

let lab: Lab;
/** Answers of the root by turn. The child replies with what it was asked last. */
let script: (() => WireTurn | Promise<WireTurn>)[];

beforeEach(async () => {
  lab = await openLab();
  script = [];
  await lab.model(async ({ body }) => {
    const first = JSON.stringify(body.messages[0]).replaceAll('\\', '');
    if (first.includes('<directive name="root"'))
      return (await script.shift()?.()) ?? reply('Done.');
    // the last thing that it was asked
    const asked = JSON.stringify(body.messages);
    return reply(['once more', 'and again', 'again'].find((one) => asked.includes(one)) ?? 'first');
  });
  const permissions =
    '<execute><directive>*</directive><tool>rye/agent/threads/orchestrator</tool></execute>';
  const limits = 'turns="30" spend="1.00" spawns="5" depth="4"';
  lab.signed('directives/root.md', directive('root', { permissions, limits }));
  lab.signed('directives/kid.md', directive('kid', { limits: 'turns="30" spend="0.20"' }));
  lab.signed('config/agent/hooks.yaml', HOOKS);
});

afterEach(async () => {
  await lab.remove();
});

const start = (): WireTurn =>
  calls(toolUse('rye_execute', { item_type: 'directive', item_id: 'kid' }, 'start'));

function orchestrate(operation: string, call: string, more: object = {}): () => WireTurn {
  return () => calls(toolUse('rye_agent_threads_orchestrator', { operation, ...more }, call));
}

/** The ends of children that are in a log, and what the hook heard. */
async function endsIn(threadId: string) {
  const events = await lab.events(threadId);
  const of = (type: string) =>
    events.flatMap(({ event_type, payload }) => (event_type === type ? [payload] : []));
  const emitted = of('custom') as { custom_type: string; data: { result: string } }[];
  const heard = emitted.filter(({ custom_type }) => custom_type === 'heard');
  return { ends: of('child_thread_finished'), heard: heard.map(({ data }) => data.result) };
}

describe('the end of each run of a child', () => {
  it('is in the log of its parent, and heard by its hooks, once', async () => {
    const { recovery, threads } = lab.rye();
    let root = '';
    let kid = '';
    script = [
      start,
      orchestrate('wait_threads', 'w1'),
      async () => {
        const [record] = await threads.list({ directive: 'kid' });
        if (!record) throw new Error('no child was started');
        kid = record.thread_id;
        root = record.parent_id ?? '';
        // after its parent has waited, which still runs
        await recovery.resume({ threadId: kid, message: 'again' });
        return orchestrate('wait_threads', 'w2')();
      },
      orchestrate('wait_threads', 'w3'),
      () =>
        calls(
          toolUse(
            'rye_agent_threads_orchestrator',
            {
              operation: 'resume_thread',
              thread_id: kid,
              message: 'and again',
            },
            'r4',
          ),
        ),
    ];
    expect(await lab.run('root', MODEL)).toMatchObject({ status: 'completed' });
    const end = { child_thread_id: kid, status: 'completed', spend: expect.any(Number) };
    const three = [end, { ...end, child_run: 2 }, { ...end, child_run: 3 }];
    expect(await endsIn(root)).toEqual({
      ends: three,
      heard: ['first', 'again', 'and again'],
    });
    // after the parent has ended
    await recovery.resume({ threadId: kid, message: 'once more' });
    script = [orchestrate('wait_threads', 'w5'), orchestrate('wait_threads', 'w6')];
    expect(await recovery.resume({ threadId: root, message: 'go on' })).toMatchObject({
      thread_id: root,
      status: 'completed',
    });
    const { ends, heard } = await endsIn(root);
    expect(ends).toEqual([...three, { ...end, child_run: 4 }]);
    expect(heard.at(-1)).toBe('once more');
    expect(heard).toHaveLength(4);
    // what a recovery takes from the log: no end that was waited for is delivered as well
    expect(deliveryFacts(await lab.events(root)).waitedFor).toEqual(
      [1, 2, 3, 4].map((run) => ({ threadId: kid, run })),
    );
  });

  it('is known to the thread that continues its parent', async () => {
    const { recovery, threads } = lab.rye();
    script = [start];
    const { thread_id: root } = await lab.run('root', MODEL);
    expect((await recovery.collect({ olderThanMs: 0 })).archived).toHaveLength(2);
    script = [orchestrate('wait_threads', 'w1')];
    const next = await recovery.resume({ threadId: root, message: 'go on' });
    expect(next.thread_id).not.toBe(root);
    // the entry of the hook came along with the conversation
    expect(await endsIn(next.thread_id)).toEqual({ ends: [], heard: ['first'] });
    const [kid] = await threads.list({ directive: 'kid' });
    const again = await recovery.resume({ threadId: kid?.thread_id ?? '', message: 'once more' });
    script = [orchestrate('wait_threads', 'w2'), orchestrate('wait_threads', 'w3')];
    await recovery.resume({ threadId: root, message: 'go on' });
    expect(await endsIn(next.thread_id)).toMatchObject({
      ends: [{ child_thread_id: again.thread_id, status: 'completed' }],
      heard: ['first', 'once more'],
    });
  });
});
