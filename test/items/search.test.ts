import { mkdirSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm, unlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, test } from 'vitest';
import {
  readHead,
  type ScannedItem,
  type ScanResult,
  scanItems,
  toSearchDocument,
} from '../../src/features/search/scan-fs.ts';
import type { ItemType } from '../../src/kernel/core/ids.ts';
import type { FileFingerprint, SearchDocument } from '../../src/kernel/core/search.ts';

const FINGERPRINT: FileFingerprint = { size: 1, mtime_ms: Date.parse('2026-01-01T00:00:00Z') };

function document(type: ItemType, id: string, text: string): SearchDocument {
  return toSearchDocument({
    type,
    id,
    space: 'project',
    path: `/x/${id}.md`,
    fingerprint: FINGERPRINT,
    text,
  });
}

describe('toSearchDocument', () => {
  it('takes thread facts from a knowledge export', () => {
    const text = `<!-- rye:signed:x -->\n---\nname: t-1\ntitle: hello\ndirective: demo/hello\nstatus: completed\nmodel: opus\ncreated_at: 2026-02-01T10:00:00Z\ntags: [thread, completed]\ndescription: Greets\n---\n# hello\n`;
    expect(document('knowledge', 'agent/threads/t-1', text)).toEqual({
      key: '/x/agent/threads/t-1.md',
      fingerprint: FINGERPRINT,
      type: 'knowledge',
      id: 'agent/threads/t-1',
      space: 'project',
      title: 'hello',
      tags: 'thread completed',
      body: 'Greets\n\n# hello',
      directive: 'demo/hello',
      status: 'completed',
      model: 'opus',
      time: '2026-02-01T10:00:00.000Z',
    });
  });

  test.each<[ItemType, string, Partial<SearchDocument>]>([
    [
      'knowledge',
      '---\ntitle: T\n---\nB',
      { title: 'T', body: 'B', time: '2026-01-01T00:00:00.000Z', directive: '' },
    ],
    [
      'knowledge',
      '---\ntitle: T\ncreated_at: some day\n---\nB',
      { time: '2026-01-01T00:00:00.000Z' },
    ],
    [
      'directive',
      '# Intro\n```xml\n<directive name="d"><description>D</description><category>c</category></directive>\n```\nBody',
      { title: 'd', tags: 'c', body: 'D\n\n# Intro\n\nBody', directive: 'a/b' },
    ],
    [
      'tool',
      '// rye:signed:x\nconst __tool_description__ = "Counts";',
      { title: 'b', body: 'Counts\n\nconst __tool_description__ = "Counts";' },
    ],
    ['rule', '---\ncondition: x\ndescription: D\n---\nB', { title: 'b', body: 'D\n\nB' }],
    ['skill', '---\nname: s\ndescription: D\n---\nB', { title: 's', body: 'D\n\nB' }],
  ])('reads a %s', (type, text, expected) => {
    expect(document(type, 'a/b', text)).toMatchObject(expected);
  });

  test.each<[ItemType]>([['knowledge'], ['directive'], ['rule'], ['skill']])(
    'keeps a broken %s findable',
    (type) => {
      expect(document(type, 'a/b', '<!-- rye:signed:x -->\nwords')).toMatchObject({
        title: 'b',
        body: 'words',
      });
    },
  );
});

