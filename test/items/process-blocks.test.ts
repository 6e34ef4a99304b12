import { describe, expect, it } from 'vitest';
import type { RyeError } from '../../src/kernel/core/errors.ts';
import { parseDirective } from '../../src/kernel/items/directive.ts';
import { parseConditionText } from '../../src/kernel/items/process-blocks.ts';
import { evaluate, parseCondition } from '../../src/kernel/policy/condition.ts';

const STEP = '<step name="s"><execute item_type="tool" item_id="a/b"/></step>';

function parse(process: string) {
  const xml = `<directive name="a" version="1.0.0">\n<metadata><description>d</description><category></category><author>x</author></metadata>\n<process>\n${process}\n</process>\n</directive>`;
  return parseDirective(`# A\n\n\`\`\`xml\n${xml}\n\`\`\`\n`, 'a.md').steps;
}

describe('a process', () => {
  it('keeps the elements around each step', () => {
    const [step] = parse(
      `<foreach item="f" in="\${inputs.files}" parallel="5" on_error="continue"><if condition="f.ok">${STEP}</if></foreach>`,
    );
    expect(step?.within).toMatchObject([
      { kind: 'foreach', item: 'f', in: '${inputs.files}', parallel: 5, on_error: 'continue' },
      { kind: 'if', text: 'f.ok', origin: 'a.md:7' },
    ]);
  });

  it.each([
    [`<foreach in="[1]">${STEP}</foreach>`, /no usable item/],
    [`<foreach item="steps" in="[1]">${STEP}</foreach>`, /no usable item/],
    [`<foreach item="f">${STEP}</foreach>`, /has no list/],
    [`<foreach item="f" in="[1">${STEP}</foreach>`, /not a JSON list/],
    [`<foreach item="f" in="[1]" parallel="0">${STEP}</foreach>`, /from 1 to 64/],
    [`<foreach item="f" in="[1]" on_error="stop">${STEP}</foreach>`, /neither fail nor continue/],
    [`<foreach item="f" in="[1]" paralel="2">${STEP}</foreach>`, /unknown attribute "paralel"/],
    ['<foreach item="f" in="[1]"></foreach>', /has no steps/],
    [`<if>${STEP}</if>`, /it is empty/],
    [`<if condition="a is b">${STEP}</if>`, /"is" is not an operator/],
    [`<else>${STEP}</else>`, /does not follow/],
  ])('refuses %s at its place', (process, message) => {
    try {
      parse(process);
    } catch (error) {
      const { code, location, message: text } = error as RyeError;
      expect([code, location?.line]).toEqual(['directive_malformed', 7]);
      expect(text).toMatch(message);
      return;
    }
    throw new Error('it was not refused');
  });
});

const CONTEXT = {
  inputs: { n: 3, mode: 'fast', off: 'false', list: [1], none: [] },
  f: { ok: true },
};

it.each([
  ['inputs.n', true],
  ['${inputs.n} == 3', true],
  ['inputs.n >= 4', false],
  ["inputs.mode eq 'fast'", true],
  ['inputs.mode == fast and inputs.n < 3', false],
  ['inputs.mode == slow or f.ok', true],
  ['not inputs.missing', true],
  ['inputs.off', false],
  ['inputs.none', false],
  ['inputs.list', true],
  ['inputs.mode in ["fast", "slow"]', true],
  ['inputs.mode regex ^f', true],
  ['inputs.missing exists', false],
  ['inputs.list[0] == 1', true],
])('the condition %s is %s', (text, expected) => {
  const condition = parseConditionText(text);
  expect(evaluate(parseCondition(condition), CONTEXT)).toBe(expected);
});
