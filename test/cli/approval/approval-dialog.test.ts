import { chmodSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import { createColors } from '../../../src/faces/ui/colors.ts';
import { createApprovalDialog } from '../../../src/faces/ui/dialogs/approval-dialog.ts';
import type { KeyHandlers } from '../../../src/faces/ui/keyboard.ts';
import type { Footer } from '../../../src/faces/ui/render/live-view.ts';
import type { DecideRequest, ListedApproval } from '../../../src/kernel/app/api/approvals.ts';
import { RyeError } from '../../../src/kernel/core/errors.ts';
import { removeFolder } from '../../helpers/remove-folder.ts';

const REQUEST: ListedApproval = {
  id: 'apr-1',
  thread_id: 't-1',
  root_thread_id: 't-1',
  kind: 'call',
  state: 'pending',
  tool: 'rye/bash',
  capability: 'rye.execute.tool.rye.bash',
  reason: 'It pushes.',
  rule: 'directive',
  input: { command: 'git push' },
  input_sha256: '',
  request_sha256: '',
  preview: { title: 'Run a command', format: 'command', text: 'git push' },
  approvers: [],
  quorum: 1,
  scopes: ['once', 'arguments', 'tool'],
  created_at: '',
  expires_at: '',
  decisions: [],
};

type Decision = Omit<DecideRequest, 'id'>;

interface Options {
  readonly env?: Readonly<Record<string, string>>;
  readonly columns?: number;
  readonly rows?: number;
  /** Refuses a decision, as the approvals service does. */
  readonly refuse?: (decision: Decision) => string | undefined;
}

/** A dialog on a screen without a terminal. */
function openDialog({ env = {}, columns = 80, rows = 24, refuse }: Options = {}) {
  const decisions: Decision[] = [];
  const printed: string[] = [];
  const calls: string[] = [];
  let handlers: KeyHandlers | undefined;
  let footer: Footer | undefined;
  const dialog = createApprovalDialog({
    io: {
      env,
      openKeyboard: (given) => {
        handlers = given;
        calls.push('open');
        return Promise.resolve({
          suspend: () => {},
          lend: () => {
            calls.push('lend');
            return () => void calls.push('take');
          },
          close: () => {
            calls.push('close');
            handlers = undefined;
          },
        });
      },
    },
    view: {
      print: (lines) => void printed.push(...lines),
      setFooter: (given) => {
        footer = given;
      },
      redraw: () => {},
      hold: () => {
        calls.push('hold');
        return () => void calls.push('release');
      },
    },
    sink: { columns, rows },
    colors: createColors(false),
  });
  const settle = async (): Promise<void> => {
    for (let round = 0; round < 6; round += 1) await new Promise(setImmediate);
  };
  return {
    dialog,
    decisions,
    printed,
    calls,
    settle,
    screen: () => (footer?.lines ?? []).join('\n'),
    add: async (request: ListedApproval = REQUEST) => {
      dialog.onRequest(request, (decision) => {
        const problem = refuse?.(decision);
        if (problem !== undefined) return Promise.reject(new RyeError('invalid_input', problem));
        decisions.push(decision);
        return Promise.resolve({ ...request, state: 'approved', missing: 0, resumed: false });
      });
      await settle();
    },
    type: async (...keys: readonly string[]) => {
      for (const key of keys) {
        const isCharacter = key.length === 1;
        handlers?.onKey(isCharacter ? { name: key.toLowerCase(), text: key } : { name: key });
        await settle();
      }
    },
  };
}

/** Shows one request, types the keys, and returns the decisions. */
async function decisionsOf(
  keys: readonly string[],
  request: ListedApproval = REQUEST,
): Promise<readonly Decision[]> {
  const { add, type, decisions } = openDialog();
  await add(request);
  await type(...keys);
  return decisions;
}

it('shows what would run and the keys', async () => {
  const { add, screen, dialog } = openDialog();
  await add();
  expect(screen()).toMatch(/Run a command[^]*git push[^]*It pushes\.[^]*y once · t this thread/);
  expect(dialog.isThere('apr-1')).toBe(true);
});

it.each<readonly [string, readonly string[], object]>([
  ['y approves at once', ['y'], { decision: 'approve' }],
  ['t approves for the thread', ['t'], { decision: 'approve', scope: 'tool' }],
  [
    'n denies with a reason',
    ['n', 'n', 'o', 'x', 'backspace', 'enter'],
    { decision: 'deny', comment: 'no' },
  ],
  ['n denies without a reason', ['n', 'enter'], { decision: 'deny', comment: '' }],
  ['y approves from the pages', ['d', 'y'], { decision: 'approve' }],
])('%s', async (_what, keys, decision) => {
  const { add, type, decisions, calls, dialog } = openDialog();
  await add();
  await type(...keys);
  expect(decisions).toEqual([decision]);
  expect([calls, dialog.isThere('apr-1')]).toEqual([['open', 'close'], false]);
});

it('t is not offered if the rule allows one call only', async () => {
  const { add, type, decisions, screen } = openDialog();
  await add({ ...REQUEST, scopes: ['once'] });
  expect(screen()).not.toContain('this thread');
  await type('t');
  expect(decisions).toEqual([]);
});

it('e edits the input; what is no JSON or is refused can be edited again', async () => {
  const { add, type, decisions, screen } = openDialog({
    refuse: ({ input }) => (input?.['a'] === 1 ? 'the input does not match: a' : undefined),
  });
  await add();
  await type('e', 'backspace', 'enter');
  expect(screen()).toMatch(/The input is not valid JSON[^]*› \{"command":"git push"/);
  await type(',', '"', 'a', '"', ':', '1', '}', 'enter');
  expect(screen()).toMatch(/the input does not match: a[^]*› \{"command":"git push","a":1\}/);
  expect(decisions).toEqual([]);
  await type('backspace', 'backspace', '2', '}', 'enter');
  expect(decisions).toEqual([{ decision: 'approve', input: { command: 'git push', a: 2 } }]);
});

it('e opens the editor of the person, and holds the output of the run meanwhile', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'rye-dialog-'));
  onTestFinished(() => removeFolder(folder));
  const program = join(folder, 'editor');
  writeFileSync(program, `#!/bin/sh\nsed -i 's/git push/git push --dry-run/' "$1"\n`);
  chmodSync(program, 0o700);
  const { add, type, decisions, calls } = openDialog({
    env: { PATH: process.env['PATH'] ?? '', EDITOR: program },
  });
  await add();
  await type('e');
  await vi.waitUntil(() => decisions.length > 0, 60_000);
  expect(decisions).toEqual([{ decision: 'approve', input: { command: 'git push --dry-run' } }]);
  expect(calls.slice(0, 5)).toEqual(['open', 'hold', 'lend', 'take', 'release']);
});

