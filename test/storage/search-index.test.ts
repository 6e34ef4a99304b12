import { describe, expect, it } from 'vitest';
import type { SearchDocument, SearchNode } from '../../src/kernel/core/search.ts';
import type { SearchIndex } from '../../src/kernel/storage/search-index.ts';
import { openTestStore } from './support.ts';

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
    time: '2026-02-17T10:00:00.000Z',
    ...changes,
  };
}

const term = (
  text: string,
  extra: { prefix?: boolean; field?: 'title' | 'tag' | 'body' | 'id' } = {},
): SearchNode => ({
  kind: 'term',
  text,
  prefix: false,
  ...extra,
});
const phrase = (text: string): SearchNode => ({ kind: 'phrase', text });
const and = (...nodes: readonly SearchNode[]): SearchNode => ({ kind: 'and', nodes });
const or = (...nodes: readonly SearchNode[]): SearchNode => ({ kind: 'or', nodes });
const not = (node: SearchNode): SearchNode => ({ kind: 'not', node });

async function indexOf(...documents: readonly SearchDocument[]): Promise<SearchIndex> {
  const { index } = openTestStore();
  await index.update(documents, []);
  return index;
}

async function found(index: SearchIndex, text: SearchNode): Promise<readonly string[]> {
  const { hits, total } = await index.search({ text, filters: {}, limit: 50 });
  expect(total).toBe(hits.length);
  return hits.map(({ id }) => id).toSorted();
}

describe('queries', () => {
  // Requirement: words-across-fields
  it('find terms, prefixes, phrases and combinations', async () => {
    const index = await indexOf(
      document('a', { title: 'Budget ledger', body: 'money is counted in micro dollars' }),
      document('b', { title: 'Rules', tags: 'budget stream', body: 'the ledger of rules' }),
      document('c', { title: 'Café', body: 'the money ledger budget' }),
    );
    expect(await found(index, term('ledger'))).toEqual(['a', 'b', 'c']);
    expect(await found(index, term('budget', { field: 'title' }))).toEqual(['a']);
    expect(await found(index, term('budget', { field: 'tag' }))).toEqual(['b']);
    expect(await found(index, term('c', { field: 'id' }))).toEqual(['c']);
    expect(await found(index, term('led'))).toEqual([]);
    expect(await found(index, term('led', { prefix: true }))).toEqual(['a', 'b', 'c']);
    expect(await found(index, term('cafe'))).toEqual(['c']);
    expect(await found(index, phrase('money ledger'))).toEqual(['c']);
    expect(await found(index, and(term('budget'), term('ledger')))).toEqual(['a', 'b', 'c']);
    expect(await found(index, or(term('micro'), term('stream')))).toEqual(['a', 'b']);
    expect(await found(index, and(term('ledger'), not(term('rules'))))).toEqual(['a', 'c']);
    expect(await found(index, and(not(term('rules')), term('ledger'), not(term('cafe'))))).toEqual([
      'a',
    ]);
    expect(await found(index, and(term('ledger'), not(and(term('money'), term('cafe')))))).toEqual([
      'a',
      'b',
    ]);
    expect(await found(index, and(term('ledger'), not(not(term('rules')))))).toEqual(['b']);
    expect(
      await found(index, and(term('ledger'), or(not(term('rules')), not(term('money'))))),
    ).toEqual(['a', 'b', 'c']);
  });

  it('find parts of identifiers, and words of scripts without spaces', async () => {
    const index = await indexOf(
      document('code', { body: 'retryDelayMs and max_retries, then parseHTTPResponse' }),
      document('tokyo', { title: '報告', body: '東京都の予算は三億円です。' }),
      document('kyoto', { body: '京都へ行く' }),
    );
    for (const word of ['retryDelayMs', 'delay', 'retry', 'HTTP', 'response', 'retries', 'Ms']) {
      expect([word, await found(index, term(word))]).toEqual([word, ['code']]);
    }
    for (const word of ['予算', '東京', '三億円', '東京都の予算', '億', '報告']) {
      expect([word, await found(index, term(word))]).toEqual([word, ['tokyo']]);
    }
    expect(await found(index, term('京都'))).toEqual(['kyoto', 'tokyo']);
    expect(await found(index, term('く'))).toEqual(['kyoto']);
    expect(await found(index, term('東京', { prefix: true }))).toEqual(['tokyo']);
    expect(await found(index, term('算予'))).toEqual([]);
    expect(await found(index, phrase('retry delay'))).toEqual(['code']);
    expect(await found(index, term('elay'))).toEqual([]);
  });

  it('index a long word without spaces in linear time', async () => {
    const index = await indexOf(
      document('a', { body: `${'a'.repeat(2_000_000)} ${'京'.repeat(200_000)}` }),
    );
    expect(await found(index, term('京京'))).toEqual(['a']);
  });

  it('take nothing of the text for syntax', async () => {
    const index = await indexOf(document('a', { body: 'x AND y NEAR z "quoted" title: *' }));
    for (const text of ['AND', 'NEAR(x y)', '"quoted"', 'title:', 'x" OR "y', 'z*', 'body : x']) {
      expect(await found(index, phrase(text))).toEqual(
        text === 'x" OR "y' || text === 'body : x' || text === 'NEAR(x y)' ? [] : ['a'],
      );
    }
    for (const text of ['', '"', '*', '^', '\0', '()', "'; DROP TABLE documents; --"]) {
      expect(await found(index, term(text, { prefix: true }))).toEqual([]);
    }
  });

  it('refuse a NOT with nothing beside it', async () => {
    const index = await indexOf();
    for (const text of [
      not(term('a')),
      and(not(term('a')), not(term('b'))),
      or(term('a'), not(term('b'))),
      and(),
    ]) {
      await expect(index.search({ text, filters: {}, limit: 5 })).rejects.toMatchObject({
        code: 'query_malformed',
      });
    }
  });
});

