import { describe, expect, it, onTestFinished } from 'vitest';
import { interpolateText } from '../../src/kernel/items/prompt.ts';
import { interpolate } from '../../src/kernel/policy/interpolate.ts';
import { openLab } from '../attacks/lab.ts';

it.each([
  ["Hi ${inputs.who || 'nobody'}.", 'Hi nobody.'],
  ['Hi ${inputs.who || "no || body"}.', 'Hi no || body.'],
  ["${inputs.who || inputs.name || 'x'}", 'Ada'],
  ['${inputs.count || 3}', 3],
  ['${inputs.flag || false}', false],
  ["${inputs.name || 'x'}", 'Ada'],
])('hooks replace %s', (text, value) => {
  expect(interpolate(text, { inputs: { name: 'Ada' } })).toEqual({ value, unresolved: [] });
});

it.each([
  ["Hi ${inputs.who || 'nobody'}.", 'Hi nobody.'],
  ['Hi ${ inputs.who || "you" }.', 'Hi you.'],
  ["Hi ${inputs.name || 'x'}.", 'Hi Ada.'],
])('the body of a directive replaces %s', (text, value) => {
  const scope = { inputs: { name: 'Ada' }, secretNames: [], env: {}, envAllow: [] };
  expect(interpolateText(text, scope)).toEqual({ value, missing: [] });
});

describe('an alternative that nothing reads is refused when it is signed', () => {
  const directive = (hook: string, body: string): string =>
    `# d\n\n\`\`\`xml\n<directive name="d" version="1.0.0"><metadata><description>d</description><category></category><author>a</author>${hook}</metadata><inputs><input name="who" type="string">W.</input></inputs></directive>\n\`\`\`\n\n${body}\n`;
  const hooks = (text: string): string =>
    `<hooks><hook id="h" event="thread_started"><action inject="${text}" /></hook></hooks>`;

  it.each([
    ['a hook', hooks('Hi ${inputs.who || nobody here}'), 'Hi.'],
    ['the body', '', 'Hi ${inputs.who || nobody here}.'],
    ['the body, of a step', '', 'Hi ${steps.x.data || 1}.'],
  ])('in %s', async (_, hook, body) => {
    const lab = await openLab();
    onTestFinished(async () => await lab.remove());
    lab.write('directives/d.md', directive(hook, body));
    const [signed] = await lab.rye().items.sign('directive', 'd');
    expect(signed).toMatchObject({ status: 'failed' });
    expect(JSON.stringify(signed?.problems)).toContain('||');
  });
});