it('an editor that fails or changes nothing decides nothing', async () => {
  for (const [editor, words] of [
    ['false', 'The editor failed: false'],
    ['true', 'Nothing was changed.'],
  ] as const) {
    const env = { PATH: process.env['PATH'] ?? '', VISUAL: editor, EDITOR: 'never' };
    const { add, type, decisions, screen } = openDialog({ env });
    await add();
    await type('e');
    await vi.waitUntil(() => screen().includes(words), 60_000);
    expect([screen().includes('y once'), decisions]).toEqual([true, []]);
  }
});

it('shows requests one after the other with a count, and drops one that was decided elsewhere', async () => {
  const { add, type, decisions, screen, dialog, printed, settle } = openDialog();
  await add();
  await add({ ...REQUEST, id: 'apr-2', preview: { ...REQUEST.preview, text: 'git tag' } });
  await add({ ...REQUEST, id: 'apr-3', preview: { ...REQUEST.preview, text: 'git gc' } });
  expect(screen()).toMatch(/\(1 of 3\)[^]*git push/);
  await type('y');
  expect(screen()).toMatch(/\(2 of 3\)[^]*git tag/);
  const payload = { approval_id: 'apr-2', request_sha256: '', outcome: 'denied', decisions: [] };
  dialog.event({ event_type: 'child.approval_decided', payload } as never);
  await settle();
  expect(screen()).toMatch(/\(3 of 3\)[^]*git gc/);
  expect(printed.at(-1)).toContain('apr-2 was decided elsewhere: denied');
  await type('y');
  expect(decisions).toHaveLength(2);
});

