import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import { textOf } from '../../src/kernel/core/message.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { calls, reply, toolUse, type WireScript, type WireServer } from '../helpers/wire-server.ts';

const READ = 'rye_file_system_read';

let lab: Lab;
let rye: Rye;
let server: WireServer;
let id: string;

const SCRIPT: WireScript = ({ body }) => {
  const text = JSON.stringify([body.system ?? '', body.messages]);
  if (text.includes('You summarize part of the record')) {
    return { ...reply('THE SUMMARY'), usage: { input_tokens: 1000, output_tokens: 50 } };
  }
  if (!text.includes('"tool_result"')) {
    return calls(toolUse(READ, { path: 'a.txt' }, 'toolu_1'));
  }
  return reply(`Answer ${body.messages.length}.`);
};

beforeEach(async () => {
  lab = await openLab();
  writeFileSync(path.join(lab.project, 'a.txt'), 'content of a\n');
  server = await lab.model(SCRIPT);
  lab.signed(
    'directives/work.md',
    directive('work', {
      permissions: '<execute><tool>rye/file-system/*</tool></execute>',
      limits: 'turns="10" spend="1.00"',
    }),
  );
  const result = await lab.run('work', { model: 'claude-haiku-5-5', provider: 'anthropic' });
  id = result.thread_id;
  rye = lab.rye();
});

afterEach(async () => await lab.remove());

async function kinds(thread = id, filter: 'default' | 'all' = 'default') {
  const { rows } = await rye.trees.view(thread, { filter });
  return rows.map(({ kind, depth, leaf }) => `${'-'.repeat(depth)}${kind}${leaf ? '*' : ''}`);
}

async function entryOf(kind: string, thread = id): Promise<string> {
  const { rows } = await rye.trees.view(thread, { filter: 'all' });
  return rows.find((row) => row.kind === kind)?.entry.id ?? '';
}

async function intact(thread = id) {
  const { ok, checks } = await rye.threads.verify(thread);
  return ok ? 'ok' : JSON.stringify(checks);
}

