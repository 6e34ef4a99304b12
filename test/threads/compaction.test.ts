import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { LogEvent, UnknownEvent } from '../../src/kernel/core/events.ts';
import { foldContext } from '../../src/kernel/log/context.ts';
import { buildTree, isKnown } from '../../src/kernel/log/tree.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { type RunningCli, startCli } from '../faults/world.ts';
import {
  calls,
  reply,
  toolUse,
  type WireBody,
  type WireRequest,
  type WireScript,
  type WireTurn,
} from '../helpers/wire-server.ts';

const READ = 'rye_file_system_read';
const SMALL = [
  'coordination.continuation.trigger_threshold=0.05',
  'coordination.compaction.keep_recent_tokens=300',
];

const IMPATIENT = ['resilience.retry.stall_seconds=0.3', 'resilience.retry.max_retries=0'];

const FILES = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];

let lab: Lab;

beforeEach(async () => {
  lab = await openLab();
  for (const name of FILES) {
    writeFileSync(
      path.join(lab.project, `${name}.txt`),
      `${name} says ${name.repeat(70)}\n`.repeat(100),
    );
  }
});

afterEach(async () => await lab.remove());

function isSummary({ system }: WireBody): boolean {
  return JSON.stringify(system ?? '').includes('You summarize part of the record');
}

/** Texts of a request, in order. */
function textOfBody({ messages }: WireBody): string {
  return JSON.stringify(messages);
}

async function work(
  script: WireScript,
  {
    hooks = '',
    config = SMALL,
    tools = '',
    spend = '1.00',
  }: { hooks?: string; config?: readonly string[]; tools?: string; spend?: string } = {},
) {
  const server = await lab.model(script);
  if (hooks !== '') lab.signed('config/agent/hooks.yaml', hooks);
  lab.signed(
    'directives/work.md',
    directive('work', {
      permissions: `<execute><tool>rye/file-system/*</tool>${tools}</execute>`,
      limits: `turns="10" spend="${spend}"`,
    }),
  );
  const rye = lab.rye({ configOverrides: config });
  const result = await rye.threads.execute({
    directiveId: 'work',
    model: 'claude-haiku-5-5',
    provider: 'anthropic',
  });
  return { server, result, rye, events: await lab.events(result.thread_id) };
}

/** Reads files in turn, summarizes on request, and ends. */
function reader(
  summaries: readonly WireTurn[],
  files = ['a', 'b', 'c', 'd'],
): (request: WireRequest) => WireTurn {
  let step = 0;
  let summary = 0;
  return ({ body }) => {
    if (isSummary(body)) {
      summary += 1;
      return summaries[Math.min(summary, summaries.length) - 1] ?? reply('summary');
    }
    const file = files[step];
    step += 1;
    const answer =
      file === undefined
        ? reply('All read.')
        : calls(toolUse(READ, { path: `${file}.txt` }, `toolu_${step}`));
    return { ...answer, usage: usageOf(body) };
  };
}

/** As the API counts: tokens of the whole request. */
function usageOf(body: WireBody) {
  return { input_tokens: Math.ceil(JSON.stringify(body).length / 4), output_tokens: 10 };
}

/** Reads a file. */
const READING = (file: string): Extract<WireTurn, { steps: unknown }> =>
  calls(toolUse(READ, { path: `${file}.txt` }, `toolu_${file}`));

function only(events: readonly (LogEvent | UnknownEvent)[], type: string) {
  return events.filter(({ event_type }) => event_type === type);
}

