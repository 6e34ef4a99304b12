import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ResumeThreadRequest } from '../../src/kernel/app/api/threads.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { reply, text, thinking, type WireBody, type WireTurn } from '../helpers/wire-server.ts';
import { openMortal } from './mortal-store.ts';

let lab: Lab;
let turns: WireTurn[] = [];
let bodies: WireBody[] = [];

beforeEach(async () => {
  turns = [];
  bodies = [];
  lab = await openLab();
  await lab.model(({ body }) => {
    bodies.push(body);
    return turns.shift() ?? reply('Done.');
  });
  lab.signed(
    'directives/tell.md',
    directive('tell', { limits: 'turns="9" spend="1"', body: 'Tell a story.' }),
  );
});
afterEach(async () => await lab.remove());

const HALF = 'Once upon a time, ';
const MARK = '[Your answer was interrupted here by the user.]';
const CONTINUE = /^Continue exactly where the text of your answer stopped\./;

/** An answer that never ends after its first half. */
const held = (): WireTurn => ({
  steps: [thinking('hm'), text(HALF), { kind: 'wait', until: new Promise(() => {}) }],
});

/** Runs the directive until the first half is seen, then stops it. */
async function interrupted(request: { directiveId?: string; inputs?: object } = {}) {
  turns = [held()];
  const stop = new AbortController();
  const result = await lab.rye().threads.execute({
    directiveId: 'tell',
    ...request,
    signal: stop.signal,
    onEvent: ({ event_type: type }) => {
      if (type === 'token_delta') stop.abort('interrupted by Ctrl-C');
    },
  } as Parameters<ReturnType<Lab['rye']>['threads']['execute']>[0]);
  expect(result).toMatchObject({ status: 'cancelled', result: HALF });
  return result.thread_id;
}

/** The texts of the last request, from the interrupted answer on. */
function sentSinceHalf(): string[] {
  const words = (bodies.at(-1)?.messages ?? []).flatMap(({ content }) =>
    typeof content === 'string' ? [content] : content.map((block) => block.text ?? block.type),
  );
  return words.slice(words.indexOf(HALF));
}

const resume = async (request: ResumeThreadRequest) => await lab.rye().recovery.resume(request);

