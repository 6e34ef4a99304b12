import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { type Lab, openLab } from '../attacks/lab.ts';
import { runCli } from '../helpers/run-cli.ts';
import { reply } from '../helpers/wire-server.ts';

const MODEL = { provider: 'anthropic', model: 'claude-haiku-5-5', api: 'anthropic-messages' };

interface Facts {
  readonly at?: string;
  readonly usage?: object;
}

let count = 0;
let parentId: string | null = null;

/** One more entry of a linear session. */
function entry(value: object, { at = '2025-11-20T10:00:00.000Z' }: Facts = {}): string {
  count += 1;
  const id = `p${count}`;
  const line = JSON.stringify({ type: 'message', id, parentId, timestamp: at, ...value });
  parentId = id;
  return line;
}

const asked = (text: string, facts?: Facts) =>
  entry({ message: { role: 'user', content: text } }, facts);

const answered = (content: string | object, { usage, ...facts }: Facts = {}) => {
  const block = typeof content === 'string' ? { type: 'text', text: content } : content;
  const message = { role: 'assistant', content: [block], ...MODEL, stopReason: 'stop', usage };
  return entry({ message }, facts);
};

const usageOf = (input: number, total: number) => ({
  input,
  output: 5,
  cacheRead: 100,
  cacheWrite: 20,
  totalTokens: input + 125,
  cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total },
});

async function lab(): Promise<Lab> {
  const made = await openLab();
  onTestFinished(async () => await made.remove());
  return made;
}

/** Imports a session with these lines below a header. */
async function imported(here: Lab, lines: () => readonly string[]): Promise<string> {
  count = 0;
  parentId = null;
  const timestamp = '2025-11-20T09:59:00.000Z';
  const header = { type: 'session', version: 3, id: 's-1', timestamp, cwd: '/w' };
  const file = path.join(here.project, 'session.jsonl');
  writeFileSync(file, [JSON.stringify(header), ...lines(), ''].join('\n'));
  const { thread } = await here.rye().trees.importSession({ path: file });
  return thread.thread_id;
}

const priced = () => [
  asked('Where is the zebra?', { at: '2025-11-20T10:00:00.000Z' }),
  answered('In the zoo.', { at: '2025-11-20T10:00:07.000Z', usage: usageOf(10, 0.25) }),
  entry({ type: 'session_info', name: 'The zebra' }, { at: '2025-11-20T10:00:08.000Z' }),
  asked('Sure?', { at: '2025-11-21T08:00:00.000Z' }),
  answered('Yes.', { at: '2025-11-21T08:00:05.000Z', usage: usageOf(30, 0.5) }),
];

it('shows the times of the session, not the times of the import', async () => {
  const here = await lab();
  const id = await imported(here, priced);
  const { exports } = here.rye();
  const html = [...(await exports.export(id, { format: 'html' })).chunks].join('');
  expect(html).toContain('<time datetime="2025-11-20T10:00:07.000Z"');
  expect(html).toContain('<dd>2025-11-20T09:59:00.000Z</dd>');
  expect(html).toContain('<dd>2025-11-21T08:00:05.000Z</dd>');
  const markdown = [...(await exports.export(id, { format: 'md' })).chunks].join('');
  expect(markdown).toContain('## Turn 2\n\n*Time:* `2025-11-21T08:00:05.000Z`\n\n> Yes.');
  expect(markdown).toContain('started_at: 2025-11-20T09:59:00.000Z');
  const redacted = await exports.export(id, { format: 'html', redact: true });
  expect([...redacted.chunks].join('')).toContain('2025-11-20T10:00:07.000Z');
  const { rows } = await here.rye().trees.view(id, { search: 'zoo' });
  expect(rows.map(({ entry: { timestamp } }) => timestamp.slice(0, 4))).not.toEqual(['2025']);
  const listed = await runCli(['threads', 'entries', id, '--search', 'zoo', '--json'], {
    cwd: here.project,
    env: here.env,
  });
  expect(JSON.parse(listed.stdout).entries).toMatchObject([
    { timestamp: '2025-11-20T10:00:07.000Z' },
  ]);
});

it('has the totals of the session, which do not count as spent by rye', async () => {
  const here = await lab();
  await here.model([reply('Still there.')]);
  const id = await imported(here, priced);
  const cost = {
    turns: 2,
    input_tokens: 40,
    output_tokens: 10,
    cache_read_tokens: 200,
    cache_write_tokens: 40,
    spend: 0.75,
  };
  const { document, thread } = await here.rye().threads.show(id);
  expect(document?.imported_from).toMatchObject({ title: 'The zebra', cost });
  expect(thread.cost).toMatchObject({ turns: 0, spend: 0 });
  const html = [...(await here.rye().exports.export(id, { format: 'html' })).chunks].join('');
  expect(html).toContain('<h1>The zebra</h1>');
  expect(html).toContain('<b>2</b> turns');
  expect(html).toContain('<b>$0.7500</b> spent');
  expect(html).toContain('30 in · 5 out · 100 cache read · 20 cache write · $0.5000');
  const shown = await runCli(['threads', 'show', id], { cwd: here.project, env: here.env });
  expect(shown.stdout).toMatch(
    /^imported {4}pi session session\.jsonl \(The zebra\), 2025-11-20T09:59:00\.000Z to 2025-11-21T08:00:05\.000Z, 2 turns, 290 tokens, \$0\.7500$/m,
  );
  const resumed = await here.rye().recovery.resume({ threadId: id, message: 'And now?' });
  expect(resumed).toMatchObject({ status: 'completed', cost: { turns: 1 } });
  expect(resumed.cost.spend).toBeLessThan(0.1);
});