describe('a running thread whose context fills', () => {
  it('is compacted and continues; the next request is the fold of its log', async () => {
    const { server, result, events } = await work(reader([reply('## Goal\nRead all files.')]));
    expect(result.status).toBe('completed');
    const compactions = only(events, 'compaction');
    expect(compactions.length).toBeGreaterThan(0);
    const at = server.requests.findIndex(({ body }) => isSummary(body));
    const after = textOfBody(server.requests[at + 1]?.body as WireBody);
    expect(after).toContain('Read all files.');
    // the task stays in full, the summarized part is gone
    expect(after).toContain('Do the work.');
    expect(after).not.toContain('a says aaaa');
    const folded = foldContext(buildTree(events));
    const texts = JSON.stringify(folded.messages);
    expect(texts).not.toContain('a says aaaa');
  });

  it('carries files and the previous summary into each next summary', async () => {
    const { server, events } = await work(
      reader([reply('SUMMARY ONE'), reply('SUMMARY TWO'), reply('SUMMARY THREE')], FILES),
    );
    const compactions = only(events, 'compaction');
    expect(compactions.length).toBeGreaterThan(2);
    const asked = server.requests.filter(({ body }) => isSummary(body)).map(({ body }) => body);
    expect(textOfBody(asked[1] as WireBody)).toContain('SUMMARY ONE');
    expect(textOfBody(asked[2] as WireBody)).toContain('SUMMARY TWO');
    const files = compactions.map(
      ({ payload }) => (payload as { details: { read_files: string[] } }).details.read_files,
    );
    expect(files[0]).toEqual(['a.txt']);
    expect(files[2]).toEqual(expect.arrayContaining(['a.txt', 'b.txt', 'c.txt']));
  });

  it('summarizes next what the last compaction kept', async () => {
    const { server, events } = await work(reader([reply('ONE'), reply('TWO')], FILES));
    const asked = server.requests.filter(({ body }) => isSummary(body)).map(({ body }) => body);
    const [first] = only(events, 'compaction').map(
      ({ payload }) => (payload as { first_kept_entry_id: string }).first_kept_entry_id,
    );
    const kept = events.findIndex((event) => event.id === first);
    const file = /([a-h])\.txt/.exec(JSON.stringify(events.slice(kept, kept + 3)))?.[1] ?? '';
    expect(file).not.toBe('');
    expect(textOfBody(asked[0] as WireBody)).not.toContain(`${file} says`);
    expect(textOfBody(asked[1] as WireBody)).toContain(`${file} says`);
  });

  it('cuts no call from its result, and gives a summary 2,000 characters of each result', async () => {
    const { server, events } = await work(reader([reply('SHORT')], FILES));
    const kept = only(events, 'compaction').map(({ payload }) => {
      const { first_kept_entry_id: id } = payload as { first_kept_entry_id: string };
      const entry = events.find((event) => event.id === id);
      return (entry?.payload as { message?: { role: string } } | undefined)?.message?.role;
    });
    expect(kept.length).toBeGreaterThan(1);
    expect(kept).not.toContain('tool_result');
    const asked = server.requests.find(({ body }) => isSummary(body))?.body as WireBody;
    const lines = textOfBody(asked).match(/a says a+/g) ?? [];
    expect(lines.join('\n').length).toBeGreaterThan(1500);
    expect(lines.join('\n').length).toBeLessThanOrEqual(2000);
  });

  it('splits a long turn: its first part is summarized by a second request, and both are joined', async () => {
    const answers = [reply('First.'), ...['b', 'c', 'd'].map(READING)];
    let step = 0;
    const { rye, result, server } = await work(({ body }) => {
      if (isSummary(body)) return reply(textOfBody(body).includes('b.txt') ? 'PART' : 'WHOLE');
      step += 1;
      return { ...(answers[step - 1] ?? reply('Done.')), usage: usageOf(body) };
    });
    const before = server.requests.length;
    await rye.recovery.resume({ threadId: result.thread_id, message: 'And the others?' });
    const later = server.requests.slice(before).filter(({ body }) => isSummary(body));
    expect(later.length).toBeGreaterThan(1);
    const summaries = only(await lab.events(result.thread_id), 'compaction').map(({ payload }) =>
      JSON.stringify(payload),
    );
    expect(summaries.some((text) => text.includes('WHOLE') && text.includes('PART'))).toBe(true);
  });

  it('books what the summary costs', async () => {
    const usage = { input_tokens: 5000, output_tokens: 100 };
    const { result, events } = await work(reader([reply('SUMMARY', usage)], ['a', 'b', 'c']));
    const [compaction] = only(events, 'compaction');
    const cost = events.find(
      ({ event_type, seq }) => event_type === 'cost' && seq > (compaction?.seq ?? 0),
    );
    expect(cost?.payload).toMatchObject({ usage: { input_tokens: 5000, output_tokens: 100 } });
    expect(result.cost.input_tokens).toBeGreaterThanOrEqual(5000);
  });

  it.each([
    ['is cut off', { ...reply('half a sum'), stop_reason: 'max_tokens' }],
    ['calls a tool', calls(toolUse(READ, { path: 'a.txt' }, 'toolu_s'))],
    ['is empty', reply('')],
    ['fails', { status: 400, error: { type: 'invalid_request_error', message: 'no' } }],
    ['never ends', { steps: [{ kind: 'wait', until: new Promise(() => {}) }] }],
  ] satisfies [string, WireTurn][])(
    'continues unchanged when the summary %s',
    async (_name, answer) => {
      const { result, events, server } = await work(reader([answer], ['a', 'b']), {
        config: [...SMALL, ...IMPATIENT],
      });
      expect(result.status).toBe('completed');
      expect(only(events, 'compaction')).toEqual([]);
      expect(JSON.stringify(only(events, 'note'))).toContain('was not compacted');
      expect(textOfBody(server.requests.at(-1)?.body as WireBody)).toContain('a says aaaa');
    },
  );

  it('is compacted once when the provider rejects the context as too long', async () => {
    let refused = 0;
    let step = 0;
    const script: WireScript = ({ body }) => {
      if (isSummary(body)) return reply('SHORT');
      step += 1;
      if (step === 1) return calls(toolUse(READ, { path: 'a.txt' }, 'toolu_1'));
      if (step === 2) return calls(toolUse(READ, { path: 'b.txt' }, 'toolu_2'));
      if (!textOfBody(body).includes('SHORT')) {
        refused += 1;
        const message = 'prompt is too long: 250000 tokens > 200000 maximum';
        return { status: 400, error: { type: 'invalid_request_error', message } };
      }
      return reply('Done.');
    };
    const { result, events } = await work(script, { config: [] });
    expect(result.status).toBe('completed');
    expect(refused).toBe(1);
    expect(only(events, 'compaction')[0]?.payload).toMatchObject({
      details: { reason: 'context_exceeded' },
    });
  });
});

