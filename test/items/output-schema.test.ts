import { expect, it } from 'vitest';
import type { RyeError } from '../../src/kernel/core/errors.ts';
import { parseDirective } from '../../src/kernel/items/directive.ts';
import { parseSchema } from '../../src/kernel/items/output-schema.ts';

function parse(output: string) {
  const xml = `<directive name="a" version="1.0.0">\n<metadata><description>d</description><category></category><author>x</author></metadata>\n<outputs>\n${output}\n</outputs>\n</directive>`;
  return parseDirective(`# A\n\n\`\`\`xml\n${xml}\n\`\`\`\n\nDo.\n`, 'a.md').outputs;
}

function refusal(output: string): RyeError {
  try {
    parse(output);
  } catch (error) {
    return error as RyeError;
  }
  throw new Error('it was not refused');
}

it('an output takes the type of its schema, and keeps its description', () => {
  const schema = '{"type": "array", "items": {"type": "string", "pattern": "^[^<&]+$"}}';
  const [output] = parse(
    `<output name="tags" required="true">Tags.<schema><![CDATA[${schema}]]></schema></output>`,
  );
  expect(output).toEqual({
    name: 'tags',
    type: 'array',
    required: true,
    description: 'Tags.',
    schema: JSON.parse(schema),
  });
  expect(parse('<output name="x"><schema id="schemas/x"/></output>')).toMatchObject([
    { schema_id: 'schemas/x' },
  ]);
});

it('references within a schema are replaced by their targets', () => {
  const schema = parseSchema(
    JSON.stringify({
      type: 'array',
      items: { $ref: '#/$defs/finding', description: 'One.' },
      $defs: {
        finding: { type: 'object', properties: { at: { $ref: '#/$defs/a~1b' } } },
        'a/b': { type: 'integer' },
      },
    }),
  );
  const properties = { at: { type: 'integer' } };
  expect(schema).toEqual({
    type: 'array',
    items: { type: 'object', properties, description: 'One.' },
  });
});

it.each([
  ['{"type": "array",\n "items": }', 8, /is not JSON/],
  ['[]', 7, /not a JSON object/],
  ['', 7, /is not JSON/],
  ['{"$ref": "https://example.com/s.json"}', 7, /leaves the schema/],
  ['{"$ref": "#/$defs/none"}', 7, /names nothing/],
  ['{"properties": {"next": {"$ref": "#"}}}', 7, /"#" is recursive/],
  ['{"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}', 7, /is recursive/],
])('refuses the schema %s at its line', (schema, line, message) => {
  const error = refusal(`<output name="x"><schema>${schema}</schema></output>`);
  expect(error).toMatchObject({ code: 'directive_malformed', location: { path: 'a.md', line } });
  expect(error.message).toMatch(message);
});

it('refuses references that multiply beyond the bounds, and deep nesting', () => {
  const definitions = Array.from({ length: 12 }, (_, index) => {
    const next = { $ref: `#/$defs/d${index + 1}` };
    return [`d${index}`, { properties: { a: next, b: next, c: next } }];
  });
  const bomb = { $ref: '#/$defs/d0', $defs: { ...Object.fromEntries(definitions), d12: {} } };
  expect(() => parseSchema(JSON.stringify(bomb))).toThrow('larger than 10000 values');
  const deep = `${'{"items":'.repeat(70)}{}${'}'.repeat(70)}`;
  expect(() => parseSchema(deep)).toThrow('deeper than 64 levels');
});

it.each([
  ['<output name="x" type="string"><schema>{"type": "array"}</schema></output>', /another one/],
  ['<output name="x"><schema>{}</schema><schema>{}</schema></output>', /one <schema>/],
  ['<output name="x"><schema id="a b"/></output>', /a b/],
  ['<output name="x"><schema id="a">{}</schema></output>', /has a text too/],
])('refuses %s', (output, message) => {
  expect(refusal(output).message).toMatch(message);
});
