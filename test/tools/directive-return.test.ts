import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import { type OutputDeclaration, VALUE_TYPES } from '../../src/kernel/core/plan.ts';
import {
  checkOutputs,
  directiveReturnDefinition,
} from '../../src/kernel/tools/directive-return.ts';

function output(name: string, type: OutputDeclaration['type'], required = true): OutputDeclaration {
  return { name, type, required, description: '' };
}

describe('directiveReturnDefinition', () => {
  it('describes the outputs', () => {
    const outputs = [
      { ...output('report', 'file'), description: 'Path.' },
      output('n', 'integer', false),
    ];
    expect(directiveReturnDefinition({ outputs })).toMatchObject({
      name: 'rye_directive_return',
      input_schema: {
        type: 'object',
        properties: { report: { type: 'string', description: 'Path.' }, n: { type: 'integer' } },
        required: ['report'],
      },
    });
  });
});

describe('checkOutputs', () => {
  // Requirement: falsy-output-missing
  it('takes false, zero and empty values as present', () => {
    const values: JsonObject = {
      string: '',
      integer: 0,
      number: 0,
      boolean: false,
      array: [],
      object: {},
      file: '',
      enum: '',
    };
    expect(
      checkOutputs({ outputs: VALUE_TYPES.map((type) => output(type, type)) }, values),
    ).toEqual({ ok: true, outputs: values });
  });

  it.each<[JsonObject]>([[{}], [{ n: null }]])('refuses a missing required output: %j', (input) => {
    expect(checkOutputs({ outputs: [output('n', 'integer')] }, input)).toEqual({
      ok: false,
      problems: ['n: is required (integer)'],
    });
  });

  it('coerces by the table, refuses what it cannot, and names every problem', () => {
    expect(
      checkOutputs(
        { outputs: [output('n', 'integer'), output('l', 'array')] },
        { n: '5', l: '[1]' },
      ),
    ).toEqual({
      ok: true,
      outputs: { n: 5, l: [1] },
    });
    expect(
      checkOutputs(
        { outputs: [output('n', 'integer'), output('b', 'boolean')] },
        { n: 1.5, b: 'maybe' },
      ),
    ).toEqual({
      ok: false,
      problems: ['n: must be integer', 'b: must be boolean'],
    });
  });

  it('drops absent, undeclared and inherited members', () => {
    expect(checkOutputs({ outputs: [output('n', 'integer', false)] }, { other: 1 })).toEqual({
      ok: true,
      outputs: {},
    });
    expect(checkOutputs({ outputs: [output('toString', 'string')] }, {}).ok).toBe(false);
  });
});