describe('a summary that is broken off', () => {
  const DIRECTIVE = directive('work', {
    permissions: '<execute><tool>rye/file-system/*</tool></execute>',
    limits: 'turns="10" spend="1.00"',
  });
  const MODEL = ['--model', 'claude-haiku-5-5', '--provider', 'anthropic'];

  it('by a cancel is not in the log, and the thread can be resumed as it was', async () => {
    const other = lab.rye();
    const read = reader([], ['a', 'b']);
    const { result, events, rye } = await work(async (request) => {
      if (!isSummary(request.body)) return read(request);
      const [running] = await other.threads.list({ active: true });
      await other.children.cancel(running?.thread_id ?? '', { reason: 'enough' });
      return { steps: [{ kind: 'wait', until: new Promise(() => {}) }] };
    });
    expect(result.status).toBe('cancelled');
    expect(only(events, 'compaction')).toEqual([]);
    expect((await rye.threads.verify(result.thread_id)).ok).toBe(true);
    const resumed = await lab.rye().recovery.resume({ threadId: result.thread_id, message: 'On.' });
    expect(resumed).toMatchObject({ status: 'completed', result: 'All read.' });
  });

  it('by SIGKILL is not in the log; the thread continues with its whole conversation, by hand too', async () => {
    let running: RunningCli | undefined;
    const read = reader([], ['a', 'b']);
    const server = await lab.model(async (request) => {
      if (!isSummary(request.body)) return read(request);
      if (!running) return reply('SUMMARY');
      running.child.kill('SIGKILL');
      await running.done;
      return reply('NEVER');
    });
    lab.signed('directives/work.md', DIRECTIVE);
    const start = async (...args: readonly string[]) => {
      running = await startCli(lab, args);
      await running.done;
      running = undefined;
    };
    await start(
      'run',
      'work',
      '--thread-id',
      't',
      ...MODEL,
      ...SMALL.flatMap((one) => ['-c', one]),
    );
    const broken = await lab.events('t');
    expect(broken.at(-1)?.event_type).not.toBe('thread_finished');
    const rye = lab.rye();
    const { thread_id: id, status } = await rye.recovery.resume({ threadId: 't', message: 'On.' });
    expect(status).toBe('completed');
    expect(textOfBody(server.requests.at(-1)?.body as WireBody)).toContain('a says aaaa');
    const before = await lab.events(id);
    expect(only(before, 'compaction')).toEqual([]);

    await start('threads', 'compact', id);
    expect(await lab.events(id)).toEqual(before);
    expect((await rye.threads.verify(id)).ok).toBe(true);
    expect(await rye.trees.compact(id)).toMatchObject({ compacted: true });
  });

  it('is not begun where it might cost more than is left', async () => {
    const { rye, result, server } = await work(reader([reply('NEVER')]), {
      config: [],
      spend: '0.008',
    });
    const id = result.thread_id;
    const { trees } = rye;
    // one summary by this model costs more than the thread may still spend
    await trees.changeModel(id, { model: 'claude-fable-5-1', provider: 'anthropic' });
    const before = await lab.events(id);
    const asked = server.requests.length;
    await expect(trees.compact(id)).rejects.toMatchObject({ code: 'budget_insufficient' });
    expect(server.requests).toHaveLength(asked);
    expect(await lab.events(id)).toEqual(before);
  });
});

