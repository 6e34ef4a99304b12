import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { main } from '../../../src/faces/cli/main.ts';
import type { FetchedItem, ItemSummary, ItemsService } from '../../../src/kernel/app/api/items.ts';
import type { Rye } from '../../../src/kernel/app/api/rye.ts';
import { createFakeIo, type FakeIo, type FakeIoOptions } from '../../helpers/fake-io.ts';
import { removeFolder } from '../../helpers/remove-folder.ts';

const folder = mkdtempSync(path.join(tmpdir(), 'rye-items-'));
const file = path.join(folder, 'hello.md');
writeFileSync(file, Buffer.from([0xff, 0x0a]));
afterAll(() => {
  removeFolder(folder);
});

async function rye(
  args: readonly string[],
  items: Partial<ItemsService>,
  options: FakeIoOptions = {},
): Promise<[number, FakeIo]> {
  const project: Partial<Rye> = { items: items as ItemsService };
  const io = createFakeIo({ cwd: folder, rye: project, ...options });
  return [await main(args, io), io];
}

const SUMMARY: ItemSummary = {
  type: 'directive',
  id: 'hello',
  space: 'project',
  path: file,
  version: '1.0.0',
  description: 'Says\nhello \u001B[31min red',
  signature: 'signed',
  shadowed_by: null,
};
const FETCHED: FetchedItem = { ...SUMMARY, metadata: { name: 'hello' }, content: 'Say hello.\n' };

describe('list', () => {
  const list = (): Promise<readonly ItemSummary[]> =>
    Promise.resolve([
      SUMMARY,
      { ...SUMMARY, space: 'system', version: null, shadowed_by: 'project' },
    ]);

  it('aligns columns, on one line each, without escapes', async () => {
    const [code, io] = await rye(['list', 'directives'], { list });
    expect(io.out()).toBe(
      [
        'ID     SPACE    VERSION  SIGNATURE  DESCRIPTION',
        'hello  project  1.0.0    signed     Says hello ␛[31min red',
        'hello  system   -        signed     (shadowed by project)',
        '',
      ].join('\n'),
    );
    expect(code).toBe(0);
  });

  it('marks a signature of the older form', async () => {
    const older = () => Promise.resolve([{ ...SUMMARY, signature_version: 1 as const }]);
    const [, io] = await rye(['list', 'directives'], { list: older });
    expect(io.out()).toContain('  signed (v1)  ');
  });

  it('cuts lines on a terminal only', async () => {
    const [, io] = await rye(['list', 'directive'], { list }, { stdoutIsTty: true, columns: 40 });
    expect(io.out().split('\n')[1]).toBe('hello  signed     Says hello ␛[31min red');
  });

  it('is a document with --json', async () => {
    const [, io] = await rye(['list', 'directive', '--json'], { list });
    expect(JSON.parse(io.out())).toMatchObject({ success: true, items: [SUMMARY, {}], total: 2 });
  });
});

describe('fetch', () => {
  const fetch: ItemsService['fetch'] = (_type, _id, options) =>
    Promise.resolve(
      options?.copyTo === undefined ? FETCHED : { ...FETCHED, copied_to: `${folder}/copy.md` },
    );

  it('shows metadata and content', async () => {
    const [, io] = await rye(['fetch', 'directive', 'hello'], { fetch });
    expect(io.out()).toBe(
      'directive hello (project, signed)\nhello.md\nname: hello\n\nSay hello.\n',
    );
  });

  it('prints the bytes with --raw', async () => {
    const written: (string | Uint8Array)[] = [];
    const io = createFakeIo({ rye: { items: { fetch } as ItemsService } });
    const stdout = {
      ...io.stdout,
      writeRaw: (content: string | Uint8Array) => written.push(content),
    };
    await main(['fetch', 'directive', 'hello', '--raw'], { ...io, stdout });
    expect(written).toEqual([Buffer.from([0xff, 0x0a])]);
  });

  it('prints where the copy is', async () => {
    const [, io] = await rye(['fetch', 'directive', 'hello', '--copy-to', 'user'], { fetch });
    expect(io.out()).toBe('copy.md\n');
  });
});

describe('validate', () => {
  const problem = {
    severity: 'error',
    code: 'xml_malformed',
    message: 'a tag\nis open',
    path: file,
    line: 3,
    column: 7,
  } as const;
  const warning = { ...problem, severity: 'warning', line: null, column: null } as const;

  it('prints each problem as file:line:col: code: message', async () => {
    const validate = (): ReturnType<ItemsService['validate']> =>
      Promise.resolve({ problems: [problem, warning], checked: 4 });
    const [code, io] = await rye(['validate'], { validate });
    expect(io.out()).toBe(
      'hello.md:3:7: xml_malformed: a tag␊is open\nhello.md: warning: xml_malformed: a tag␊is open\n',
    );
    expect(io.err()).toBe('4 items checked, 1 error, 1 warning\n');
    expect(code).toBe(2);
  });

  it('succeeds with warnings alone', async () => {
    const validate = (): ReturnType<ItemsService['validate']> =>
      Promise.resolve({ problems: [warning], checked: 1 });
    const [code, io] = await rye(['validate', '--json'], { validate });
    expect(JSON.parse(io.out())).toEqual({
      success: true,
      problems: [warning],
      total: 1,
      checked: 1,
      warnings: [],
    });
    expect(code).toBe(0);
  });
});