describe('a finished thread', () => {
  it('is seen as a tree', async () => {
    // the row of a result shows its call
    expect(await kinds()).toEqual(['user', 'tool_result', 'assistant*']);
    expect((await rye.trees.view(id, { search: 'CONTENT of' })).rows).toHaveLength(1);
    const user = await entryOf('user');
    expect((await rye.trees.entry(id, user.slice(0, 6))).id).toBe(user);
    await expect(rye.trees.entry(id, 'zzz')).rejects.toMatchObject({ code: 'entry_not_found' });
    const labels = (await rye.trees.path(id, user)).map(({ event_type }) => event_type);
    expect(labels.at(-1)).toBe('message');
    expect(await rye.trees.children(id, user)).toHaveLength(1);
  });

  it('is branched; the leaf outlasts the process and the log still verifies', async () => {
    const user = await entryOf('user');
    const events = await rye.trees.branch(id, { at: user });
    expect(events.map(({ event_type }) => event_type)).toEqual(['leaf']);
    expect((await lab.rye().trees.view(id)).leaf_id).toBe(user);
    expect((await rye.trees.context(id)).messages).toHaveLength(1);
    expect(await intact()).toBe('ok');
    // there already: nothing is written
    expect(await rye.trees.branch(id, { at: user })).toEqual([]);
    await rye.trees.branch(id, { at: user, message: 'Another way.' });
    expect(await kinds()).toEqual(['user', '-user*', '-tool_result', '-assistant']);
    expect(await intact()).toBe('ok');
  });

  it('asks the opening message again at the root and keeps the system prompt and the tools', async () => {
    const before = await rye.trees.context(id);
    await rye.trees.branch(id, { at: 'root' });
    const restarted = await rye.trees.context(id);
    expect(restarted.system).toBe(before.system);
    expect(restarted.messages).toEqual(before.messages.slice(0, 1));
    await rye.recovery.resume({ threadId: id });
    const { system, tools, messages } = server.requests.at(-2)?.body ?? {};
    const first = server.requests[0]?.body;
    expect({ system, tools }).toEqual({ system: first?.system, tools: first?.tools });
    expect(messages?.[0]).toMatchObject({ role: 'user' });
    expect(JSON.stringify(messages)).toContain('Do the work.');
    expect(await intact()).toBe('ok');
  });

  it('begins with a message instead of the opening one at the root', async () => {
    const { system } = await rye.trees.context(id);
    await rye.trees.branch(id, { at: 'root', message: 'From the start.' });
    const context = await rye.trees.context(id);
    expect(context.messages.map(({ content }) => textOf(content))).toEqual(['From the start.']);
    expect(context.system).toBe(system);
    expect(await intact()).toBe('ok');
  });

  it('keeps the results of finished calls in a branch and in a fork at their answer', async () => {
    const at = await entryOf('assistant');
    const result = { role: 'tool_result', call_id: 'toolu_1', outcome: 'ok' };
    expect((await rye.trees.context(id, at)).messages.at(-1)).toMatchObject(result);

    const { thread_id: fork } = await rye.trees.extract(id, { at });
    expect((await rye.trees.context(fork)).messages.at(-1)).toMatchObject(result);
    const log = readFileSync(
      path.join(lab.project, '.ai/state/threads', fork, 'transcript.jsonl'),
      'utf8',
    );
    expect(log.match(/"event_type":"tool_call_start"/g)).toHaveLength(1);

    await rye.trees.branch(id, { at, message: 'And now?' });
    const { messages } = await rye.trees.context(id);
    expect(messages.slice(-2)).toMatchObject([result, { role: 'user' }]);
    expect(await intact()).toBe('ok');
    expect(await intact(fork)).toBe('ok');
  });

  it('is branched with a given summary of the abandoned branch', async () => {
    const before = (await rye.trees.view(id)).leaf_id;
    await rye.trees.branch(id, {
      at: await entryOf('user'),
      summary: { text: 'It was a dead end.' },
    });
    const { messages } = await rye.trees.context(id);
    expect(textOf(messages.at(-1)?.content ?? [])).toContain('It was a dead end.');
    expect((await rye.trees.entry(id, await entryOf('branch_summary'))).payload).toMatchObject({
      from_id: before,
    });
  });

  it('is branched with a summary by its model, which is paid for and lists files', async () => {
    const before = await rye.threads.show(id);
    await rye.trees.branch(id, {
      at: await entryOf('user'),
      summary: 'model',
      instructions: 'Say why.',
    });
    const asked = JSON.stringify(server.requests.at(-1)?.body.messages);
    expect(asked).toContain('Say why.');
    expect(asked).toContain('content of a');
    // the task stays on the path, so it is not summarized
    expect(asked).not.toContain('Do the work.');
    const { payload } = await rye.trees.entry(id, await entryOf('branch_summary'));
    expect(payload).toMatchObject({
      summary: 'THE SUMMARY\n\n<read-files>\na.txt\n</read-files>',
      details: { read_files: ['a.txt'], usage: { input_tokens: 1000 } },
    });
    const after = await rye.threads.show(id);
    expect(after.thread.cost.spend).toBeGreaterThan(before.thread.cost.spend);
    expect(await intact()).toBe('ok');
  });

  it.each([
    [400, 'invalid_request_error', 'provider_rejected'],
    [401, 'authentication_error', 'provider_auth'],
  ])(
    'stays as it is when the summary fails with %i, and reports the reason',
    async (status, type, code) => {
      await lab.model(() => ({ status, error: { type, message: 'no' } }));
      const file = path.join(lab.project, '.ai/state/threads', id, 'transcript.jsonl');
      const text = readFileSync(file);
      const branched = lab.rye().trees.branch(id, { at: await entryOf('user'), summary: 'model' });
      await expect(branched).rejects.toMatchObject({
        code,
        hint: expect.stringMatching(/^The thread is unchanged\. /) as string,
      });
      expect(readFileSync(file)).toEqual(text);
      expect(await intact()).toBe('ok');
    },
  );

  it('that ran without a model has none to summarize, but takes a summary', async () => {
    const { thread_id } = await lab.run('hello', { model: 'literal' });
    const at = await entryOf('user', thread_id);
    await expect(rye.trees.branch(thread_id, { at, summary: 'model' })).rejects.toMatchObject({
      code: 'literal_unsupported',
    });
    expect((await rye.trees.view(thread_id)).leaf_id).not.toBe(at);
    await rye.trees.branch(thread_id, { at, summary: { text: 'Greeted.' } });
    expect((await rye.trees.context(thread_id)).messages).toHaveLength(2);
  });

  it('takes labels, a title, custom entries and messages, and context edits', async () => {
    const user = await entryOf('user');
    await rye.trees.label(id, user, ' start\nhere ');
    await rye.trees.title(id, 'My thread');
    await rye.trees.appendCustom(id, 'pruning', { kept: 3 });
    await rye.trees.appendCustomMessage(id, {
      customType: 'note',
      content: 'Mind the gap.',
      display: false,
      details: { secret: 'not sent' },
    });
    await rye.trees.editContext(id, { entry: await entryOf('tool_result'), reason: 'long' });
    const view = await rye.trees.view(id, { filter: 'labeled-only' });
    expect(view.title).toBe('My thread');
    expect(view.rows.map(({ label }) => label)).toEqual(['start here']);
    const texts = (await rye.trees.context(id)).messages.map(({ content }) => textOf(content));
    expect(texts).toContain('Mind the gap.');
    expect(texts.join()).not.toContain('content of a');
    expect(texts.join()).not.toContain('not sent');
    await rye.trees.label(id, user, '');
    expect((await rye.trees.view(id, { filter: 'labeled-only' })).rows).toEqual([]);
    await expect(rye.trees.label(id, 'nope', 'x')).rejects.toMatchObject({
      code: 'entry_not_found',
    });
    await expect(
      rye.trees.editContext(id, { entry: await entryOf('title') }),
    ).rejects.toMatchObject({ code: 'usage' });
    expect(await intact()).toBe('ok');
  });

  it('is compacted by hand, with instructions', async () => {
    const outcome = await rye.trees.compact(id, { instructions: 'Only numbers.' });
    expect(outcome).toMatchObject({ compacted: true });
    expect(JSON.stringify(server.requests.at(-1)?.body.messages)).toContain('Only numbers.');
    const texts = (await rye.trees.context(id)).messages.map(({ content }) => textOf(content));
    expect(texts[0]).toContain('Do the work.');
    expect(texts[1]).toContain('THE SUMMARY');
    expect(texts.join()).not.toContain('content of a');
    expect(await intact()).toBe('ok');
    expect(await rye.trees.compact(id)).toMatchObject({ compacted: false });
  });

  it('is not compacted for more than its limit has left', async () => {
    const small = directive('small', {
      permissions: '<execute><tool>rye/file-system/*</tool></execute>',
      limits: 'turns="10" spend="0.0125"',
    });
    lab.signed('directives/small.md', small);
    const { thread_id } = await lab.run('small', {
      model: 'claude-opus-5-5',
      provider: 'anthropic',
    });
    const before = server.requests.length;
    await lab
      .rye()
      .trees.compact(thread_id)
      .catch(() => undefined);
    const { thread } = await rye.threads.show(thread_id);
    expect(thread.cost.spend).toBeLessThanOrEqual(0.0125);
    expect(server.requests.length - before).toBeLessThanOrEqual(1);
  });

  it('is not touched when its log was', async () => {
    const file = path.join(lab.project, '.ai/state/threads', id, 'transcript.jsonl');
    writeFileSync(file, readFileSync(file, 'utf8').replace('content of a', 'content of b'));
    const bytes = readFileSync(file);
    await expect(rye.trees.branch(id, { at: 'root' })).rejects.toMatchObject({
      code: 'transcript_tampered',
    });
    expect(readFileSync(file)).toEqual(bytes);
  });
});

