import { existsSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Preset } from '../../src/kernel/app/presets.ts';
import {
  completedOrThrow,
  type RunOutcome,
  type RunRequest,
} from '../../src/kernel/app/run-types.ts';
import type { LogEvent, UnknownEvent } from '../../src/kernel/core/events.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';
import { libraryLab } from './library-lab.ts';

const WORK = 'team/work';

describe('a library', () => {
  it('opens without reading or starting anything', async () => {
    const lab = await libraryLab();
    writeFileSync(path.join(lab.project, '.ai/config/mcp.yaml'), 'servers: { broken: 7');
    expect(lab.open().projectPath).toBe(lab.project);
    expect(lab.server.requests).toEqual([]);
  });

  it('refuses a project folder that is missing and creates nothing', async () => {
    const lab = await libraryLab();
    const projectPath = path.join(lab.project, 'nowhere');
    expect(() => lab.open({ projectPath })).toThrow(
      expect.objectContaining({ code: 'file_not_found' }),
    );
    expect(existsSync(projectPath)).toBe(false);
  });

  it('refuses a misspelt handler when it is opened', async () => {
    const lab = await libraryLab();
    const handlers = { tool_gat: () => undefined };
    expect(() => lab.open({ preset: { handlers } as object })).toThrow(
      'unknown handler event "tool_gat"',
    );
  });
});

