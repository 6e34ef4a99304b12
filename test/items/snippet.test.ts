import { describe, expect, it, test } from 'vitest';
import { parseQuery } from '../../src/features/search/query.ts';
import { contextOf, snippetOf, wordsOf } from '../../src/features/search/snippet.ts';
import { type SearchNode, SNIPPET_CLOSE, SNIPPET_OPEN } from '../../src/kernel/core/search.ts';

function node(query: string): SearchNode | undefined {
  return parseQuery(query, 0).text;
}

function snippet(
  query: string,
  body: string,
  more: { title?: string; tags?: string } = {},
): string {
  return snippetOf({ title: '', tags: '', id: 'a/b', body, ...more }, node(query))
    .replaceAll(SNIPPET_OPEN, '[')
    .replaceAll(SNIPPET_CLOSE, ']');
}

describe('snippetOf', () => {
  test.each([
    ['budget', 'the Budget of Budgets', 'the [Budget] of Budgets'],
    ['budg*', 'the Budget of Budgets', 'the [Budget] of [Budgets]'],
    ['cafe', 'un Café, CAFE\u0301', 'un [Café], [CAFE\u0301]'],
    ['"money ledger"', 'ledger money, the money-ledger', 'ledger money, the [money-ledger]'],
    ['foo-bar', 'foo foo bar', 'foo [foo bar]'],
    ['a NOT b', 'a b', '[a] b'],
    ['a OR c', 'a b c', '[a] b [c]'],
    ['x.*', 'x. xyz', '[x]. [xyz]'],
    ['straße', 'Straße STRASSE', '[Straße] STRASSE'],
    ['ключ', 'КЛЮЧ', '[КЛЮЧ]'],
    ['予算', '東京都の予算は', '東京都の[予算]は'],
    ['delay', 'the retryDelayMs', 'the retry[Delay]Ms'],
    ['none', 'words of the body', 'words of the body'],
    ['title:words', 'words', 'words'],
    ['status:error', 'words', 'words'],
  ])('marks %s', (query, body, expected) => {
    expect(snippet(query, body)).toBe(expected);
  });

  it('takes the title, the tags or the id if the body does not match', () => {
    expect(snippet('budget', 'body', { title: 'The budget' })).toBe('The [budget]');
    expect(snippet('tag:money', 'money', { tags: 'money rules' })).toBe('[money] rules');
    expect(snippet('id:b', 'b')).toBe('a/[b]');
  });

  it('shows the place where most of the terms are together', () => {
    const filler = 'filler '.repeat(80);
    const found = snippet('one two', `one ${filler} one ${filler} one and two ${filler}`);
    expect(found).toMatch(/^…(?:filler )+ ?\[one\] and \[two\] (?: ?filler)+…$/);
    expect(found.length).toBeLessThan(230);
  });

  it('cannot be marked by a document itself', () => {
    expect(snippet('budget', `${SNIPPET_OPEN}fake${SNIPPET_CLOSE} budget`)).toBe('fake [budget]');
  });

  it('stays short and whole if a word is as long as the document', () => {
    expect(snippet('y*', 'y'.repeat(1_000_000)).length).toBeLessThan(220);
    expect(snippet('y', `${'😀'.repeat(500)} y ${'😀'.repeat(500)}`)).toMatch(/^…[^\uFFFD]*…$/);
    expect(snippet('"x y"', `x${' '.repeat(1_000_000)}y`).length).toBeLessThan(220);
  });
});

describe('contextOf', () => {
  it('gives the lines around the first match', () => {
    const text = '1\n2\n3\r\n4\nthe Budget of\n6\n7\n8\n9\n';
    expect(contextOf(text, node('budget'), 3)).toBe('2\n3\n4\nthe Budget of\n6\n7\n8');
    expect(contextOf('the budget', node('budget'), 3)).toBe('the budget');
    expect(contextOf('\nthe budget\n', node('budget'), 3)).toBe('the budget\n');
    expect(contextOf(text, node('other'), 3)).toBeUndefined();
    expect(contextOf(text, undefined, 3)).toBeUndefined();
  });

  it('stays short if a line is as long as the document', () => {
    const text = `${'a '.repeat(500_000)}budget${' a'.repeat(500_000)}`;
    expect(contextOf(text, node('budget'), 3)?.length).toBeLessThan(2500);
  });
});

describe('wordsOf', () => {
  it('sees words as the index does', () => {
    expect(wordsOf('Café, foo-bar_2 ключ')).toEqual(['cafe', 'foo', 'bar', '2', 'ключ']);
  });
});