describe('an interrupted answer', () => {
  it('is continued where it stopped, and the result has both halves', async () => {
    const threadId = await interrupted();
    turns = [reply('a fox sang.')];
    const result = await resume({ threadId });
    expect(sentSinceHalf()).toEqual([HALF, MARK, expect.stringMatching(CONTINUE)]);
    expect(result).toMatchObject({ status: 'completed', result: `${HALF}a fox sang.` });
  });

  it('precedes what the person writes instead', async () => {
    const threadId = await interrupted();
    turns = [reply('A bear.')];
    const result = await resume({ threadId, message: 'No, about a bear.' });
    expect(sentSinceHalf()).toEqual([HALF, MARK, 'No, about a bear.']);
    expect(result.result).toBe('A bear.');
  });

  it('is continued after it was interrupted again', async () => {
    const threadId = await interrupted();
    turns = [held()];
    const stop = new AbortController();
    await resume({
      threadId,
      signal: stop.signal,
      onEvent: ({ event_type: type }) => {
        if (type === 'token_delta') stop.abort('again');
      },
    });
    await resume({ threadId });
    expect(sentSinceHalf()).toEqual([
      HALF,
      MARK,
      expect.stringMatching(CONTINUE),
      HALF,
      MARK,
      expect.stringMatching(CONTINUE),
    ]);
  });

  it('comes before messages that were queued for it, and they before a new one', async () => {
    const threadId = await interrupted();
    for (const message of ['First.', 'Second.']) await lab.rye().deliveries.send(threadId, message);
    await resume({ threadId, message: 'Third.' });
    const [half, mark, first, second, third] = sentSinceHalf();
    expect([half, mark, third]).toEqual([HALF, MARK, 'Third.']);
    expect(first).toContain('First.');
    expect(second).toContain('Second.');
  });

  it('is marked in the log, the tree, every export and the search', async () => {
    const threadId = await interrupted();
    const rye = lab.rye();
    const rows = (await rye.trees.view(threadId, { session: true })).rows;
    expect(rows.map((row) => row.text).join('\n')).toContain('Once upon a time, (interrupted)');
    const exported = async (format: 'md' | 'html' | 'jsonl' | 'pi') =>
      [...(await rye.exports.export(threadId, { format })).chunks].join('');
    expect(await exported('md')).toMatch(
      /\*This answer was interrupted\.\*\n\n> Once upon a time,/,
    );
    expect(await exported('html')).toMatch(/>interrupted<[^]*Once upon a time/);
    expect(await exported('jsonl')).toMatch(
      /"stop_reason":"aborted"[^]*"custom_type":"interrupted"/,
    );
    expect(await exported('pi')).toMatch(/Once upon a time, [^]*"stopReason":"aborted"/);
    expect(JSON.stringify(await rye.items.search('knowledge', '"upon a time"'))).toContain(
      threadId,
    );
    expect((await rye.threads.verify(threadId)).ok).toBe(true);
  });

  it('stays in forks, after branches, and in a pi session that is imported again', async () => {
    const threadId = await interrupted();
    const rye = lab.rye();
    const entries = await rye.trees.path(threadId);
    const half = entries.find(({ payload }) => JSON.stringify(payload).includes(HALF));
    await rye.trees.branch(threadId, { at: half?.id ?? '' });
    await resume({ threadId, message: 'On.' });
    expect(sentSinceHalf()).toEqual([HALF, 'On.']);
    const other = await interrupted();
    await resume({ threadId: other, fork: true });
    expect(sentSinceHalf()).toEqual([HALF, MARK, expect.stringMatching(CONTINUE)]);
    const { chunks } = await rye.exports.export(other, { format: 'pi' });
    const file = path.join(lab.project, 'session.jsonl');
    writeFileSync(file, [...chunks].join(''));
    const imported = await rye.trees.importSession({ path: file });
    await resume({ threadId: imported.thread.thread_id, message: 'On.' });
    expect(sentSinceHalf()).toEqual([HALF, MARK, 'On.']);
  });

  it('is kept if the process dies, as far as its text was signed', async () => {
    turns = [held()];
    const mortal = openMortal(lab.project);
    const started = lab.rye({ store: mortal.store }).threads.execute({
      directiveId: 'tell',
      onEvent: ({ event_type: type }) => {
        if (type === 'token_delta') mortal.arm(1, false);
      },
    });
    void started.catch(() => {});
    await mortal.death;
    await mortal.bury();
    const rye = lab.rye();
    const [thread] = await rye.threads.list();
    const threadId = thread?.thread_id ?? '';
    await rye.recovery.recover({ threadId });
    const log = readFileSync(
      path.join(lab.project, '.ai/state/threads', threadId, 'transcript.jsonl'),
      'utf8',
    );
    expect(log).toContain('interrupted here: the process ended');
    expect((await rye.threads.verify(threadId)).ok).toBe(true);
    turns = [reply('a fox sang.')];
    const result = await resume({ threadId, limits: { spend: 1 } });
    expect(sentSinceHalf()).toEqual([
      HALF,
      '[Your answer was interrupted here: the process ended.]',
      expect.stringMatching(CONTINUE),
    ]);
    expect(result.result).toBe(`${HALF}a fox sang.`);
  });
});

describe('a conversation that is stopped before the first word', () => {
  it('asks the question again, and is told nothing of directives', async () => {
    const stop = new AbortController();
    const { thread_id: threadId } = await lab.rye().threads.execute({
      directiveId: 'rye/core/chat',
      inputs: { message: 'Who is there?' },
      signal: stop.signal,
      onEvent: ({ event_type: type }) => {
        if (type === 'turn_started') stop.abort('interrupted by Ctrl-C');
      },
    });
    await resume({ threadId });
    const [message] = bodies.at(-1)?.messages ?? [];
    expect(bodies.at(-1)?.messages).toHaveLength(1);
    expect(JSON.stringify(message)).toContain('Who is there?');
    expect(JSON.stringify(bodies.at(-1)?.messages)).not.toContain('This thread continues');
  });
});
