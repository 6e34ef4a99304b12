import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { reply, startWireServer } from '../helpers/wire-server.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const NOTE = `# Note

\`\`\`xml
<directive name="note" version="1.0.0"><metadata><description>Notes.</description><category></category><author>me</author>
<limits turns="9" spend="0.90"/></metadata><inputs><input name="who">Who.</input></inputs></directive>
\`\`\`

Note {input:who}.
`;

/** A project with the finished thread `t` of a directive that asks a model, and the environment of that model. */
async function project(): Promise<{
  readonly here: Workspace;
  readonly env: Readonly<Record<string, string>>;
}> {
  const here = await workspace();
  const server = await startWireServer(() => reply('Noted.'));
  onTestFinished(() => server.close());
  writeFileSync(path.join(here.project, '.ai/directives/note.md'), NOTE);
  await here.rye(['sign', 'directive', 'note']);
  const env = { ANTHROPIC_API_KEY: 'sk-ant-x', ANTHROPIC_BASE_URL: server.url };
  expect((await here.rye(['run', 'note', '--thread-id', 't'], { env })).code).toBe(0);
  return { here, env };
}

/** Options of `rye run`, each with the part of the plan that has it. */
const OF_PLAN: readonly (readonly [readonly string[], string, unknown])[] = [
  [['--input', 'who=Ada'], 'inputs.who', 'Ada'],
  [['--model', 'claude-haiku-4-5'], 'model.id', 'claude-haiku-4-5'],
  [['--provider', 'anthropic'], 'model.provider', 'anthropic'],
  [['--limit', 'tokens=5000'], 'limits.tokens', 5000],
  [['--max-turns', '3'], 'limits.turns', 3],
  [['--max-budget-usd', '0.25'], 'limits.spend', 0.25],
  [['--label', 'A note'], 'label', 'A note'],
  [['--json-schema', '{"type":"object"}'], 'behavior.schema.type', 'object'],
];
const ALL = OF_PLAN.flatMap(([option]) => option);

function facts(plan: unknown): readonly unknown[] {
  return OF_PLAN.map(([, place]) => {
    const found = place.split('.').reduce<unknown>((value, member) => {
      return (value as Record<string, unknown> | undefined)?.[member];
    }, plan);
    return [place, found];
  });
}

it('an option of a run holds in the foreground, the background and a dry run', async () => {
  const { here, env } = await project();
  const expected = OF_PLAN.map(([, place, value]) => [place, value]);
  const planOf = (id: string): unknown =>
    JSON.parse(readFileSync(path.join(here.project, `.ai/state/threads/${id}/plan.json`), 'utf8'));
  const dry = await here.json(['run', 'note', ...ALL, '--dry-run'], { env });
  expect(facts(dry['plan'])).toEqual(expected);
  for (const [id, mode] of [
    ['fore', ['--quiet']],
    ['print', ['--print', '--output', 'r.txt', '--junit', 'j.xml', '--record', 'rec.jsonl']],
    ['stream', ['--output-format', 'stream-json']],
    ['back', ['--async', '--record', 'back.jsonl']],
  ] as const) {
    const args = ['run', 'note', ...ALL, '--thread-id', id, ...mode];
    const { code, stdout, stderr } = await here.rye(args, { env });
    expect([id, code]).toEqual([id, id === 'back' ? 0 : expect.any(Number)]);
    expect(facts(planOf(id))).toEqual(expected);
    const lines = stdout.trim().split('\n');
    if (id === 'stream') expect(lines.map((line) => typeof JSON.parse(line)).at(-1)).toBe('object');
    if (id === 'fore') expect(stderr).not.toMatch(/turn 1|note-/);
    if (id === 'back') expect(JSON.parse(stdout)).toMatchObject({ thread_id: 'back' });
  }
  await here.rye(['threads', 'wait', 'back'], { env });
  for (const file of ['r.txt', 'j.xml', 'rec.jsonl', 'back.jsonl']) {
    expect([file, existsSync(path.join(here.project, file))]).toEqual([file, true]);
  }
});

/** Command lines whose options do not fit together, and the option that the refusal names. */
const REFUSED: readonly (readonly [string, string])[] = [
  ...['--output r', '--junit r', '--print'].flatMap((option) =>
    ['--async', '--dry-run', '--fleet'].map(
      (mode) => [`run note ${mode} ${option}`, option.split(' ')[0] ?? ''] as const,
    ),
  ),
  ['run note --async --fleet', '--async'],
  ...['--queue q', '--priority 3', '--partition p', '--at 2030-01-01T00:00Z', '--wait'].flatMap(
    (option) =>
      ['', ' --async', ' --dry-run', ' --json'].map(
        (mode) => [`run note ${option}${mode}`, option.split(' ')[0] ?? ''] as const,
      ),
  ),
  ['run note --json --output-format text', '--output-format'],
  ['run note --message x', '--message'],
  ['run note --thread-id a --session-id b', '--session-id'],
  ['run note --isolation-result merge', '--isolation'],
  ...[
    '--input who=a',
    '--inputs {}',
    '--model x',
    '--provider x',
    '--raise-limits',
    '--thread-id x',
    '--label x',
    '--parent t',
    '--acknowledge elevated',
    '--allow-unpriced',
    '--json-schema {}',
    '--isolation worktree',
    '--async',
    '--fleet',
    '--dry-run',
    '--output r',
    '--junit r',
    '--record r',
    '--replay r',
  ].map((option) => [`run note --continue ${option}`, option.split(' ')[0] ?? ''] as const),
  ['run note --fleet --record r', '--record'],
  ['run note --fleet --replay r', '--replay'],
  ['run note --fleet --allow-unsigned', '--allow-unsigned'],
  ['chat --continue --last', '--last'],
  ['chat --thread t --last', '--thread'],
  ['chat --thread t --tools read', '--tools'],
  ['chat --thread t --thread-id x', '--thread-id'],
  ['chat --thread t --acknowledge elevated', '--acknowledge'],
  ['chat --thread t --allow-unpriced', '--allow-unpriced'],
  ['chat --input who=a', '--input'],
  ['chat --thread t --input nope=a', 'nope'],
  ['chat note --tools read', '--tools'],
  ['chat --resume', '--resume'],
  ['ask What? --continue --tools read', '--tools'],
  ['ask What? --continue --schema {"type":"object"}', '--schema'],
  ['threads resume t --acknowledge elevated', '--acknowledge'],
  ['threads resume t --input nope=a', 'nope'],
  ['threads resume t --replay none.jsonl', '--replay'],
  ['threads resume t --json --output-format text', '--output-format'],
  ['threads export t --out x.unknown', '--out'],
  ['schedule add n note', '--cron'],
  ['schedule add n note --cron never', 'never'],
  ['schedule add n note --cron @daily --isolation-result merge', '--isolation'],
  ['schedule add n note --cron @daily --overlap --missed sometimes', '--missed'],
];