it('drops what was typed before the request was on the screen', async () => {
  const { dialog, decisions, type, screen, settle } = openDialog();
  dialog.onRequest(REQUEST, (decision) => {
    decisions.push(decision);
    return Promise.reject(new Error('not asked'));
  });
  await Promise.resolve();
  void type('y');
  expect(screen()).toBe('');
  await settle();
  expect([decisions, screen().includes('git push')]).toEqual([[], true]);
});

it('shows a long request in pages, wrapped so that nothing is out of sight', async () => {
  const text = Array.from({ length: 60 }, (_, at) => `+line ${at} ${'x'.repeat(90)}END${at}`);
  const preview = { title: 'Change a.ts', format: 'diff', text: text.join('\n') } as const;
  const { add, type, screen } = openDialog({ columns: 60, rows: 20 });
  await add({ ...REQUEST, preview });
  expect(screen()).toMatch(/line 0[^]*more lines: d shows them/);
  await type('d');
  expect(screen()).toMatch(/Change a\.ts[^]*END0[^]*1–14 of \d+/);
  await type('space');
  expect(screen()).toMatch(/15–28 of/);
  await type('b', 'down');
  expect(screen()).toMatch(/2–15 of/);
  for (let page = 0; page < 20; page += 1) await type('pagedown');
  expect(screen()).toMatch(/hash[^]*(\d+)–(\d+) of \2/);
  const widest = Math.max(
    ...screen()
      .split('\n')
      .map((line) => line.length),
  );
  expect(widest).toBeLessThan(60);
  await type('q');
  expect(screen()).toContain('y once');
});

it('escape leaves a line, and Ctrl-C leaves every request pending', async () => {
  const { add, type, printed, decisions, calls, dialog } = openDialog();
  await add();
  await add({ ...REQUEST, id: 'apr-2' });
  await type('?', 'n', 'escape', 'ctrl+c');
  expect(printed.join('\n')).toMatch(
    /Ctrl-C {2}leave it pending[^]*rye approve apr-1[^]*rye approve apr-2/,
  );
  expect([decisions, calls, dialog.isThere('apr-1')]).toEqual([[], ['open', 'close'], false]);
});

const question = (schema: ListedApproval['input']): ListedApproval => ({
  ...REQUEST,
  kind: 'question',
  preview: { title: 'Question', format: 'question', text: 'Which?', schema },
});

it.each<readonly [string, ListedApproval['input'], readonly string[], unknown]>([
  ['a text as it is', { type: 'string' }, ['7', 'enter'], '7'],
  ['a text without a schema', {}, ['7', 'enter'], '7'],
  ['a number', { type: 'number' }, ['7', 'enter'], 7],
  ['a number only', { type: 'integer' }, ['x', 'enter', 'backspace', '4', 'enter'], 4],
  ['a value of an enum by its number', { enum: ['main', 'dev'] }, ['2'], 'dev'],
  ['a value of an enum by arrows', { enum: ['main', 'dev', 3] }, ['down', 'down', 'enter'], 3],
  ['a value of an enum by its letters', { enum: ['main', 'dev'] }, ['d', 'e', 'enter'], 'dev'],
  ['a titled value', { oneOf: [{ const: 1, title: 'One' }] }, ['enter'], 1],
  ['yes', { type: 'boolean' }, ['y'], true],
  ['no', { type: 'boolean' }, ['n'], false],
  [
    'several values',
    { type: 'array', items: { enum: ['a', 'b', 'c'] } },
    [' ', 'down', 'down', ' ', 'enter'],
    ['a', 'c'],
  ],
  ['a default', { type: 'string', default: 'main' }, ['enter'], 'main'],
  ['JSON', { type: 'array' }, ['[', 'enter', '1', ']', 'enter'], [1]],
])('answers with %s', async (_what, schema, keys, answer) => {
  expect(await decisionsOf(keys, question(schema))).toEqual([{ decision: 'answer', answer }]);
});

