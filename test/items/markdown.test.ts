import { array, assert, constantFrom, property } from 'fast-check';
import MarkdownIt from 'markdown-it';
import { expect, it } from 'vitest';
import { type Fence, findFence } from '../../src/kernel/items/markdown.ts';
import { runs } from '../helpers/runs.ts';

const markdown = new MarkdownIt('commonmark');

/** The first top-level fence as the parser finds it. */
function parsedFence(text: string, languages: readonly string[]): Fence | undefined {
  const lines = text.split('\n');
  for (const { type, level, map, info, markup } of markdown.parse(text, {})) {
    const language = info.trim().split(/\s/)[0]?.toLowerCase() ?? '';
    if (type !== 'fence' || level !== 0 || map === null || !languages.includes(language)) continue;
    const [start, end] = map;
    const last = lines[end - 1] ?? '';
    const closed = end - 1 > start && new RegExp(`^ {0,3}${markup}[\`~]*\\s*$`).test(last);
    const content = lines.slice(start + 1, closed ? end - 1 : end).join('\n');
    return { language, content, line: start + 1, endLine: end + 1, closed };
  }
  return undefined;
}

const line = constantFrom(
  '```xml',
  '```',
  '~~~ xml',
  '~~~',
  '````xml',
  '````',
  '``` XML more',
  '   ```xml',
  '    ```',
  '``` a`b',
  '```json',
  'text',
  'Text: `code`',
  '# Title',
  '####### seven',
  '',
  '  ',
  '\t',

  '- item',
  '> quote',
  '1. one',
  '---',
  '===',
  '[a]: b',
  '<div>',
  '</div>',
  '<!-- a -->',
  '<!--',

  '-->',
  '<!-- a --> b',
  '  indented',
  '    code',
  '\tcode',
  '|a|b|',
  '*',
  'a\u2028b',
  '\\```xml',
  '``',
  '~~',
  '  ~~~  ',
  '``` ',
  '<directive/>',
  'a\rb',
  '\0',
);

it('findFence finds the fence that a parser of CommonMark finds', () => {
  assert(
    property(array(line, { maxLength: 9 }), (lines) => {
      const text = lines.join('\n');
      // the parser counts other ends of lines too; texts of items have none
      if (/[\r\0]/.test(text)) return;
      expect(findFence(text, ['xml'])).toEqual(parsedFence(text, ['xml']));
    }),
    runs(3000),
  );
});

it.each([
  ['```xml\n<a/>\n```\n', { content: '<a/>', line: 1, endLine: 4 }],
  ['<!-- rye:signed -->\n# Title\n\nText.\n```xml\n```', { content: '', line: 5, endLine: 7 }],
  ['~~~\n```xml\n~~~\n```xml\n<b/>\n```', { content: '<b/>', line: 4, endLine: 7 }],
])('findFence reads %j', (text, expected) => {
  expect(findFence(text, ['xml'])).toMatchObject({ ...expected, language: 'xml', closed: true });
});
