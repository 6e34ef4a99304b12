import { expect, test } from 'vitest';
import type { ItemType } from '../../src/kernel/core/ids.ts';
import { summarize } from '../../src/kernel/items/metadata.ts';

test.each<[ItemType, string, string, string]>([
  [
    'directive',
    '```xml\n<directive name="a" version="1.2.3">\n<description>\n Say &lt;hi&gt;\n now</description>',
    '1.2.3',
    'Say <hi> now',
  ],
  ['directive', 'nothing', '', ''],
  [
    'tool',
    "export const __version__ = '1.0.0';\nconst __tool_description__ = \"It's\";",
    '1.0.0',
    "It's",
  ],
  ['tool', '__version__ = "2.0.0"\n__tool_description__: str = "P"\n', '2.0.0', 'P'],
  [
    'tool',
    '# rye:tool\n# description: Shell tool # note\n# version: 1.0.1\n',
    '1.0.1',
    'Shell tool',
  ],
  ['tool', 'description: "M"\r\nversion: 1.0.0\r\n', '1.0.0', 'M'],
  ['knowledge', '---\ntitle: T\nversion: "1.0.0"\n---\n', '1.0.0', 'T'],
  ['knowledge', '```yaml\ndescription: D\ntitle: T\n```', '', 'D'],
  ['rule', '---\ndescription: |\n  x\n---\n', '', 'x'],
  ['skill', '---\nname: s\ndescription: Use it\n---\n', '', 'Use it'],
  ['skill', '---\ndescription: >-\n  Use it\n  now\nname: s\n---\n', '', 'Use it now'],
  ['skill', '---\ndescription: >\n  Use it\n\n  now\n---\n', '', 'Use it now'],
  ['skill', '---\ndescription: |\n  Use it\n  now\n---\n', '', 'Use it now'],
  ['skill', '---\ndescription: "Use \\"it\\"\n  now"\n---\n', '', 'Use "it" now'],
  ['skill', "---\ndescription: 'It''s\n  here'\n---\n", '', "It's here"],
  ['skill', '---\ndescription: Use it\n  now\n---\n', '', 'Use it now'],
  ['skill', '---\ndescription:\n  Use it\n---\n', '', 'Use it'],
  ['skill', '\uFEFF---\r\ndescription: >\r\n  Use it\r\n---\r\n', '', 'Use it'],
  ['skill', '---\ndescription: Use when: it is late\n---\n', '', 'Use when: it is late'],
  ['skill', '---\ndescription: [a]\nversion: 1\n---\n', '1', ''],
  ['skill', '---\nmetadata:\n  description: inner\n---\n', '', ''],
  ['knowledge', '\uFEFF---\ntitle: >\n  T\n---\n', '', 'T'],
])('%s: %j', (type, text, version, description) => {
  expect(summarize(type, text)).toEqual({ version, description });
});

test('a long description is cut', () => {
  expect(summarize('skill', `description: ${'x'.repeat(1000)}`).description).toHaveLength(200);
});