it('asks for the properties of an object one after the other, and goes back with escape', async () => {
  const schema = {
    type: 'object',
    properties: {
      name: { type: 'string', title: 'Name' },
      age: { type: 'integer', minimum: 1, maximum: 9 },
      dark: { type: 'boolean' },
      note: { type: 'string' },
    },
    required: ['name', 'age'],
  };
  const { add, type, decisions, screen } = openDialog();
  await add(question(schema));
  expect(screen()).toMatch(/1\/4 Name/);
  await type('enter');
  expect(screen()).toContain('Type an answer.');
  await type('A', 'enter', '1', '2', 'enter');
  expect(screen()).toMatch(/2\/4 age[^]*The maximum is 9\./);
  await type('escape', 'd', 'a', 'enter', 'backspace', 'enter', 'n', 'enter');
  expect(decisions).toEqual([{ decision: 'answer', answer: { name: 'Ada', age: 1, dark: false } }]);
});

it.each([
  ['Enter skips it', ['enter'], {}],
  ['s skips it', ['y', 'escape', 's'], {}],
  ['a value can be picked', ['y'], { dark: true }],
  ['a picked value can be taken back', ['n', 'escape', 'down', 'enter'], {}],
])('an optional yes or no: %s', async (_what, keys, answer) => {
  const { add, type, decisions, screen } = openDialog();
  const properties = { dark: { type: 'boolean' }, note: { type: 'string' } };
  await add(question({ type: 'object', properties }));
  expect(screen()).toMatch(/dark[^]*yes[^]*no[^]*skip[^]*y yes · n no · s skip/);
  await type(...keys, 'enter');
  expect(decisions).toEqual([{ decision: 'answer', answer }]);
});

it('an optional choice with a default keeps it, and can be skipped', async () => {
  const properties = { env: { enum: ['dev', 'prod'], default: 'prod' } };
  const schema = { type: 'object', properties };
  const kept = await decisionsOf(['enter'], question(schema));
  expect(kept).toEqual([{ decision: 'answer', answer: { env: 'prod' } }]);
  const skipped = await decisionsOf(['down', 'enter'], question(schema));
  expect(skipped).toEqual([{ decision: 'answer', answer: {} }]);
});

it('shows why an answer was refused, and keeps it', async () => {
  const { add, type, decisions, screen } = openDialog({
    refuse: ({ answer }) => (answer === 'dev' ? 'the answer does not match' : undefined),
  });
  await add(question({ type: 'string', pattern: '^m' }));
  await type('d', 'e', 'v', 'enter');
  expect(screen()).toMatch(/› dev\n[^]*the answer does not match/);
  await type('backspace', 'backspace', 'backspace', 'm', 'enter');
  expect(decisions).toEqual([{ decision: 'answer', answer: 'm' }]);
});

it('declines a question with escape and a reason', async () => {
  expect(await decisionsOf(['escape', 'n', 'o', 'enter'], question({ type: 'string' }))).toEqual([
    { decision: 'deny', comment: 'no' },
  ]);
});

const preview = (text: string): ListedApproval => ({
  ...REQUEST,
  input: { command: text },
  preview: { ...REQUEST.preview, text },
});

