import { expect, it } from 'vitest';
import { renderPrompt } from '../../src/kernel/items/prompt.ts';

const parts = {
  name: 'greet',
  description: 'Say hi',
  permissionsXml: '',
  body: ' Do it. \n',
  result: { outputs: [] },
};

it('renders description, permissions as written and the body', () => {
  const permissionsXml = '<permissions><execute>*</execute></permissions>';
  expect(renderPrompt({ ...parts, permissionsXml })).toBe(
    `<directive name="greet">\n<description>Say hi</description>\n${permissionsXml}\nDo it.\n</directive>`,
  );
});

it('omits empty parts', () => {
  expect(renderPrompt({ ...parts, body: '' })).toBe(
    '<directive name="greet">\n<description>Say hi</description>\n</directive>',
  );
});

it('escapes name and description', () => {
  const text = renderPrompt({ ...parts, name: 'a"b<c', description: '"x" < y & z' });
  expect(text).toContain('<directive name="a&quot;b&lt;c">');
  expect(text).toContain('<description>"x" &lt; y &amp; z</description>');
});

it('explains how to return the outputs', () => {
  const outputs = [
    { name: 'text', type: 'string', required: true, description: 'The text' },
    { name: 'n', type: 'integer', required: false, description: '' },
  ] as const;
  const text = renderPrompt({ ...parts, result: { outputs } });
  expect(text).toContain('`rye_directive_return`');
  expect(text).toContain(
    '{\n  "text": "<The text (string) [required]>",\n  "n": "<n (integer)>"\n}',
  );
  expect(text).toContain('"status": "error"');
  expect(text.endsWith('\n</directive>')).toBe(true);
});