describe('scanItems', () => {
  let folder = '';

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'rye-scan-'));
  });

  afterEach(async () => {
    await rm(folder, { recursive: true });
  });

  function item(id: string, text?: string): ScannedItem {
    const path = join(folder, `${id}.md`);
    mkdirSync(dirname(path), { recursive: true });
    if (text !== undefined) writeFileSync(path, text);
    return { type: 'knowledge', id, space: 'project', path, root: folder };
  }

  async function documents(result: ScanResult): Promise<SearchDocument[]> {
    const all: SearchDocument[] = [];
    for await (const { documents: batch } of result.changed()) all.push(...batch);
    return all;
  }

  async function index(items: readonly ScannedItem[]): Promise<Map<string, FileFingerprint>> {
    const found = await documents(scanItems(items, new Map()));
    return new Map(found.map(({ key, fingerprint }) => [key, fingerprint]));
  }

  it('gives every file to an empty index, in order and in batches', async () => {
    const items = Array.from({ length: 550 }, (_, at) =>
      item(`d/${at}`, `---\ntitle: T${at}\n---\n`),
    );
    const result = scanItems(items, new Map());
    const sizes: (readonly [number, number])[] = [];
    const titles: string[] = [];
    for await (const { documents: batch, left } of result.changed()) {
      sizes.push([batch.length, left]);
      titles.push(...batch.map(({ title }) => title));
    }
    expect(result).toMatchObject({ total: 550, changedCount: 550, removed: [] });
    expect(sizes).toEqual([
      [500, 50],
      [50, 0],
    ]);
    expect(titles).toEqual(items.map((_, at) => `T${at}`));
  });

  it('gives nothing when nothing changed', async () => {
    const items = [item('a', 'x'), item('b', 'y')];
    const result = scanItems(items, await index(items));
    expect(result).toMatchObject({ total: 2, changedCount: 0, removed: [] });
    expect(await documents(result)).toEqual([]);
  });

  it('notices new, changed and removed files', async () => {
    const items = [item('same', 'x'), item('longer', 'x'), item('touched', 'x'), item('gone', 'x')];
    const known = await index(items);
    await writeFile(join(folder, 'longer.md'), 'xx');
    utimesSync(join(folder, 'touched.md'), 1000, 1000);
    await unlink(join(folder, 'gone.md'));
    const result = scanItems([...items, item('new', 'n')], known);
    expect((await documents(result)).map(({ id }) => id)).toEqual(['longer', 'touched', 'new']);
    expect(result.removed).toEqual([join(folder, 'gone.md')]);
  });

  it('skips entries that are not files, unreadable files and duplicates', async () => {
    const a = item('a', 'x');
    mkdirSync(join(folder, 'b.md'));
    const result = scanItems([a, a, item('b'), item('c')], new Map());
    expect(result.total).toBe(1);
    const vanishing = scanItems([item('d', 'x')], new Map());
    await unlink(join(folder, 'd.md'));
    expect(await documents(vanishing)).toEqual([]);
  });

  it('takes the head of a huge file, and few such files in a batch', async () => {
    const items = Array.from({ length: 9 }, (_, at) =>
      item(`huge${at}`, `---\ntitle: T\n---\n${'word '.repeat(300_000)}`),
    );
    const sizes: number[] = [];
    for await (const { documents: batch } of scanItems(items, new Map()).changed()) {
      sizes.push(batch.length);
      for (const { body } of batch) expect(body.length).toBeLessThan(1024 * 1024);
    }
    expect(sizes).toEqual([8, 1]);
  });

  it('follows no link out of the folder of its type', async () => {
    const outside = await mkdtemp(join(tmpdir(), 'rye-outside-'));
    await writeFile(join(outside, 'secret.md'), 'secret words');
    await writeFile(join(folder, 'real.md'), 'own words');
    symlinkSync(join(outside, 'secret.md'), join(folder, 'out.md'));
    symlinkSync(join(folder, 'real.md'), join(folder, 'in.md'));
    symlinkSync(join(folder, 'none.md'), join(folder, 'broken.md'));
    const result = scanItems([item('out'), item('in'), item('broken')], new Map());
    expect((await documents(result)).map(({ body }) => body)).toEqual(['own words']);
    expect(readHead(item('out'), 9)).toBeUndefined();
    const replaced = scanItems([item('real')], new Map());
    await unlink(join(folder, 'real.md'));
    symlinkSync(join(outside, 'secret.md'), join(folder, 'real.md'));
    expect(await documents(replaced)).toEqual([]);
    await rm(outside, { recursive: true });
  });
});
