import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { exportHtml } from '../../../src/features/html/page.ts';
import type { EventDraft } from '../../../src/kernel/core/events.ts';
import { diffOf } from '../../../src/kernel/core/line-diff.ts';
import type { ExportSource } from '../../../src/kernel/export/source.ts';
import { decodeLine } from '../../../src/kernel/log/codec.ts';
import { taskIn } from '../../../src/kernel/log/entry-text.ts';
import { buildTree } from '../../../src/kernel/log/tree.ts';
import { launchBrowser, missingBrowser, watchedPage } from '../../helpers/browser.ts';
import { removeFolder } from '../../helpers/remove-folder.ts';
import { place } from '../../log/support.ts';
import { sourceOf } from '../support.ts';
import { answers, asks, calls, gives, reply, thinks } from './story.ts';

const DOT =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const DIRECTIVE = `<directive name="work">
<description>Fixes the importer.</description>
<permissions><execute><tool>rye/file-system/*</tool></execute></permissions>
Find the **mistake** of March.

When you have completed all steps, call the \`rye_directive_return\` tool, through the tool API and not as text, with these fields:
{}
</directive>

The directive above is your work order.`;
const LINES = Array.from({ length: 240 }, (_, index) => `row ${index} of the ledger`).join('\n');
const WIDE_LINE = 'word '.repeat(2000);
const HOOK: EventDraft = {
  event_type: 'hook_fired',
  payload: {
    id: 'infra_checkpoint_saved',
    layer: 4,
    event: 'after_step',
    duration_ms: 0,
    matched: true,
    outcome: 'ok',
  },
};
const STATE: EventDraft = {
  event_type: 'custom',
  payload: { custom_type: 'checkpoint_saved', data: { turns: 1 } },
};

function runStarted(run: number, from_entry: string): EventDraft {
  const payload: unknown = {
    run,
    reason: 'resumed',
    from_entry,
    limits: { turns: 10 },
    model: 'haiku',
    plan_sha256: 'x',
  };
  return { event_type: 'run_started', payload } as EventDraft;
}

/** e1 task, e2 call, e3 and e4 results, e5 state, e6 summary, e7 left answer; e9 and e10 are a branch from e4 without the summary. */
const SESSION: readonly EventDraft[] = [
  asks(DIRECTIVE),
  answers(
    1,
    thinks('I think first.'),
    calls('c1', 'rye_bash', { command: 'cat ledger.csv' }),
    calls('c2', 'rye_file_system_edit', {
      path: 'src/a.ts',
      old_string: 'one\ntwo\nthree\n',
      new_string: 'one\n2\nthree\n',
    }),
  ),
  ...gives('c1', 'rye_bash', LINES),
  ...gives('c2', 'rye_file_system_edit', 'Edited src/a.ts.'),
  HOOK,
  STATE,
  {
    event_type: 'compaction',
    payload: { summary: 'A summary.', first_kept_entry_id: null, tokens_before: 900 },
  },
  answers(2, reply('An answer that was **left**.')),
  { event_type: 'leaf', payload: { target_id: 'e4' } },
  runStarted(2, 'e4'),
  {
    event_type: 'message',
    payload: {
      message: {
        role: 'user',
        content: [
          { type: 'text', text: 'Look:' },
          { type: 'image', media_type: 'image/png', data: DOT },
          { type: 'image', media_type: 'image/svg+xml', data: 'PHN2Zy8+' },
          { type: 'image', media_type: 'image/png', data: `iVBORw0KGgo${'A'.repeat(3_000_000)}` },
        ],
      },
    },
  },
  answers(7, reply('The final answer.')),
];

const source = sourceOf(place(SESSION));

function withDocument(document: Partial<ExportSource['facts']['document']>): ExportSource {
  return {
    ...source,
    facts: { ...source.facts, document: { ...source.facts.document, ...document } },
  };
}

function pageOf(shown: ExportSource): string {
  return [...exportHtml(shown)].join('');
}

it('a diff shows changed lines with three lines beside them', () => {
  const before = Array.from({ length: 12 }, (_, index) => `line ${index}`);
  const after = before.with(6, 'changed');
  expect(diffOf(before.join('\n'), after.join('\n')).map(({ kind }) => kind)).toEqual([
    'gap',
    'same',
    'same',
    'same',
    'remove',
    'add',
    'same',
    'same',
    'same',
    'gap',
  ]);
  expect(diffOf('', 'new\nfile\n')).toEqual([
    { kind: 'add', text: 'new' },
    { kind: 'add', text: 'file' },
  ]);
  expect(diffOf('a\nb', 'b\nc').map(({ kind, text }) => `${kind} ${text}`)).toEqual([
    'remove a',
    'same b',
    'add c',
  ]);
});

