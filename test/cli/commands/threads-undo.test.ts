import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { type Workspace, workspace } from '../../helpers/workspace.ts';
import { directive } from '../../threads/lab.ts';

const write = (file: string, text: string): string =>
  `<step name="${text}"><execute item_type="tool" item_id="rye/file-system/write"><param name="path">${file}</param><param name="content">${text}</param></execute></step>`;

interface Desk extends Workspace {
  /** Returns the content of a file; null if there is none. */
  get(file: string): string | null;
  put(file: string, text: string): void;
}

/** A project in which the thread `t` wrote old.txt twice, and new/file.txt. */
async function desk(): Promise<Desk> {
  const here = await workspace();
  const at = (file: string): string => path.join(here.project, file);
  const put = (file: string, text: string): void => {
    mkdirSync(path.dirname(at(file)), { recursive: true });
    writeFileSync(at(file), text);
  };
  const steps = [write('old.txt', 'one'), write('new/file.txt', 'new'), write('old.txt', 'two')];
  put(
    '.ai/directives/change.md',
    directive('change', {
      tools: ['rye/file-system/write'],
      limits: 'turns="9"',
      steps: steps.join(''),
    }),
  );
  put('old.txt', 'original');
  expect((await here.rye(['sign', 'directive', 'change'])).code).toBe(0);
  expect((await here.rye(['run', 'change', '--thread-id', 't'])).code).toBe(0);
  const get = (file: string): string | null =>
    existsSync(at(file)) ? readFileSync(at(file), 'utf8') : null;
  return { ...here, get, put };
}

it('undo shows what it would do, does it, and reports when nothing is left', async () => {
  const { rye, json, get } = await desk();
  const seen = await rye(['threads', 'undo', '@', '--dry-run']);
  expect([seen.code, seen.stdout]).toEqual([
    0,
    'removed    new/file.txt\nrestored   old.txt\n2 files differ\n',
  ]);
  expect([get('old.txt'), get('new/file.txt')]).toEqual(['two', 'new']);
  expect(await json(['threads', 'undo', 't'])).toEqual({
    success: true,
    thread_id: 't',
    to_entry: null,
    dry_run: false,
    files: [
      { path: 'new/file.txt', action: 'removed' },
      { path: 'old.txt', action: 'restored' },
    ],
    folders: ['new'],
    unrecorded_calls: [],
    warnings: [],
  });
  expect([get('old.txt'), get('new/file.txt')]).toEqual(['original', null]);
  expect(await rye(['threads', 'undo', '--last'])).toMatchObject({
    code: 0,
    stdout: 'nothing to undo\n',
  });
  expect((await rye(['verify', 'thread', 't'])).code).toBe(0);
});

it('undo refuses to lose a change from outside the thread, with the file and the next command', async () => {
  const { rye, get, put } = await desk();
  put('old.txt', 'mine');
  const refused = await rye(['threads', 'undo', 't']);
  expect(refused.code).toBe(2);
  expect(refused.stderr).toMatch(/old\.txt was changed outside the thread since.*\[file_changed\]/);
  expect(refused.stderr).toContain('--force');
  expect([get('old.txt'), get('new/file.txt')]).toEqual(['mine', 'new']);
  expect((await rye(['threads', 'undo', 't', '--force'])).code).toBe(0);
  expect([get('old.txt'), get('new/file.txt')]).toEqual(['original', null]);
});

it('branch --files goes back in the conversation and in the files', async () => {
  const { rye, json, get, put } = await desk();
  const { entries } = await json(['threads', 'entries', 't', '--filter', 'all']);
  const first = (entries as readonly { id: string; kind: string }[]).find(
    ({ kind }) => kind === 'tool_result',
  );
  const at = first?.id ?? '';
  put('old.txt', 'mine');
  const refused = await rye(['threads', 'branch', 't', '--at', at, '--files']);
  expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining('[file_changed]')]);
  put('old.txt', 'two');
  const moved = await json(['threads', 'branch', 't', '--at', at, '--files']);
  expect(moved).toMatchObject({ leaf_id: at, files: { to_entry: at, folders: ['new'] } });
  expect([get('old.txt'), get('new/file.txt')]).toEqual(['one', null]);
  const alone = await rye(['threads', 'branch', 't', '--at', at, '--force']);
  expect([alone.code, alone.stderr]).toEqual([2, expect.stringContaining('--files')]);
});

it.each([
  [['--new', '--thread-id', 't'], 'thread_id_taken'],
  [['--new', '--thread-id', '../x'], 'invalid_thread_id'],
  [['--new', '--summary'], 'usage'],
  [['--thread-id', 'other'], 'usage'],
  [['--instructions', 'Be short.'], 'usage'],
])(
  'branch --files %j is refused before a file, the log or a thread changes',
  async (more, code) => {
    const { json, rye, get } = await desk();
    const { entries } = await json(['threads', 'entries', 't', '--filter', 'all']);
    const all = entries as readonly { id: string; kind: string }[];
    const at = all.find(({ kind }) => kind === 'tool_result')?.id ?? '';
    const refused = await rye(['threads', 'branch', 't', '--at', at, '--files', ...more]);
    expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining(`[${code}]`)]);
    expect([get('old.txt'), get('new/file.txt')]).toEqual(['two', 'new']);
    expect((await json(['threads', 'entries', 't', '--filter', 'all']))['entries']).toEqual(
      entries,
    );
    expect((await json(['threads', 'list']))['threads']).toHaveLength(1);
  },
);

it('branch --files --new refuses a changed file before it copies, and then restores with --force', async () => {
  const { json, rye, get, put } = await desk();
  put('old.txt', 'mine');
  const branch = ['threads', 'branch', 't', '--at', 'root', '--new', '--files'];
  const refused = await rye(branch);
  expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining('[file_changed]')]);
  expect([get('old.txt'), get('new/file.txt')]).toEqual(['mine', 'new']);
  expect((await json(['threads', 'list']))['threads']).toHaveLength(1);
  expect(await json([...branch, '--force', '--thread-id', 'copy'])).toMatchObject({
    thread_id: 'copy',
    branched_from: 't',
    files: { to_entry: null },
  });
  expect([get('old.txt'), get('new/file.txt')]).toEqual(['original', null]);
});
