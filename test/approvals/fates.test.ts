import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { calls, type House, house, marks, payloads, reply, toolUse } from './house.ts';

/** The decision that was asked for before counts, and the call runs once. */
async function expectRunsAsAsked(
  here: House,
  { threadId, id }: { readonly threadId: string; readonly id: string },
): Promise<void> {
  expect((await here.waiting()).map((one) => one.id)).toEqual([id]);
  await here.json(['approve', id, '--no-resume']);
  await here.json(['threads', 'resume', threadId]);
  expect(here.file('mark')).toBe('ran\n');
  const log = here.log(threadId);
  expect(payloads(log, 'approval_requested')).toHaveLength(1);
  expect(payloads(log, 'approval_decided')).toMatchObject([{ outcome: 'approved' }]);
  expect(await here.json(['verify', 'thread', threadId])).toMatchObject({ success: true });
}

async function fork(here: House, threadId: string): Promise<void> {
  const at = entryOf(here, threadId, 'assistant');
  await here.json(['threads', 'branch', threadId, '--at', at, '--new', '--thread-id', 'fork']);
}

/** The entry of the last message with this role. */
function entryOf(here: House, threadId: string, role: string): string {
  const found = here
    .log(threadId)
    .findLast((event) => event.event_type === 'message' && event.payload.message.role === role);
  return found?.id ?? '';
}

it('a thread that waits is renamed and labeled, and its request stays', async () => {
  const here = await house(calls(marks('mark')));
  const asked = await here.asks();
  const { threadId } = asked;
  await here.json(['threads', 'rename', threadId, 'Coupons at checkout']);
  await here.json(['threads', 'label', threadId, entryOf(here, threadId, 'assistant'), 'here']);
  await expectRunsAsAsked(here, asked);
});

it('a thread that waits is not archived', async () => {
  const here = await house(calls(marks('mark')));
  const asked = await here.asks();
  const report = await here.json(['threads', 'gc', '--older-than', '0d']);
  expect(JSON.stringify(report)).not.toContain(asked.threadId);
  await expectRunsAsAsked(here, asked);
});

it('files are restored before a decision, and the request stays', async () => {
  const here = await house(
    calls(toolUse('rye_file_system_write', { path: 'notes.txt', content: 'new\n' })),
    calls(marks('mark')),
  );
  writeFileSync(join(here.project, 'notes.txt'), 'old\n');
  const asked = await here.asks();
  expect(here.file('notes.txt')).toBe('new\n');
  await here.json(['threads', 'undo', asked.threadId]);
  expect(here.file('notes.txt')).toBe('old\n');
  await expectRunsAsAsked(here, asked);
});

it('a summary of the older part keeps the call that waits', async () => {
  const long = 'word '.repeat(4000);
  const here = await house(
    calls(toolUse('rye_file_system_write', { path: 'notes.txt', content: long })),
    calls(toolUse('rye_file_system_read', { path: 'notes.txt' })),
    calls(marks('mark')),
    reply('The notes were written and read.'),
  );
  const asked = await here.asks();
  const { code, stdout, stderr } = await here.cli(['threads', 'compact', asked.threadId]);
  expect(code, stdout + stderr).toBe(0);
  await expectRunsAsAsked(here, asked);
});

it('a branch before the call leaves it: its request is withdrawn, and a decision has no effect', async () => {
  const here = await house(calls(marks('mark')));
  const { threadId, id } = await here.asks();
  await here.json(['threads', 'branch', threadId, '--at', entryOf(here, threadId, 'user')]);
  await here.cli(['approve', id, '--no-resume']);
  await here.json(['threads', 'resume', threadId]);
  expect(here.file('mark')).toBeUndefined();
  expect(payloads(here.log(threadId), 'approval_decided')).toMatchObject([
    { approval_id: id, outcome: 'withdrawn' },
  ]);
  expect(await here.waiting()).toEqual([]);
  expect((await here.cli(['approve', id])).code).toBe(4);
  expect(await here.json(['verify', 'thread', threadId])).toMatchObject({ success: true });
});

it('a message to a thread that waits continues it without the call', async () => {
  const here = await house(calls(marks('mark')));
  const { threadId, id } = await here.asks();
  const refused = await here.cli(['threads', 'resume', threadId, '-m', 'Never mind.']);
  expect(refused.code, refused.stderr).toBe(8);
  expect((await here.waiting()).map((one) => one.id)).toEqual([id]);
  expect(here.file('mark')).toBeUndefined();
});

// Requirement: approvals-not-inherited
it('a fork asks for itself: neither the request nor its decision is shared', async () => {
  const here = await house(calls(marks('mark')));
  const first = await here.asks();
  await fork(here, first.threadId);
  expect((await here.waiting()).map((one) => one.id)).toEqual([first.id]);
  await here.json(['threads', 'resume', 'fork'], 8);
  const waiting = await here.waiting();
  expect(waiting.map((one) => one.thread_id)).toEqual([first.threadId, 'fork']);
  await here.json(['approve', first.id, '--no-resume']);
  await here.json(['threads', 'resume', 'fork'], 8);
  expect(here.file('mark')).toBeUndefined();
  await here.json(['threads', 'resume', first.threadId]);
  expect(here.file('mark')).toBe('ran\n');
  for (const id of [first.threadId, 'fork']) {
    expect(await here.json(['verify', 'thread', id])).toMatchObject({ success: true });
  }
});

it('a fork of a thread with a wide approval does not inherit it', async () => {
  const here = await house(calls(marks('mark')), reply('done'), calls(marks('again')));
  const { threadId, id } = await here.asks();
  await here.json(['approve', id, '--scope', 'tool', '--no-resume']);
  await here.json(['threads', 'resume', threadId]);
  expect(here.file('mark')).toBe('ran\n');
  await fork(here, threadId);
  const forked = await here.json(['threads', 'resume', 'fork', '-m', 'Once more.'], 8);
  expect(forked['approvals']).not.toEqual([id]);
  expect(here.file('again')).toBeUndefined();
  const [next] = await here.waiting();
  expect(next).toMatchObject({ thread_id: 'fork' });
  // the copied call was approved in the thread before
  expect(payloads(here.log('fork'), 'tool_call_start')).toHaveLength(1);
  expect(await here.json(['verify', 'thread', 'fork'])).toMatchObject({ success: true });
});