it('the task of a directive is its body without permissions and return instructions', () => {
  expect(taskIn(DIRECTIVE)).toMatchObject({
    name: 'work',
    task: 'Find the **mistake** of March.',
  });
  expect(taskIn('a text with <directive name="x"> in it')).toBeUndefined();
});

it('a long output is cut at line ends and between words, with counts', () => {
  const page = pageOf(
    sourceOf(
      place([
        asks('x'),
        answers(1, calls('c', 'rye_bash', { command: 'x' })),
        ...gives('c', 'rye_bash', LINES),
        answers(2, calls('d', 'rye_bash', { command: 'y' })),
        ...gives('d', 'rye_bash', WIDE_LINE),
      ]),
    ),
  );
  expect(page).toContain('row 9 of the ledger</code></pre>');
  expect(page).toContain('… 230 more lines');
  expect(page).toMatch(
    /word<\/code><\/pre><details class="more"><summary><span class="closed">… 9,\d+ more characters/,
  );
});

it('the outcome refers to the final answer and repeats any other result', () => {
  const same = pageOf(withDocument({ result: 'The final answer.' }));
  expect(same.split('>The final answer.<')).toHaveLength(2);
  expect(same).toContain('The result is the <a href="#entry-e10">last answer</a>');
  expect(pageOf(withDocument({ result: 'Another text.' }))).toContain('Another text.');
});

it('the head has totals, models and dates, and turns count along the branch', () => {
  const cost = {
    turns: 3,
    spend: 0.5,
    elapsed_seconds: 2,
    input_tokens: 1000,
    output_tokens: 0,
    cache_read_tokens: 0,
    cache_write_tokens: 0,
  };
  const page = pageOf(withDocument({ cost }));
  for (const figure of [
    '<b>3</b> turns',
    '<b>2</b> tool calls',
    '<b>1.0k</b> tokens',
    '<b>$0.5000</b> spent',
  ])
    expect(page).toContain(figure);
  expect(page).toContain('17 Feb 2026, 10:00 UTC · anthropic/haiku');
  expect(page.match(/Assistant, turn \d/g)).toEqual([
    'Assistant, turn 1',
    'Assistant, turn 2',
    'Assistant, turn 2',
  ]);
  expect(page.match(/17 Feb 2026, 10:00:56/g)).toHaveLength(1);
});

it('a child links to its page if that exists, else the command is shown', () => {
  const child: EventDraft = {
    event_type: 'child_thread_started',
    payload: { child_thread_id: 'audit/count-7', directive: 'audit/count' },
  };
  const parent = sourceOf(place([asks('x'), child]));
  expect(pageOf(parent)).toContain('rye threads export audit/count-7 --format html');
  expect(pageOf({ ...parent, pageOf: () => 'audit/count-7.html' })).toContain(
    '<a href="./audit/count-7.html">audit/count-7</a>',
  );
});

const why = missingBrowser();