it.each<readonly [string, ListedApproval]>([
  ['hides the end of a command from a terminal', preview('true \u001b]0;\nrm -rf x')],
  ['has look-alikes', preview('curl https://\u0430pi.github.com')],
  ['has an invisible character', preview('r\u200bm x')],
  ['has more lines than the screen shows', preview(`true${'\n'.repeat(200)}rm -rf x`)],
  [
    'has arguments that the screen does not show whole',
    {
      ...preview('ls'),
      input: { command: 'ls', env: 'x'.repeat(500) },
    },
  ],
  ['has a hidden argument', { ...preview('ls'), input: { command: 'ls', cwd: 'a\u202eb' } }],
  ['has a hidden reason', { ...REQUEST, reason: 'It pushes\u202e.' }],
])(
  'one key does not approve a call that %s, before its details were opened',
  async (_, request) => {
    const { add, type, decisions, screen } = openDialog();
    await add(request);
    await type('y', 't');
    expect(decisions).toEqual([]);
    expect(screen()).toContain('Press d');
    await type('d', 'q', 'y');
    expect(decisions).toEqual([{ decision: 'approve' }]);
  },
);

it('the details that were opened belong to one request', async () => {
  const { add, type, decisions } = openDialog();
  await add({ ...preview('r\u200bm x'), id: 'apr-1' });
  await add({ ...preview('r\u200bm y'), id: 'apr-2' });
  await type('d', 'y', 'y');
  expect(decisions).toHaveLength(1);
});

it('a question whose text is not all shown is read before it can be answered', async () => {
  const { add, type, decisions, screen } = openDialog();
  const text = 'May I read? \u001b]And delete?';
  await add({
    ...REQUEST,
    kind: 'question',
    input: {},
    scopes: ['once'],
    preview: { title: 'Question', format: 'question', text, schema: { type: 'boolean' } },
  });
  expect(screen()).toContain('May I read? ␛]And delete?');
  await type('y');
  expect(decisions).toEqual([]);
  await type('q', 'y', 'enter');
  expect(decisions).toEqual([{ decision: 'answer', answer: true }]);
});

it('a short call shows every argument, and the head and the tail of a long one', async () => {
  const { add, screen } = openDialog({ columns: 60 });
  const input = { command: 'ls', note: `begin ${'x'.repeat(300)} end`, timeout_seconds: 7 };
  await add({ ...REQUEST, tool: 'rye/bash', input });
  expect(screen()).toMatch(/note: "begin x+ …\d+ more… x+ end"/);
  expect(screen()).toContain('timeout_seconds: 7');
});

const EDITS: ListedApproval = {
  ...REQUEST,
  tool: 'rye/file-system/multi_edit',
  input: {
    path: 'a.ts',
    edits: [
      { old_string: 'one', new_string: 'eins' },
      { old_string: 'two', new_string: 'zwei' },
      { old_string: 'three', new_string: 'drei' },
    ],
  },
  preview: { title: 'Change a.ts', format: 'diff', text: '-one\n+eins' },
};

it.each<readonly [string, readonly string[], object]>([
  ['n omits the chosen edit', ['h', 'down', 'n', 'enter'], { decision: 'approve', hunks: [1, 3] }],
  [
    'space changes it back',
    ['h', 'n', 'up', 'space', 'enter'],
    { decision: 'approve', hunks: [1, 2, 3] },
  ],
  [
    'without any edit it is a denial',
    ['h', 'n', 'n', 'n', 'enter', 'n', 'o', 'enter'],
    { decision: 'deny', comment: 'no' },
  ],
  ['escape goes back to the keys', ['h', 'n', 'escape', 'y'], { decision: 'approve' }],
])('several edits are chosen one by one: %s', async (_, keys, decision) => {
  expect(await decisionsOf(keys, EDITS)).toEqual([decision]);
});

it('shows the chosen edit as a diff, with a mark for each', async () => {
  const { add, type, screen } = openDialog();
  await add(EDITS);
  expect(screen()).toContain('h choose edits');
  await type('h', 'n');
  expect(screen()).toMatch(
    /✗ edit 1 of 3\n▸ ✓ edit 2 of 3\n {4}-two\n {4}\+zwei\n {2}✓ edit 3 of 3/,
  );
});

it('a single edit, or another tool, offers no choice of edits', async () => {
  const { add, type, screen, decisions } = openDialog();
  await add();
  await type('h');
  expect(screen()).not.toContain('choose edits');
  expect(decisions).toEqual([]);
});