describe('verify', () => {
  const message = `${file}: tool b is not signed`;
  const unsigned = { code: 'unsigned', message, hint: 'rye sign' } as const;
  const verify: ItemsService['verify'] = () =>
    Promise.resolve([
      { type: 'tool', id: 'a', space: 'project', path: file, ok: true, key_id: 'k' },
      { type: 'tool', id: 'b', space: 'project', path: file, ok: false, error: unsigned },
    ]);

  it('fails when one item fails', async () => {
    const [code, io] = await rye(['verify', 'tool', '*'], { verify });
    expect(io.out()).toBe('ok   hello.md\nFAIL hello.md: tool b is not signed [unsigned]\n');
    expect(io.err()).toBe('hint: rye sign\n');
    expect(code).toBe(3);
  });

  it('explains how to upgrade a valid signature of an older format', async () => {
    const older = (): ReturnType<ItemsService['verify']> =>
      Promise.resolve([
        { type: 'tool', id: 'a', space: 'project', path: file, ok: true, signature_version: 1 },
      ]);
    const [code, io] = await rye(['verify', 'tool', '*'], { verify: older });
    expect(io.out()).toBe('ok   hello.md\n');
    expect(io.err()).toMatch(/^hint: The signature has an older format.* rye sign tool a\n$/);
    expect(code).toBe(0);
  });

  it('has the error in the document', async () => {
    const [code, io] = await rye(['verify', 'tool', '*', '--json'], { verify });
    expect(JSON.parse(io.out())).toMatchObject({ success: false, error: unsigned, total: 2 });
    expect(code).toBe(3);
  });
});

describe('search', () => {
  const hit = {
    type: 'knowledge',
    id: 'notes',
    space: 'project',
    path: file,
    title: 'Notes',
    score: 2,
    snippet: 'the \u{E000}Budget\u{E001}\n\n  of',
    signature: 'signed',
    verified: true,
    time: '2026-01-01T00:00:00Z',
  } as const;
  const whole = { total: 1, complete: true, notices: [] };
  const search = (): ReturnType<ItemsService['search']> =>
    Promise.resolve({ results: [hit], ...whole });

  it('marks matches for people and programs', async () => {
    const [, text] = await rye(['search', 'all', 'budget'], { search });
    const [, json] = await rye(['search', 'all', 'budget', '--json'], { search });
    expect(text.out()).toBe('knowledge notes (project) Notes\n  hello.md\n  the **Budget** of\n');
    expect(JSON.parse(json.out())).toMatchObject({
      results: [{ snippet: 'the **Budget**\n\n  of' }],
    });
  });

  it('colors the matches, and draws the rest', async () => {
    const [, text] = await rye(
      ['search', 'all', 'budget'],
      { search },
      { env: { FORCE_COLOR: '1' } },
    );
    expect(text.out()).toContain('\n  the \u001b[1mBudget\u001b[22m of\n');
  });

  it('marks unverified results, and reports that a limit cut the list', async () => {
    const results = [{ ...hit, signature: 'modified', verified: false }];
    const notices = ['stopped after 2 s: more may match'];
    const found = (): ReturnType<ItemsService['search']> =>
      Promise.resolve({ results, total: 1, complete: false, notices });
    const [, text] = await rye(['search', 'all', 'budget', '-q'], { search: found });
    expect(text.out()).toContain('knowledge notes (project, modified) Notes');
    expect(text.err()).toBe('rye: warning: stopped after 2 s: more may match\n');
    const [, json] = await rye(['search', 'all', 'budget', '--json'], { search: found });
    expect(JSON.parse(json.out())).toMatchObject({
      complete: false,
      notices,
      results: [{ verified: false }],
    });
  });

  it('shows the lines around the match with --context', async () => {
    const asked: unknown[] = [];
    const found = (...[, , options]: Parameters<ItemsService['search']>) => {
      asked.push(options);
      return Promise.resolve({ results: [{ ...hit, context: 'one\ntwo' }], ...whole });
    };
    const [, io] = await rye(['search', 'all', 'budget', '--context'], { search: found });
    expect(io.out()).toBe('knowledge notes (project) Notes\n  hello.md\n  one\n  two\n');
    expect(asked).toEqual([{ contextLines: 3 }]);
  });
});