describe('an extracted thread', () => {
  it('has the path and its labels, is suspended, and can be resumed', async () => {
    const result = await entryOf('tool_result');
    await rye.trees.label(id, await entryOf('user'), 'kept');
    const source = readFileSync(
      path.join(lab.project, '.ai/state/threads', id, 'transcript.jsonl'),
      'utf8',
    );
    const made = await rye.trees.extract(id, { at: result, threadId: 'work-extract' });
    expect(made).toMatchObject({ thread_id: 'work-extract', status: 'suspended', parent_id: null });
    expect(await kinds('work-extract')).toEqual(['user', 'tool_result*']);
    const { rows } = await rye.trees.view('work-extract', { filter: 'labeled-only' });
    expect(rows.map(({ label }) => label)).toEqual(['kept']);
    expect(await intact('work-extract')).toBe('ok');
    expect(
      readFileSync(path.join(lab.project, '.ai/state/threads', id, 'transcript.jsonl'), 'utf8'),
    ).toBe(source);
    const before = server.requests.length;
    const resumed = await lab.rye().recovery.resume({
      threadId: 'work-extract',
      message: 'Go on, please.',
    });
    expect(resumed).toMatchObject({ success: true, status: 'completed' });
    const sent = JSON.stringify(server.requests[before]?.body.messages);
    expect(sent).toContain('content of a');
    expect(sent).toContain('Go on, please.');
  });

  it('leaves nothing running when its id is taken', async () => {
    await expect(
      rye.trees.extract(id, { at: await entryOf('user'), threadId: id }),
    ).rejects.toMatchObject({ code: 'thread_id_taken' });
    expect(await rye.threads.list({ active: true })).toEqual([]);
  });
});

