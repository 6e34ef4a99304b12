import { expect, it } from 'vitest';
import type { SearchDocument, SearchFilters, SearchNode } from '../../src/kernel/core/search.ts';
import type { SearchIndex } from '../../src/kernel/storage/search-index.ts';
import { type OpenStore, T0, T1 } from './fixtures.ts';

function document(key: string, changes: Partial<SearchDocument> = {}): SearchDocument {
  return {
    key: `/p/${key}.md`,
    fingerprint: { size: 1, mtime_ms: 1.5 },
    type: 'knowledge',
    id: key,
    space: 'project',
    title: '',
    tags: '',
    body: '',
    directive: '',
    status: '',
    model: '',
    time: T0,
    ...changes,
  };
}

const term = (text: string, changes: { prefix?: boolean; field?: 'title' } = {}): SearchNode => ({
  kind: 'term',
  text,
  prefix: false,
  ...changes,
});

/** The full-text index of items and exports. */
export function searchIndexCases(open: OpenStore): void {
  const ids = async (
    index: SearchIndex,
    text: SearchNode | undefined,
    filters: SearchFilters = {},
  ): Promise<readonly string[]> => {
    const { hits } = await index.search({ ...(text ? { text } : {}), filters, limit: 9 });
    return hits.map(({ id }) => id).toSorted();
  };

  it('finds words, prefixes, phrases, fields and combinations', async () => {
    const { index } = await open();
    await index.update(
      [
        document('a', { title: 'Budget ledger', body: 'money is counted' }),
        document('b', { title: 'Rules', tags: 'budget', body: 'the ledger of rules' }),
        document('c', { title: 'Café', body: 'the money ledger' }),
      ],
      [],
    );
    expect(await ids(index, term('ledger'))).toEqual(['a', 'b', 'c']);
    expect(await ids(index, term('led'))).toEqual([]);
    expect(await ids(index, term('led', { prefix: true }))).toEqual(['a', 'b', 'c']);
    expect(await ids(index, term('budget', { field: 'title' }))).toEqual(['a']);
    expect(await ids(index, term('cafe'))).toEqual(['c']);
    expect(await ids(index, { kind: 'phrase', text: 'money ledger' })).toEqual(['c']);
    const money = term('money');
    const not = { kind: 'not', node: term('counted') } as const;
    expect(await ids(index, { kind: 'and', nodes: [money, not] })).toEqual(['c']);
    expect(await ids(index, { kind: 'or', nodes: [money, term('rules')] })).toEqual([
      'a',
      'b',
      'c',
    ]);
    expect(await ids(index, term(`it's "quoted" * OR (`))).toEqual([]);
  });

  it('ranks a title above a body, counts all matches, and stops when it is told to', async () => {
    const { index } = await open();
    await index.update(
      [
        document('body', { body: `word ${'filler '.repeat(50)}` }),
        document('title', { title: 'word' }),
        document('other', { body: `word ${'filler '.repeat(90)}` }),
      ],
      [],
    );
    const query = { text: term('word'), filters: {}, limit: 2 };
    const { hits, total, complete } = await index.search(query);
    expect(hits).toHaveLength(2);
    expect(hits[0]).toMatchObject({ id: 'title', path: '/p/title.md', space: 'project' });
    expect(hits[0]?.score).toBeGreaterThan(0);
    expect({ total, complete }).toEqual({ total: 3, complete: true });
    expect(await index.search(query, () => true)).toMatchObject({ complete: false });
  });

  it('lists what passes the filters, newest first', async () => {
    const { index } = await open();
    await index.update(
      [
        document('a', { type: 'tool', space: 'user', directive: 'd/x', status: 'completed' }),
        document('b/c', { type: 'directive', time: T1, model: 'm' }),
      ],
      [],
    );
    const all = await index.search({ filters: {}, limit: 9 });
    expect(all).toMatchObject({ total: 2, complete: true, hits: [{ id: 'b/c', score: 0 }, {}] });
    const filters: readonly (readonly [SearchFilters, readonly string[]])[] = [
      [{ types: ['tool'] }, ['a']],
      [{ space: 'user' }, ['a']],
      [{ directive: 'd/x', status: 'completed' }, ['a']],
      [{ model: 'm' }, ['b/c']],
      [{ after: T1 }, ['b/c']],
      [{ before: T1 }, ['a']],
      [{ granted: ['rye.fetch.directive.b.*'] }, ['b/c']],
      [{ granted: [] }, []],
      [{ without: 'b/' }, ['a']],
    ];
    for (const [filter, expected] of filters)
      expect(await ids(index, undefined, filter)).toEqual(expected);
  });

  it('replaces and removes documents, and tells fingerprints by folder', async () => {
    const { index } = await open();
    await index.update([document('a', { body: 'old' }), document('b', { body: 'old' })], []);
    const fingerprint = { size: 2, mtime_ms: 2.5 };
    const outside = document('c', { key: '/q/c.md' });
    await index.update([document('a', { body: 'new', fingerprint }), outside], ['/p/b.md']);
    expect(await ids(index, term('old'))).toEqual([]);
    expect(await ids(index, term('new'))).toEqual(['a']);
    expect(await index.fingerprints()).toEqual(
      new Map([
        ['/p/a.md', fingerprint],
        ['/q/c.md', outside.fingerprint],
      ]),
    );
    const inside = await index.fingerprints({ folder: '/p', side: 'inside' });
    expect([...inside.keys()]).toEqual(['/p/a.md']);
    const beyond = await index.fingerprints({ folder: '/p', side: 'outside' });
    expect([...beyond.keys()]).toEqual(['/q/c.md']);
    const seen: string[] = [];
    const wanted = await index.fingerprints(undefined, (path, { size }) => {
      seen.push(path);
      return size === fingerprint.size;
    });
    expect(seen.toSorted()).toEqual(['/p/a.md', '/q/c.md']);
    expect(wanted).toEqual(new Map([['/p/a.md', fingerprint]]));
  });

  it('remembers the folders that were indexed', async () => {
    const { index } = await open();
    await index.updateFolders(
      new Map([
        ['/a', 1],
        ['/b', 2],
      ]),
      [],
    );
    await index.updateFolders(new Map([['/a', 3]]), ['/b']);
    expect(await index.folders()).toEqual(new Map([['/a', 3]]));
    await index.update([], []);
    expect(await index.fingerprints()).toEqual(new Map());
  });
}