it('options that do not fit together are refused by name, and start nothing', async () => {
  const { here, env } = await project();
  const before = await here.json(['threads', 'list']);
  const wrong: unknown[] = [];
  for (const [line, name] of REFUSED) {
    const stdin = line.startsWith('chat') ? { stdin: 'Hi\n' } : {};
    const told = await here.rye(line.split(' '), { env: { ...env }, ...stdin });
    if (told.code !== 2 || !`${told.stdout}${told.stderr}`.includes(name)) {
      wrong.push({ line, ...told });
    }
  }
  expect(wrong).toEqual([]);
  expect(await here.json(['threads', 'list'])).toEqual(before);
  expect(await here.json(['schedule'])).toMatchObject({ total: 0 });
});

it('a chat, a question, a resume and an export obey their options', async () => {
  const { here, env } = await project();
  const rye = async (line: string, stdin?: string) =>
    await here.rye(line.split(' '), { env: { ...env }, ...(stdin === undefined ? {} : { stdin }) });
  const json = async (line: string) =>
    JSON.parse((await rye(line)).stdout) as Record<string, unknown>;
  const shown = async (id: string) => (await json(`threads show ${id} --json`))['thread'];
  expect(
    await rye('chat --thread-id c --model claude-haiku-4-5 --max-budget-usd 0.3 -q', 'Hi\n'),
  ).toEqual(expect.objectContaining({ code: 0, stdout: 'Noted.\n', stderr: '' }));
  expect(await shown('c')).toMatchObject({ model: 'claude-haiku-4-5' });
  const again = await json('ask What? --json --provider anthropic --model claude-haiku-4-5');
  expect(again).toMatchObject({ success: true, model: 'claude-haiku-4-5', result: 'Noted.' });
  const resumed = await json('threads resume t -m More --limit turns=2 --json --print');
  expect(resumed).toMatchObject({ thread_id: 't', success: true });
  const fork = await json('threads resume t --new -m More --output-format json -q');
  expect(fork['thread_id']).not.toBe('t');
  for (const [line, start] of [
    ['threads export t -q', '---\n'],
    ['threads export t --format html -q', '<!doctype html>'],
    ['threads export t --format jsonl -q', '{"'],
    ['threads export t --redact -q', '---\n'],
  ] as const) {
    const { code, stdout, stderr } = await rye(line);
    expect([line, code, stdout.toLowerCase().startsWith(start), stderr]).toEqual([
      line,
      0,
      true,
      '',
    ]);
  }
  expect(await json('threads export t --json --out e.html')).toMatchObject({
    path: expect.any(String),
  });
  expect(readFileSync(path.join(here.project, 'e.html'), 'utf8')).toMatch(/^<!doctype html>/i);
});

it('a schedule keeps its options, for its own loop and for each timer', async () => {
  const { here, env } = await project();
  const options = ['--tz', 'Europe/Berlin', '--missed', 'once', '--overlap', ...ALL.slice(0, 14)];
  const add = ['schedule', 'add', 'n', 'note', '--cron', '0 3 * * *', ...options];
  for (const timer of ['cron', 'systemd', 'actions']) {
    const { code, stdout, stderr } = await here.rye([...add, '--print', timer], {
      env: { ...env },
    });
    if (code === 2) {
      // a timer refuses a rule that it cannot keep
      expect([timer, stderr]).toEqual([timer, expect.stringMatching(/--(?:missed|tz|overlap)/)]);
    } else expect([timer, stdout.includes('claude-haiku-4-5')]).toEqual([timer, true]);
  }
  expect(await here.json(['schedule'])).toMatchObject({ total: 0 });
  await here.json(add, { env: { ...env } });
  const text = readFileSync(path.join(here.project, '.ai/config/schedules.yaml'), 'utf8');
  for (const kept of [
    'Europe/Berlin',
    'once',
    'overlap: true',
    'Ada',
    'claude-haiku-4-5',
    '5000',
    'A note',
  ]) {
    expect(text).toContain(kept);
  }
  expect(await here.json(['schedule'])).toMatchObject({
    schedules: [{ name: 'n', timezone: 'Europe/Berlin', missed: 'once' }],
  });
});

it.each([['rules'], ['hooks'], ['config']])(
  'rye %s alone lists, like its first command',
  async (name) => {
    const here = await workspace();
    const [alone, long] = [
      await here.rye([name]),
      await here.rye([name, name === 'config' ? 'show' : 'list']),
    ];
    expect(alone).toEqual(long);
    expect(alone.code).toBe(0);
    expect((await here.json([name]))['success']).not.toBe(false);
  },
);