describe('a replay', () => {
  it('takes every step again, asks no model, runs no tool and writes nothing', async () => {
    const before = server.requests.length;
    writeFileSync(path.join(lab.project, 'a.txt'), 'other content\n');
    const file = path.join(lab.project, '.ai/state/threads', id, 'transcript.jsonl');
    const bytes = readFileSync(file);
    const report = await rye.trees.replay(id);
    expect(report).toMatchObject({ difference: null, answers: 2, steps: report.matched });
    expect(report.matched).toBeGreaterThan(4);
    expect(server.requests.length).toBe(before);
    expect(readFileSync(file)).toEqual(bytes);
    expect(await lab.rye().trees.replay(id)).toEqual(report);
  });

  it('shows the first step that a hook of today would change', async () => {
    lab.signed(
      'config/agent/hooks.yaml',
      'hooks:\n  - id: no_reading\n    event: tool_gate\n    action: {control: fail, error: not today}\n',
    );
    const { difference } = await lab.rye().trees.replay(id);
    expect(difference).toMatchObject({
      path: 'result.outcome',
      recorded: 'ok',
      replayed: 'blocked',
      entry_id: await entryOf('tool_result'),
    });
  });

  it('shows that the directive has changed', async () => {
    lab.signed(
      'directives/work.md',
      directive('work', {
        permissions: '<execute><tool>rye/file-system/*</tool></execute>',
        limits: 'turns="10" spend="1.00"',
        body: 'Do other work.',
      }),
    );
    const { difference } = await lab.rye().trees.replay(id);
    expect(difference).toMatchObject({ path: 'user.text' });
  });

  it('shows that a permission was taken away', async () => {
    lab.signed('directives/work.md', directive('work', { limits: 'turns="10" spend="1.00"' }));
    const { difference } = await lab.rye().trees.replay(id);
    expect(difference).not.toBeNull();
  });

  it('starts after an entry', async () => {
    const from = await entryOf('tool_result');
    const report = await rye.trees.replay(id, { from });
    expect(report).toMatchObject({ difference: null, answers: 1 });
  });

  it('of a compacted run gives the recorded summary', async () => {
    let step = 0;
    await lab.model(({ body }) => {
      if (JSON.stringify(body.system ?? '').includes('You summarize')) return reply('SUMMED UP');
      step += 1;
      if (step > 4) return reply('Done.');
      return {
        ...calls(toolUse(READ, { path: 'a.txt', offset: step }, `toolu_${step}`)),
        usage: { input_tokens: step * 1000, output_tokens: 5 },
      };
    });
    const compacting = lab.rye({
      configOverrides: [
        'coordination.continuation.trigger_threshold=0.0001',
        'coordination.compaction.keep_recent_tokens=10',
      ],
    });
    const { thread_id } = await compacting.threads.execute({
      directiveId: 'work',
      model: 'claude-haiku-5-5',
      provider: 'anthropic',
    });
    const { rows } = await rye.trees.view(thread_id, { filter: 'all' });
    expect(rows.some(({ kind }) => kind === 'compaction')).toBe(true);
    expect((await compacting.trees.replay(thread_id)).difference).toBeNull();
    // with other settings it would not have been compacted
    expect((await rye.trees.replay(thread_id)).difference).not.toBeNull();
  });
});