describe('run', () => {
  // Requirement: end-status-recorded, close-ends-work
  it('resolves with every kind of end', async () => {
    const lab = await libraryLab([
      reply('All done.'),
      { status: 401, error: { type: 'authentication_error', message: 'no' } },
      calls(toolUse('rye_file_system_ls', {}, 'a')),
    ]);
    await lab.directive('work', ['rye/file-system/ls']);
    const rye = lab.open();
    const behavior = { nudge: false };
    const outcomes = [
      await rye.run({ directiveId: WORK, behavior }),
      await rye.run({ directiveId: WORK }),
      await rye.run({ directiveId: WORK, limits: { turns: 1 } }),
      await rye.run({ directiveId: 'team/none' }),
      await rye.run({ directiveId: WORK, handlers: { nope: () => undefined } as object }),
    ];
    expect(outcomes).toMatchObject([
      { kind: 'completed', result: 'All done.', outputs: null },
      { kind: 'failed', error: { code: 'provider_auth' } },
      { kind: 'limit', limit: 'turns', error: { code: 'limit_turns' } },
      { kind: 'failed', threadId: null, thread: null, error: { code: 'item_not_found' } },
      { kind: 'failed', threadId: null, error: { code: 'hook_invalid' } },
    ]);
    expect(outcomes[0]?.thread?.thread_id).toBe(outcomes[0]?.threadId);
  });

  // Requirement: end-reported-once
  it('never rejects, also for a signal that is none and a request that is none', async () => {
    const rye = (await libraryLab()).open();
    for (const request of [
      { directiveId: WORK, signal: 5 },
      { directiveId: WORK, signal: {} },
      null,
    ]) {
      const outcome = await rye.run(request as never);
      expect(outcome).toMatchObject({ kind: 'failed', threadId: null });
      const handle = rye.start(request as never);
      expect(await handle.outcome).toMatchObject({ kind: 'failed' });
      expect(await handle.threadId).toBe(null);
    }
  });

  it('reports the end exactly once on every exit path', async () => {
    const lab = await libraryLab([reply('Done.'), { status: 401 }, 'hang']);
    await lab.directive('work');
    const rye = lab.open();
    const ends: string[] = [];
    const handlers = {
      thread_finished: ({ payload }: { payload: { status: string } }) => {
        ends.push(payload.status);
      },
    };
    await rye.run({ directiveId: WORK, handlers });
    await rye.run({ directiveId: WORK, handlers });
    const run = rye.start({ directiveId: WORK, handlers });
    await lab.server.request(2);
    run.abort();
    await run.outcome;
    await rye.run({ directiveId: WORK, handlers, limits: { turns: 0 } });
    expect(ends).toEqual(['completed', 'error', 'cancelled', 'error']);
  });

  // Requirement: abort-equals-cancel
  it('an abort and an aborted signal end the run alike, with the reason', async () => {
    const lab = await libraryLab(['hang', 'hang']);
    await lab.directive('work');
    const rye = lab.open();
    const run = rye.start({ directiveId: WORK });
    await lab.server.request(0);
    run.abort('changed my mind');
    const controller = new AbortController();
    const byHand = await run.outcome;
    const signalled = rye.run({ directiveId: WORK, signal: controller.signal });
    await lab.server.request(1);
    controller.abort('changed my mind');
    for (const outcome of [byHand, await signalled]) {
      expect(outcome).toMatchObject({
        kind: 'aborted',
        reason: 'changed my mind',
        error: { code: 'cancelled' },
      });
    }
    expect(await rye.run({ directiveId: WORK, signal: controller.signal })).toMatchObject({
      kind: 'aborted',
    });
    expect(lab.server.requests).toHaveLength(2);
  });

  it.each<[string, unknown, string]>([
    ['an error', new Error('the page was closed'), 'the page was closed'],
    ['a timeout', new DOMException('took too long', 'TimeoutError'), 'took too long'],
    ['no reason', undefined, 'aborted'],
    // Requirement: abort-equals-cancel
  ])('keeps the reason of an abort that is %s', async (_, given, reason) => {
    const lab = await libraryLab(['hang']);
    await lab.directive('work');
    const controller = new AbortController();
    const run = lab.open().run({ directiveId: WORK, signal: controller.signal });
    await lab.server.request(0);
    controller.abort(given);
    const outcome = await run;
    expect(outcome).toMatchObject({ kind: 'aborted', reason });
    if (given !== undefined)
      expect(outcome).toMatchObject({
        error: { code: 'cancelled', message: expect.stringContaining(reason) },
      });
  });

  // Requirement: follow-up-extends-run
  it('takes follow-ups in order, one each time the model has finished', async () => {
    const lab = await libraryLab(async ({ index }) => {
      if (index === 1) await run.followUp('One more.');
      return reply(`Answer ${index}.`);
    });
    await lab.directive('work');
    const run = lab.open().start({ directiveId: WORK, followUps: ['Now this.', 'And that.'] });
    expect(await run.outcome).toMatchObject({ kind: 'completed', result: 'Answer 3.' });
    const said = lab.server.requests.map(({ body }) => JSON.stringify(body?.messages.at(-1)));
    const words = ['Now this.', 'And that.', 'One more.'];
    expect(said.map((text) => words.filter((word) => text.includes(word)))).toEqual([
      [],
      ...words.map((word) => [word]),
    ]);
  });

  it('is steered while it is under way', async () => {
    const lab = await libraryLab(async ({ index }) => {
      if (index > 0) return reply('Done.');
      await run.steer('Look twice.');
      return calls(toolUse('rye_file_system_ls', {}, 'a'));
    });
    await lab.directive('work', ['rye/file-system/ls']);
    const run = lab.open().start({ directiveId: WORK });
    expect(await run.outcome).toMatchObject({ kind: 'completed' });
    expect(JSON.stringify(lab.server.requests[1]?.body?.messages)).toContain('Look twice.');
    const none = lab.open().start({ directiveId: 'team/none' });
    expect(await none.followUp('Hello?')).toBeNull();
  });

  // Requirement: abort-throws, match-on-class
  it('throws for those who want it', async () => {
    const lab = await libraryLab([reply('Done.'), { status: 401 }]);
    await lab.directive('work');
    const rye = lab.open();
    expect(completedOrThrow(await rye.run({ directiveId: WORK })).result).toBe('Done.');
    const failed: RunOutcome = await rye.run({ directiveId: WORK });
    expect(() => completedOrThrow(failed)).toThrow(
      expect.objectContaining({ name: 'RyeError', code: 'provider_auth' }),
    );
  });
});

