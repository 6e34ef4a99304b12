import { describe, expect, it } from 'vitest';
import { createSearchTool } from '../../../src/features/search/search-tool.ts';
import { RyeError } from '../../../src/kernel/core/errors.ts';
import { type SearchHit, SNIPPET_CLOSE, SNIPPET_OPEN } from '../../../src/kernel/core/search.ts';
import { Project, shown } from '../helpers.ts';

const hit: SearchHit = {
  type: 'knowledge',
  id: 'a/b',
  space: 'project',
  path: '.ai/knowledge/a/b.md',
  title: 'Title',
  score: 2.5,
  snippet: `one ${SNIPPET_OPEN}two${SNIPPET_CLOSE}\nthree`,
  signature: 'signed',
  verified: true,
  time: '2026-01-01T00:00:00.000Z',
};
const reader = { capabilities: ['rye.*'], denies: () => false };
const whole = { complete: true, notices: [] };

describe('rye/search', () => {
  it('shows hits with marked snippets', async () => {
    await using project = await Project.create();
    const asked: unknown[] = [];
    const tool = createSearchTool((query) => {
      asked.push(query);
      return Promise.resolve({ results: [hit], total: 7, ...whole });
    }, reader);
    const result = shown(await tool.execute({ query: 'two', limit: 1 }, project.context()));
    expect(asked).toEqual([
      { ...reader, type: 'knowledge', query: 'two', limit: 1, withoutThreads: true },
    ]);
    expect(result.text).toBe(
      'a/b: Title\n  one **two** three\n(1 of 7 results shown; raise limit)',
    );
    expect(result.data).toMatchObject({
      total: 7,
      results: [{ id: 'a/b', snippet: 'one **two** three' }],
    });
  });

  it('marks entries that do not verify, and reports truncation', async () => {
    await using project = await Project.create();
    const results = [{ ...hit, signature: 'modified', verified: false }];
    const notices = ['stopped after 2 s: more may match'];
    const tool = createSearchTool(
      () => Promise.resolve({ results, total: 1, complete: false, notices }),
      reader,
    );
    const result = shown(await tool.execute({ query: 'two' }, project.context()));
    expect(result.text).toBe(
      'a/b: Title [modified]\n  one **two** three\n(stopped after 2 s: more may match)',
    );
    expect(result.data).toMatchObject({ complete: false, results: [{ signature: 'modified' }] });
  });

  it('reports an empty result, and explains a malformed query', async () => {
    await using project = await Project.create();
    const empty = createSearchTool(
      () => Promise.resolve({ results: [], total: 0, ...whole }),
      reader,
    );
    expect(shown(await empty.execute({ query: 'x' }, project.context())).text).toBe('No results.');
    const bad = createSearchTool(
      () => Promise.reject(new RyeError('query_malformed', 'column 3')),
      reader,
    );
    expect(shown(await bad.execute({ query: '"x' }, project.context())).data).toEqual({
      code: 'query_malformed',
    });
  });
});