describe('before_compact hooks', () => {
  const hook = (action: string): string =>
    `hooks:\n  - id: mine\n    event: before_compact\n    ${action}\n`;

  it('cancel', async () => {
    const { result, events, server } = await work(reader([reply('NEVER')], ['a', 'b']), {
      hooks: hook('action: {control: abort}'),
    });
    expect(result.status).toBe('completed');
    expect(only(events, 'compaction')).toEqual([]);
    expect(server.requests.some(({ body }) => isSummary(body))).toBe(false);
    expect(JSON.stringify(only(events, 'note'))).toContain('hook mine decided abort');
    const fired = only(events, 'hook_fired').map(({ payload }) => payload);
    expect(fired).toContainEqual(expect.objectContaining({ id: 'mine' }));
  });

  it('instruct', async () => {
    const { server } = await work(reader([reply('S')], ['a', 'b']), {
      hooks: hook('action: {inject: "Keep every letter a."}'),
    });
    const asked = server.requests.find(({ body }) => isSummary(body))?.body as WireBody;
    expect(textOfBody(asked)).toContain('Keep every letter a.');
  });

  const TOOL = [
    '// rye:tool',
    '// description: Gives the compaction that it is told to give.',
    '// traits: {risk: safe}',
    '// input_schema: {type: object, properties: {give: {type: string}, cuts: {type: array}}}',
    '// /rye:tool',
    "import { readFileSync } from 'node:fs';",
    "const { give, cuts } = JSON.parse(readFileSync(0, 'utf8'));",
    "const compaction = give === 'cuts' ? { summary: cuts.join() } : JSON.parse(give);",
    'process.stdout.write(JSON.stringify({ compaction }));',
    '',
  ].join('\n');
  const replacing = (give: string): string =>
    hook(
      `action: {primary: execute, item_type: tool, item_id: my/give, params: {give: '${give}', cuts: "\${cut_points}"}}`,
    );

  it('replace the summary', async () => {
    lab.signed('tools/my/give.mjs', TOOL);
    const { events, server, result } = await work(reader([reply('NEVER')], ['a', 'b']), {
      hooks: replacing('{"summary":"MINE","details":{"version":2}}'),
      tools: '<tool>my/give</tool>',
    });
    expect(result.status).toBe('completed');
    const fired = only(events, 'hook_fired').map(({ payload }) => payload);
    expect(fired).toContainEqual(expect.objectContaining({ id: 'mine' }));
    expect(only(events, 'compaction')[0]?.payload).toMatchObject({
      summary: 'MINE',
      details: { from_hook: true, version: 2, read_files: ['a.txt'] },
    });
    expect(server.requests.some(({ body }) => isSummary(body))).toBe(false);
  });

  it('stop the compaction of a running thread, and not the thread, with a cut that is none', async () => {
    lab.signed('tools/my/give.mjs', TOOL);
    const { events, result } = await work(reader([reply('NEVER')], ['a', 'b']), {
      hooks: replacing('{"summary":"MINE","first_kept_entry_id":"ffffffffffffffff"}'),
      tools: '<tool>my/give</tool>',
    });
    expect(result.status).toBe('completed');
    expect(only(events, 'compaction')).toEqual([]);
    expect(JSON.stringify(only(events, 'note'))).toContain(
      "hook mine chose the first kept entry ffffffffffffffff, where the context can't be cut",
    );
  });

  it('give each tool that they run an id that is unique in the log, over runs and edits', async () => {
    lab.signed('tools/my/give.mjs', TOOL);
    const { rye, result } = await work(reader([reply('NEVER')], ['a', 'b']), {
      hooks: replacing('{"summary":"MINE","first_kept_entry_id":"ffffffffffffffff"}'),
      tools: '<tool>my/give</tool>',
    });
    const { thread_id: id } = result;
    const idsOf = async () =>
      (await lab.events(id)).flatMap((event) =>
        isKnown(event, 'tool_call_start') && event.payload.call_id.startsWith('hook')
          ? [event.payload.call_id]
          : [],
      );
    const inRun = await idsOf();
    expect(inRun).toContain('hook-1');
    const edit = async () => await Promise.allSettled([rye.trees.compact(id)]);
    await edit();
    await edit();
    expect(await rye.recovery.resume({ threadId: id, message: 'Go on.' })).toMatchObject({
      status: 'completed',
    });
    await edit();
    const ids = await idsOf();
    expect(ids.length).toBeGreaterThanOrEqual(inRun.length + 3);
    expect(ids).toEqual([...new Set(ids)]);
    expect((await rye.threads.verify(id)).ok).toBe(true);
  });

  it('choose what stays in full, among the entries that they are given', async () => {
    lab.signed('tools/my/give.mjs', TOOL);
    const { rye, result, server } = await work(reader([reply('OF THE MODEL')]), {
      hooks: replacing('${instructions}').replaceAll("'", '"'),
      tools: '<tool>my/give</tool>',
      config: [],
    });
    const { trees } = rye;
    const id = result.thread_id;
    const give = async (compaction: unknown) =>
      await trees.compact(id, { instructions: JSON.stringify(compaction) });
    const leaf = (await trees.view(id)).leaf_id ?? '';
    const [aside] = (await trees.branch(id, { at: 'root', message: 'Aside.' })).slice(-1);
    await trees.branch(id, { at: leaf });
    const { rows } = await trees.view(id, { filter: 'all' });
    const idsOf = (kind: string) =>
      rows.filter((row) => row.kind === kind && row.active).map(({ entry }) => entry.id);
    const answers = idsOf('assistant');
    expect(answers).toHaveLength(5);

    const before = await trees.context(id);
    const refused: readonly [unknown, string][] = [
      [{ summary: 'S', first_kept_entry_id: 'ffffffffffffffff' }, "can't be cut"],
      // on another branch; a result without its call; nothing would be summarized
      [{ summary: 'S', first_kept_entry_id: aside?.id }, "can't be cut"],
      [{ summary: 'S', first_kept_entry_id: idsOf('tool_result')[1] }, "can't be cut"],
      [{ summary: 'S', first_kept_entry_id: answers[0] }, "can't be cut"],
      [{ summary: 'S', first_kept_entry_id: 7 }, 'that is not an entry id'],
      [{ summary: ' ' }, 'a summary that is not a text'],
      [{ summary: 'S', details: [] }, 'details that are no object'],
      [{ details: {} }, 'neither a summary nor'],
      [{ summery: 'S' }, 'an unknown member "summery"'],
      ['S', 'is not an object'],
    ];
    for (const [wrong, message] of refused) {
      await expect(give(wrong)).rejects.toMatchObject({
        code: 'hook_failed',
        message: expect.stringContaining(message),
      });
    }
    expect(await trees.context(id)).toEqual(before);

    // one more stays than the sizes would keep
    await give({ summary: 'MINE', first_kept_entry_id: answers[2] });
    const after = await trees.context(id);
    expect(after.sources.slice(2)).toEqual(before.sources.slice(5));
    expect(JSON.stringify(after.messages[1])).toContain('MINE');
    await expect(give({ first_kept_entry_id: answers[1] })).rejects.toMatchObject({
      code: 'hook_failed',
    });
    // with a cut alone the model summarizes
    expect(server.requests.some(({ body }) => isSummary(body))).toBe(false);
    await give({ first_kept_entry_id: answers[4] });
    const last = await trees.context(id);
    expect(JSON.stringify(last.messages[1])).toContain('OF THE MODEL');
    expect(last.sources.slice(2)).toEqual([answers[4]]);
    expect((await rye.threads.verify(id)).ok).toBe(true);
  });
});