describe.skipIf(why !== undefined)(`a session in a browser ${why ?? ''}`, () => {
  let browser: Browser;
  let folder = '';
  beforeAll(async () => {
    browser = await launchBrowser();
    folder = mkdtempSync(path.join(tmpdir(), 'rye-session-'));
  });
  afterAll(async () => {
    await browser.close();
    removeFolder(folder);
  });

  async function open(hash = ''): Promise<Page> {
    const file = path.join(folder, 'page.html');
    writeFileSync(file, pageOf(source));
    const { page, seen } = await watchedPage(browser, pathToFileURL(file).href + hash);
    onTestFinished(async () => {
      await page.close();
      expect(seen).toEqual([]);
    });
    return page;
  }

  it('shows images of the allowed types and notes the others', async () => {
    const page = await open();
    const widths = await page
      .locator('img')
      .evaluateAll((all) => all.map((image) => (image as HTMLImageElement).naturalWidth));
    expect(widths).toEqual([1]);
    expect(await page.getByText('not a PNG, JPEG, GIF or WebP image').isVisible()).toBe(true);
    expect(await page.getByText('too large for this page').isVisible()).toBe(true);
  });

  it('draws lines between branches and folds them', async () => {
    const page = await open();
    const rails = (text: string) =>
      page
        .locator('.rows li', { hasText: text })
        .locator('.rail')
        .evaluateAll((all) => all.map(({ className }) => className));
    expect(await rails('Look:')).toEqual(['rail tee']);
    expect(await rails('The final answer.')).toEqual(['rail pass']);
    expect(await rails('900 tokens')).toEqual(['rail last']);
    expect(await page.locator('.rows .leaf').textContent()).toContain('The final answer.');
    const rows = await page.locator('.rows li').count();
    await page.locator('.rows a', { hasText: 'Look:' }).focus();
    await page.keyboard.press('ArrowLeft');
    expect(await page.locator('.rows li').count()).toBe(rows - 1);
    expect(await page.locator('.rows .folded').textContent()).toBe('+1');
    await page.keyboard.press('ArrowRight');
    expect(await page.locator('.rows li').count()).toBe(rows);
    expect(await page.locator('.rows').textContent()).not.toMatch(/\*\*|rye_file_system/);
  });

  it('shows a call, its diff and its result in one box, the rest of an output on a click', async () => {
    const page = await open();
    const edit = page.locator('.tool', { hasText: 'src/a.ts' });
    expect(await edit.locator('.diff .remove').allTextContents()).toEqual(['−two\n']);
    expect(await edit.locator('.diff .add').allTextContents()).toEqual(['+2\n']);
    expect(await edit.getByText('Edited src/a.ts.').isVisible()).toBe(true);
    const last = page.getByText('row 239 of the ledger');
    expect(await last.isVisible()).toBe(false);
    await page.getByText('230 more lines').click();
    expect(await last.isVisible()).toBe(true);
    await page.keyboard.press('o');
    expect(await last.isVisible()).toBe(false);
    const thought = page.locator('.thinking .prose');
    await page.keyboard.press('t');
    expect(await thought.isVisible()).toBe(true);
  });

  it('shows hooks, state and checkpoints with its details only, and the task of a directive', async () => {
    const page = await open('#entry-e7');
    const state = page.getByText('State: checkpoint_saved');
    expect(await state.isVisible()).toBe(false);
    await page.keyboard.press('d');
    expect(await state.isVisible()).toBe(true);
    expect(await page.getByText('hook infra_checkpoint_saved').isVisible()).toBe(true);
    expect(await page.getByText('Find the mistake of March.').last().isVisible()).toBe(true);
    expect(await page.getByText('rye_directive_return').isVisible()).toBe(false);
  });

  it('tags what is no longer sent on the branch that it shows', async () => {
    const page = await open();
    const tagged = () =>
      page.locator('article:visible:has(.tag.seen)').evaluateAll((all) => all.map(({ id }) => id));
    expect(await tagged()).toEqual([]);
    await page.evaluate('location.hash = "entry-e7"');
    await expect.poll(tagged).toEqual(['entry-e1', 'entry-e2']);
    await page.keyboard.press('h');
    await expect.poll(tagged).toEqual([]);
  });

  it('divides the runs of a thread on the branch of each', async () => {
    const page = await open();
    const divider = page.locator('.run');
    expect(await divider.textContent()).toBe(
      'Run 2· resumed · 17 Feb 2026, 10:00 · haiku · turns 10',
    );
    await page.evaluate('location.hash = "entry-e7"');
    await expect.poll(() => divider.isVisible()).toBe(false);
  });

  it('explains its keys, and saves the entries that it shows as a log', async () => {
    const page = await open();
    await page.keyboard.press('?');
    expect(await page.getByText('Next and previous entry').isVisible()).toBe(true);
    await page.keyboard.press('Escape');
    const saving = page.waitForEvent('download');
    await page.getByRole('button', { name: 'JSONL' }).click();
    const file = path.join(folder, 'saved.jsonl');
    await (await saving).saveAs(file);
    const text = readFileSync(file, 'utf8');
    const [header = '', ...lines] = text.trimEnd().split('\n');
    expect(JSON.parse(header)).toEqual(source.header);
    const pieces = lines.flatMap((line) => decodeLine(line));
    const events = pieces.flatMap((piece) => ('event' in piece ? [piece.event] : []));
    expect(events.map(({ id }) => id)).toEqual(source.tree.entries.map(({ id }) => id));
    expect(buildTree(events).leafId).toBe(source.leafId);
    expect(text).not.toContain('opaque-signature');
    expect(text).toContain(DOT);
    expect(text).not.toContain('svg');
  });
});