const SAID = '---\ncondition: QQ\n---\nDo not say QQ.\n';
const ALWAYS = '---\nalwaysApply: true\n---\nAnswer in French.\n';

it('is watched by the rules in force when it is resumed, and told those that always apply', async () => {
  const here = await lab();
  const { requests } = await here.model([reply('QQ says'), reply('Fine.'), reply('Again.')]);
  const id = await imported(here, priced);
  here.signed('rules/team/no-qq.md', SAID);
  here.signed('rules/team/french.md', ALWAYS);
  here.signed('~/rules/mine.md', SAID.replaceAll('QQ', 'ZZ'));
  const resumed = await here.rye().recovery.resume({ threadId: id, message: 'And now?' });
  expect(resumed).toMatchObject({ status: 'completed', result: 'Fine.' });
  expect(requests).toHaveLength(2);
  const [first, second] = requests.map(({ body }) => body);
  expect(JSON.stringify(first?.system)).toContain('Answer in French.');
  expect(JSON.stringify(second?.system)).toBe(JSON.stringify(first?.system));
  expect(JSON.stringify(second?.messages)).toContain('Do not say QQ.');
  expect(JSON.stringify(second?.messages)).not.toContain('QQ says');
  const events = await here.events(resumed.thread_id);
  const matched = events.filter(({ event_type: type }) => type === 'rule_matched');
  expect(matched).toMatchObject([{ payload: { rule: 'no-qq', interrupted: true } }]);
  const { settings, system } = await here.rye().trees.context(resumed.thread_id);
  expect(settings.model).toMatchObject({ model: 'claude-haiku-5-5' });
  // what was sent is recorded once, and a later resume sends the same
  expect(system.split('Answer in French.')).toHaveLength(2);
  await here.rye().recovery.resume({ threadId: id, message: 'Once more.' });
  expect(JSON.stringify(requests[2]?.body.system)).toBe(JSON.stringify(first?.system));
  expect((await here.rye().threads.verify(resumed.thread_id)).ok).toBe(true);
});

// Requirement: imports-are-marked
it('verifies as imported, also after a resume, and is listed so', async () => {
  const here = await lab();
  await here.model([reply('Sure.')]);
  const id = await imported(here, priced);
  const cli = async (...args: readonly string[]) =>
    await runCli(args, { cwd: here.project, env: here.env });
  const verified = await cli('verify', 'thread', id);
  expect(verified.code).toBe(0);
  expect(verified.stdout).toContain('origin (imported, not vouched for)');
  expect(JSON.parse((await cli('verify', 'thread', id, '--json')).stdout)).toMatchObject({
    success: true,
    imported: true,
  });
  expect((await cli('threads', 'list')).stdout).toContain('(imported)');
  await here.rye().recovery.resume({ threadId: id, message: 'And now?' });
  const after = JSON.parse((await cli('verify', 'thread', id, '--json')).stdout) as object;
  expect(after).toMatchObject({ success: true, imported: true });
  const branched = await cli('threads', 'fork', id, '--json');
  const fork = (JSON.parse(branched.stdout) as { thread_id?: string }).thread_id ?? '';
  expect((await cli('verify', 'thread', fork)).stdout).toContain('not vouched for');
});

it('is watched by no rule that is not signed', async () => {
  const here = await lab();
  await here.model([reply('QQ says')]);
  const id = await imported(here, priced);
  here.write('rules/team/no-qq.md', SAID);
  const resumed = await here.rye().recovery.resume({ threadId: id, message: 'And now?' });
  expect(resumed.result).toBe('QQ says');
});

const tool = (name: string, args: object) => [
  answered({ type: 'toolCall', id: `c${count}`, name, arguments: args }),
  entry({
    message: {
      role: 'toolResult',
      toolCallId: `c${count - 1}`,
      toolName: name,
      content: [{ type: 'text', text: 'x'.repeat(400) }],
      isError: false,
    },
  }),
];

it('counts the files of the session in its next compaction', async () => {
  const here = await lab();
  await here.model([reply('Summary.')]);
  const id = await imported(here, () => [
    asked('Begin.'),
    ...tool('read', { path: 'old.txt' }),
    entry({
      type: 'compaction',
      summary: 'Earlier.',
      firstKeptEntryId: 'p1',
      tokensBefore: 900,
      details: { readFiles: ['seen.txt'], modifiedFiles: ['made.txt'] },
    }),
    ...tool('read', { path: 'a.txt' }),
    ...tool('bash', { command: 'ls' }),
    ...tool('edit', { path: 'b.txt', oldText: 'x', newText: 'y' }),
    ...tool('write', { path: 'c.txt', content: 'x' }),
    asked(`Go on. ${'y'.repeat(4000)}`),
    answered('Done.'),
  ]);
  await here.rye().trees.compact(id, {});
  const { rows } = await here.rye().trees.view(id, { filter: 'all' });
  const details = rows.flatMap(({ entry: { event_type: type, payload } }) =>
    type === 'compaction' ? [{ ...(payload as { details?: object }).details }] : [],
  );
  expect(details.at(-1)).toMatchObject({
    read_files: ['a.txt', 'old.txt', 'seen.txt'],
    changed_files: ['b.txt', 'c.txt', 'made.txt'],
  });
  const lines = [...(await here.rye().exports.export(id, { format: 'pi' })).chunks].join('');
  const exported = lines
    .split('\n')
    .flatMap((line) => (line.includes('"type":"compaction"') ? [JSON.parse(line)] : []));
  expect(exported.at(-1)).toMatchObject({
    details: {
      readFiles: ['a.txt', 'old.txt', 'seen.txt'],
      modifiedFiles: ['b.txt', 'c.txt', 'made.txt'],
    },
  });
  expect(exported.at(-1)).not.toHaveProperty('fromHook');
});
