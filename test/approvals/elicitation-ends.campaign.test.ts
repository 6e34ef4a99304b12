import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { expect, it, onTestFinished, vi } from 'vitest';
import { asking, expectCompleted, PROGRAM, pendingQuestion } from './asking.ts';
import { payloads } from './house.ts';

const LIMIT = 240_000;
const SOON = { timeout: 60_000, interval: 200 };

/** Starts the server for streamable HTTP. */
async function overHttp(file: string): Promise<object> {
  const child = spawn(process.execPath, [PROGRAM, file, 'http'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  const [port] = (await once(child.stdout, 'data')) as [Buffer];
  return { url: `http://127.0.0.1:${port.toString().trim()}/mcp` };
}

it(
  'a server over HTTP gets the answer of a person',
  async () => {
    const { here, answers, ended, request } = await pendingQuestion({ server: overHttp });
    await here.json(['answer', request.id, '{"region": "eu"}']);
    const threadId = await expectCompleted(here, ended);
    expect(answers()).toEqual([{ action: 'accept', content: { region: 'eu' } }]);
    expect(payloads(here.log(threadId), 'approval_decided')).toMatchObject([
      { approval_id: request.id, outcome: 'answered' },
    ]);
  },
  LIMIT,
);

it(
  'a question that no person answers within wait_inline is cancelled, and the call continues',
  async () => {
    const { here, answers } = await asking({ policy: { wait_inline: '1s' } });
    const threadId = await expectCompleted(here, here.cli(['run', 'deployer', '--json']));
    expect(answers()).toEqual([{ action: 'cancel' }]);
    expect(payloads(here.log(threadId), 'approval_decided')).toMatchObject([
      { outcome: 'withdrawn', reason: 'no person answered in time' },
    ]);
    expect(payloads(here.log(threadId), 'tool_settled')).toMatchObject([{ outcome: 'ok' }]);
  },
  LIMIT,
);

it(
  'a call asks at most 20 questions; more are cancelled without a request',
  async () => {
    const { here, answers } = await asking({ input: { row: 23 } });
    let asked = 0;
    const outcome = await here.rye().run({
      directiveId: 'deployer',
      onApproval: () => {
        asked += 1;
        return { decision: 'answer', answer: { region: 'us' } };
      },
    });
    expect([outcome.kind, asked]).toEqual(['completed', 20]);
    const actions = answers().map((one) => (one as { action: string }).action);
    expect(actions).toEqual([...Array(20).fill('accept'), ...Array(3).fill('cancel')]);
    expect(payloads(here.log(outcome.threadId ?? ''), 'approval_requested')).toHaveLength(20);
  },
  LIMIT,
);

it(
  'the process is killed while a question is open: an answer reaches no server, and the next run withdraws the question',
  async () => {
    const { here, answers, ended, request } = await pendingQuestion({ spawned: true });
    const { id, thread_id: threadId } = request;
    const { thread } = (await here.json(['threads', 'show', threadId])) as {
      thread: { pid: number };
    };
    process.kill(thread.pid, 'SIGKILL');
    await ended;
    await vi.waitUntil(async () => (await here.cli(['threads', 'recover'])).code === 0, SOON);
    await here.until(threadId, 'error');
    await here.json(['answer', id, '{"region": "eu"}', '--no-resume']);
    await here.json(['threads', 'resume', threadId]);
    const log = here.log(threadId);
    expect(answers()).toEqual([]);
    expect(await here.waiting()).toEqual([]);
    expect(payloads(log, 'approval_decided')).toMatchObject([{ outcome: 'withdrawn' }]);
    expect(payloads(log, 'tool_settled')).toMatchObject([{ outcome: 'aborted' }]);
    expect(await here.json(['verify', 'thread', threadId])).toMatchObject({ success: true });
  },
  LIMIT,
);

it(
  'an expired question and one that is open when the time of the call is over are cancelled',
  async () => {
    const expired = await asking({ policy: { wait_inline: '120s', expires: '1s' } });
    const first = await expectCompleted(
      expired.here,
      expired.here.cli(['run', 'deployer', '--json']),
    );
    expect(expired.answers()).toEqual([{ action: 'cancel' }]);
    expect(payloads(expired.here.log(first), 'approval_decided')).toMatchObject([
      { outcome: 'expired' },
    ]);
    const late = await asking({ policy: { wait_inline: '120s' }, timeout: 2 });
    const second = await expectCompleted(late.here, late.here.cli(['run', 'deployer', '--json']));
    expect(late.answers()).toEqual([{ action: 'cancel' }]);
    expect(payloads(late.here.log(second), 'approval_decided')).toMatchObject([
      { outcome: 'withdrawn' },
    ]);
  },
  LIMIT,
);

it(
  'too long texts and too many open questions reach no person',
  async () => {
    for (const how of ['long', 'wide']) {
      const { here, answers } = await asking({ input: { how }, policy: { wait_inline: '120s' } });
      await expectCompleted(here, here.cli(['run', 'deployer', '--json']));
      expect(JSON.stringify(answers())).toContain('rye cannot ask this');
    }
    const many = await pendingQuestion({ input: { times: 6 } });
    await vi.waitUntil(async () => (await many.here.waiting()).length === 4, 60_000);
    expect(many.answers()).toHaveLength(2);
    for (const { id } of await many.here.waiting()) {
      await many.here.json(['answer', id, '{"region": "us"}']);
    }
    await expectCompleted(many.here, many.ended);
    expect(many.answers().filter((one) => JSON.stringify(one).includes('accept'))).toHaveLength(4);
  },
  LIMIT,
);