describe('behavior', () => {
  // Requirement: edit-needs-read
  it('behavior reaches the tools', async () => {
    const lab = await libraryLab([
      calls(
        toolUse('rye_file_system_edit', { path: 'a.txt', old_string: 'one', new_string: '1' }, 'a'),
      ),
      calls(toolUse('rye_file_system_read', { path: 'a.txt' }, 'b')),
      calls(toolUse('rye_file_system_read', { path: 'a.txt' }, 'c')),
      calls(
        toolUse('rye_file_system_edit', { path: 'a.txt', old_string: 'one', new_string: '1' }, 'd'),
      ),
      reply('Done.'),
    ]);
    writeFileSync(path.join(lab.project, 'a.txt'), 'one\n');
    await lab.directive('work', ['rye/file-system/*']);
    const results: string[] = [];
    // JavaScript may write it so
    const camelCase = { dedupReads: false } as object;
    const outcome = await lab.open().run({
      directiveId: WORK,
      behavior: { require_read_before_edit: true, read_line_numbers: false, ...camelCase },
      onEvent: (event) => {
        const text = resultOf(event);
        if (text !== undefined) results.push(text);
      },
    });
    expect(outcome.kind).toBe('completed');
    expect(results[0]).toContain('was not edited: it has not been read yet');
    expect(results.slice(1, 3)).toEqual(['one', 'one']);
    expect(results[3]).toContain('1');
  });

  it('does not compile with a member or a risk that is misspelt', () => {
    const request: RunRequest = {
      directiveId: WORK,
      behavior: {
        tool_budgets: { 'rye/bash': { max: 3, on_exceed: 'steer' }, 'rye/search': null },
      },
      acknowledge: ['elevated'],
    };
    // @ts-expect-error: the member is tool_budgets
    const misspelt: RunRequest = { directiveId: WORK, behavior: { tool_budget: 3 } };
    // @ts-expect-error: the value is true or false
    const mistyped: Preset = { behavior: { nudge: 'no' } };
    // @ts-expect-error: the risk is elevated
    const unknownRisk: RunRequest = { directiveId: WORK, acknowledge: ['elevatedd'] };
    expect([request, misspelt, mistyped, unknownRisk]).toHaveLength(4);
  });

  it('refuses an unknown member, and names the member that may be meant', async () => {
    const lab = await libraryLab();
    await lab.directive('work');
    const behavior = { tool_budget: { 'rye/bash': 1 } } as object;
    const misspelt = 'behavior.tool_budget means nothing. Did you mean tool_budgets?';
    const rye = lab.open();
    expect(await rye.run({ directiveId: WORK, behavior })).toMatchObject({
      kind: 'failed',
      threadId: null,
      error: { code: 'usage', message: misspelt },
    });
    await expect(rye.threads.plan({ directiveId: WORK, behavior })).rejects.toThrow(misspelt);
    expect(
      await rye.run({ directiveId: WORK, acknowledge: ['elevatedd' as 'safe'] }),
    ).toMatchObject({
      kind: 'failed',
      error: { code: 'usage', message: '--acknowledge has the unknown risk "elevatedd"' },
    });
  });
});

describe('tools of the program', () => {
  const tool = (changes: object) => ({
    description: 'A tool.',
    inputSchema: { type: 'object' } as const,
    traits: { reads_only: true, timeout_seconds: 1 },
    execute: () => 'done' as const,
    ...changes,
  });

  it.each<[string, object]>([
    ['{"type":"objekt","properties":7}', { type: 'objekt', properties: 7 }],
    ['properties', { type: 'object', properties: 7 }],
    ['properties.n.type', { type: 'object', properties: { n: { type: 'int' } } }],
  ])('are refused with a broken schema: %s', async (_, inputSchema) => {
    const lab = await libraryLab();
    await lab.directive('work', ['shop/price']);
    const tools = { 'shop/price': tool({ inputSchema }) };
    const outcome = await lab.open().run({ directiveId: WORK, tools });
    expect(outcome).toMatchObject({ kind: 'failed', error: { code: 'tool_malformed' } });
    expect(lab.server.requests).toHaveLength(0);
  });

  it('that return a function or never end tell the model so within their time', async () => {
    const lab = await libraryLab([
      calls(toolUse('shop_odd', {}, 'a'), toolUse('shop_deaf', {}, 'b')),
      reply('I see.'),
    ]);
    await lab.directive('work', ['shop/odd', 'shop/deaf']);
    const tools = {
      'shop/odd': tool({ execute: () => () => 'never' }),
      'shop/deaf': tool({ execute: () => new Promise(() => undefined) }),
    };
    const began = performance.now();
    const acknowledge = ['elevated'] as const;
    const outcome = await lab.open().run({ directiveId: WORK, tools, acknowledge });
    expect(outcome).toMatchObject({ kind: 'completed', result: 'I see.' });
    expect(performance.now() - began).toBeLessThan(60_000);
    const told = JSON.stringify(lab.server.requests[1]?.body.messages.at(-1));
    expect(told).toContain('the tool shop/odd returned a function, which is not JSON');
    expect(told).toContain('it ran longer than 1 s and was stopped');
  });
});