describe('results', () => {
  it('rank by relevance, titles first, and carry no text', async () => {
    const index = await indexOf(
      document('body', { body: `one word among many others ${'filler '.repeat(80)} budget here` }),
      document('title', { title: 'Budget', body: 'short' }),
    );
    const { hits } = await index.search({ text: term('budget'), filters: {}, limit: 5 });
    expect(hits.map(({ id }) => id)).toEqual(['title', 'body']);
    expect(hits[0]?.score).toBeGreaterThan(hits[1]?.score ?? Number.POSITIVE_INFINITY);
    expect(hits[1]?.score).toBeGreaterThan(0);
    expect(hits[0]).toEqual({
      type: 'knowledge',
      id: 'title',
      space: 'project',
      path: '/p/title.md',
      score: hits[0]?.score,
    });
  });

  it('keep the best of more matches than are asked for', async () => {
    const index = await indexOf(
      ...Array.from({ length: 2100 }, (_, at) => document(`d${at}`, { body: 'ledger' })),
      document('best', { title: 'ledger', body: 'ledger' }),
    );
    const { hits, total } = await index.search({ text: term('ledger'), filters: {}, limit: 3 });
    expect(total).toBe(2101);
    expect(hits.map(({ id }) => id)).toEqual(['best', 'd0', 'd1']);
  });

  it('end when the time is over, and report it', async () => {
    const index = await indexOf(
      ...Array.from({ length: 9 }, (_, at) => document(`d${at}`, { body: 'ledger' })),
    );
    let looks = 0;
    const query = { text: term('ledger'), filters: {}, limit: 9 };
    const answer = await index.search(query, () => (looks += 1) === 3);
    expect(answer).toMatchObject({ total: 3, complete: false });
    expect(answer.hits).toHaveLength(3);
    expect(await index.search(query)).toMatchObject({ total: 9, complete: true });
  });

  it('are filtered exactly, counted in full and limited', async () => {
    const day = (n: number): string => `2026-02-0${n}T00:00:00.000Z`;
    const index = await indexOf(
      document('a', { body: 'x', directive: 'demo/a', status: 'error', model: 'm1', time: day(1) }),
      document('b', {
        body: 'x',
        directive: 'demo/ab',
        status: 'completed',
        model: 'm2',
        time: day(2),
      }),
      document('c', { body: 'x', type: 'tool', space: 'user', time: day(3) }),
    );
    const ids = async (filters: Parameters<typeof index.search>[0]['filters'], text?: SearchNode) =>
      (await index.search({ filters, limit: 9, ...(text ? { text } : {}) })).hits.map(
        ({ id }) => id,
      );
    for (const text of [undefined, term('x')]) {
      expect(await ids({ directive: 'demo/a' }, text)).toEqual(['a']);
      expect(await ids({ status: 'completed' }, text)).toEqual(['b']);
      expect(await ids({ model: 'm1' }, text)).toEqual(['a']);
      expect(await ids({ types: ['tool', 'rule'] }, text)).toEqual(['c']);
      expect(await ids({ types: [] }, text)).toEqual([]);
      expect(await ids({ space: 'user' }, text)).toEqual(['c']);
      expect(await ids({ after: '2026-02-02', before: '2026-02-03' }, text)).toEqual(['b']);
    }
    expect(await ids({})).toEqual(['c', 'b', 'a']);
    const limited = await index.search({
      text: term('x'),
      filters: { types: ['knowledge'] },
      limit: 1,
    });
    expect(limited.total).toBe(2);
    expect(limited.hits).toHaveLength(1);
    expect(limited.hits[0]).toMatchObject({ id: 'a' });
  });
});