function resultOf(event: LogEvent | UnknownEvent): string | undefined {
  const { message } = event.payload as { message?: { role: string; content: { text: string }[] } };
  if (event.event_type !== 'message' || message?.role !== 'tool_result') return undefined;
  return message.content.map(({ text }) => text).join('');
}

describe('handlers', () => {
  // Requirement: parent-refuses-child-call
  it('gates the calls of children too, and sees their events with the depth', async () => {
    const lab = await libraryLab([
      calls(
        toolUse(
          'rye_execute',
          { item_type: 'directive', item_id: 'team/child', parameters: {} },
          'a',
        ),
      ),
      calls(toolUse('rye_file_system_ls', {}, 'b')),
      reply('Child done.'),
      reply('Parent done.'),
    ]);
    await lab.directive('child', ['rye/file-system/ls']);
    await lab.directive('work', ['rye/file-system/ls'], {
      metadata:
        '<permissions><execute><directive>team/child</directive><tool>rye/file-system/ls</tool></execute></permissions>',
    });
    const asked: string[] = [];
    const below: unknown[] = [];
    const outcome = await lab.open().run({
      directiveId: WORK,
      handlers: {
        'child.tool_settled': ({ event_type, payload, depth, thread_id }) => {
          const { tool, outcome: end } = payload;
          below.push([event_type, thread_id.split('-')[0], tool, end, depth]);
        },
        tool_gate: ({ tool, thread_id }) => {
          asked.push(`${thread_id.split('-')[0] ?? ''} ${tool}`);
          return tool === 'rye/file-system/ls' ? { block: 'not for children' } : undefined;
        },
      },
    });
    expect(outcome).toMatchObject({ kind: 'completed' });
    expect(asked).toEqual(['team/work rye/execute', 'team/child rye/file-system/ls']);
    expect(below).toEqual([
      ['child.tool_settled', 'team/child', 'rye/file-system/ls', 'blocked', 1],
    ]);
    expect(JSON.stringify(lab.server.requests[2]?.body?.messages.at(-1))).toContain(
      'Blocked: not for children',
    );
  });

  // Requirement: last-writer-wins
  it('a subscriber that throws is dropped, and the run continues', async () => {
    const lab = await libraryLab([reply('Done.')]);
    await lab.directive('work');
    let told = 0;
    const outcome = await lab.open().run({
      directiveId: WORK,
      behavior: { nudge: false },
      onEvent: () => {
        told += 1;
        throw new Error('broken');
      },
    });
    expect(outcome.kind).toBe('completed');
    expect(told).toBe(1);
  });

  it('that observe change nothing when they fail, and are reported once', async () => {
    const lab = await libraryLab([reply('Done.')]);
    await lab.directive('work');
    const notices: string[] = [];
    const rye = lab.open({ onNotice: (notice) => notices.push(notice) });
    const seen: string[] = [];
    const outcome = await rye.run({
      directiveId: WORK,
      handlers: {
        event: [
          () => {
            throw new Error('broken');
          },
          ({ event_type }) => {
            seen.push(event_type);
          },
        ],
      },
    });
    expect(outcome.kind).toBe('completed');
    expect(seen).toContain('thread_finished');
    expect(notices.filter((notice) => notice.includes('turn_started'))).toEqual([
      'a handler of turn_started failed: broken',
    ]);
  });
});