describe('updates', () => {
  it('replace, remove and keep fingerprints', async () => {
    const index = await indexOf(
      document('a', { body: 'old words' }),
      document('b', { body: 'words' }),
    );
    const fingerprint = { size: 2, mtime_ms: 2 };
    await index.update(
      [document('a', { body: 'new words', fingerprint })],
      ['/p/b.md', '/p/none.md'],
    );
    expect(await found(index, term('words'))).toEqual(['a']);
    expect(await found(index, term('old'))).toEqual([]);
    expect(await index.fingerprints()).toEqual(new Map([['/p/a.md', fingerprint]]));
    await index.update([], []);
    await index.update([], ['/p/a.md']);
    expect((await index.search({ filters: {}, limit: 5 })).total).toBe(0);
  });

  it('are all or nothing', async () => {
    const index = await indexOf(document('a', { body: 'kept' }));
    const broken = { ...document('b'), status: undefined } as unknown as SearchDocument;
    await expect(index.update([document('a', { body: 'lost' }), broken], [])).rejects.toThrow(
      /NOT NULL/,
    );
    expect(await found(index, term('kept'))).toEqual(['a']);
  });
});

describe('fingerprints', () => {
  it('are read in pages that leave none out', async () => {
    const folder = (name: string, count: number) =>
      Array.from({ length: count }, (_, at) => document(`${name}${at}`, { key: `${name}${at}` }));
    const before = folder('/a/', 1000);
    const inside = folder('/p/', 2500);
    // follows the folder's files directly, and counts as outside
    const after = [document('end', { key: '/p0' }), ...folder('/q/', 1001)];
    const index = await indexOf(...after, ...inside, ...before);
    const keys = (documents: readonly SearchDocument[]) =>
      documents.map(({ key }) => key).toSorted();
    const read = async (side?: 'inside' | 'outside') =>
      [...(await index.fingerprints(side && { folder: '/p', side })).keys()].toSorted();
    expect(await read()).toEqual(keys([...before, ...inside, ...after]));
    expect(await read('inside')).toEqual(keys(inside));
    expect(await read('outside')).toEqual(keys([...before, ...after]));
  });
});
