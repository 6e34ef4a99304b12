import { describe, expect, it, test } from 'vitest';
import { parseDirective } from '../../src/kernel/items/directive.ts';
import { findCalls } from '../../src/kernel/items/markdown.ts';
import { directiveFile, errorOf } from './helpers.ts';

function parse(inner: string, body = '') {
  return parseDirective(directiveFile(inner, body), 'd.md');
}

const call = { primary: 'execute', item_type: 'tool', item_id: 't/a', params: {} };

describe('a process in the fence', () => {
  it('reads named steps with actions and written calls in order', () => {
    const { steps } = parse(`<process>
  <step name="one" description="First">
    <execute item_type="tool" item_id="t/a"><param name="x">1</param><param name="n" type="integer">2</param></execute>
    Then \`rye_fetch(item_type="knowledge", item_id="k")\`.
  </step>
  <step><description>Second</description><action><sign item_type="directive" item_id="{input:d}"/></action></step>
</process>`);
    expect(steps).toEqual([
      {
        name: 'one',
        description: 'First',
        origin: 'd.md:4',
        calls: [
          { ...call, params: { x: '1', n: 2 } },
          { primary: 'fetch', item_type: 'knowledge', item_id: 'k', params: {} },
        ],
      },
      {
        name: 'step_2',
        description: 'Second',
        origin: 'd.md:8',
        calls: [{ primary: 'sign', item_type: 'directive', item_id: '{input:d}', params: {} }],
      },
    ]);
  });

  it.each([
    ['true', true],
    ['yes', true],
    ['1', true],
    ['false', false],
  ])('reads async="%s" as %s', (text, isAsync) => {
    const [step] = parse(
      `<process><execute item_type="directive" item_id="d" async="${text}"/></process>`,
    ).steps;
    expect(step?.calls[0]?.options).toEqual({ async: isAsync });
  });

  it('takes actions outside of steps as separate steps', () => {
    const action = '<execute item_type="tool" item_id="t/a"/>';
    expect(parse(`<process>${action}${action}</process>`).steps.map(({ name }) => name)).toEqual([
      'step_1',
      'step_2',
    ]);
    expect(parse(action).steps).toMatchObject([{ name: 'step_1', calls: [call] }]);
  });

  test.each([
    ['<param name="x" type="array">[1]</param>', { x: [1] }],
    ['<param name="x" type="object">{"a": {}}</param>', { x: { a: {} } }],
    ['<param name="x" type="boolean">no</param>', { x: false }],
    ['<param name="x" type="array">{input:list}</param>', { x: '{input:list}' }],
    ['<param name="x" value="v"/>', { x: 'v' }],
    ['<param name="x"><![CDATA[ a < b ]]></param>', { x: ' a < b ' }],
    ['<params><param name="x">1</param></params>', { x: '1' }],
    ['<x>1</x>', { x: '1' }],
  ])('reads %s', (param, params) => {
    const { steps } = parse(
      `<process><execute item_type="tool" item_id="t/a">${param}</execute></process>`,
    );
    expect(steps[0]?.calls[0]?.params).toEqual(params);
  });

  it('takes other attributes as parameters and a fetch without id as a query', () => {
    const { steps } = parse('<process><fetch item_type="knowledge" query="x"/></process>');
    expect(steps[0]?.calls).toEqual([
      { primary: 'fetch', item_type: 'knowledge', item_id: '', params: { query: 'x' } },
    ]);
  });

  test.each([
    ['an action without type', '<execute item_id="a"/>', 'has no item_type'],
    ['an unknown type', '<execute item_type="tol" item_id="a"/>', 'unknown item type'],
    ['no id', '<execute item_type="tool"/>', 'has no item_id'],
    ['a bad id', '<execute item_type="tool" item_id="../a"/>', 'not an item id'],
    [
      'a param without name',
      '<execute item_type="tool" item_id="a"><param>1</param></execute>',
      'has no name',
    ],
    [
      'a param of a wrong type',
      '<execute item_type="tool" item_id="a"><param name="n" type="integer">x</param></execute>',
      'is not a number',
    ],
    ['two steps of one name', '<step name="a"/><step name="a"/>', 'duplicate step'],
  ])('refuses %s', (_, inner, message) => {
    const error = errorOf(() => parse(`<process>${inner}</process>`));
    expect(error.code).toBe('directive_malformed');
    expect(error.message).toContain(message);
  });
});

describe('a process in the body', () => {
  it('is read as an element', () => {
    const { steps } = parse(
      '',
      'Intro\n\n<process>\n<step name="a"><execute item_type="tool" item_id="t/a"/></step>\n</process>',
    );
    expect(steps).toEqual([{ name: 'a', description: '', origin: 'd.md:10', calls: [call] }]);
  });

  it('is prose where it is not XML, with a warning', () => {
    const { steps, warnings } = parse(
      '',
      '<process>\n1. a & b `rye_execute(item_type="tool", item_id="t/a")`\n</process>',
    );
    expect(steps).toMatchObject([{ name: 'step_1', calls: [call] }]);
    expect(warnings).toMatchObject([{ code: 'xml_malformed', location: { line: 8 } }]);
  });

  it('is read from headings with calls below them', () => {
    const written = '`rye_execute(item_type="tool", item_id="t/a")`';
    const { steps } = parse(
      '',
      `Text\n\n## Step 1: Write the File!\n${written} and ${written}\n\n### Notes\nnone\n\n## 2) Write the file\n\`\`\`python\n# no heading\nrye_execute(item_type="tool", item_id="t/a",\n  parameters={"a": 1})\n\`\`\``,
    );
    expect(
      steps.map(({ name, description, origin, calls }) => [
        name,
        description,
        origin,
        calls.length,
      ]),
    ).toEqual([
      ['write_the_file', 'Step 1: Write the File!', 'd.md:9', 2],
      ['write_the_file_2', '2) Write the file', 'd.md:15', 1],
    ]);
    expect(steps[1]?.calls[0]?.params).toEqual({ a: 1 });
  });

  it('never makes a directive unreadable', () => {
    const { steps, warnings } = parse(
      '',
      'Use `rye_execute(item_type="tool", item_id="<id>")` or `rye_execute(tool)`, see `rye_execute(...)`.',
    );
    expect(steps).toEqual([]);
    expect(warnings.map(({ severity }) => severity)).toEqual(['warning', 'warning']);
  });

  it('does not count where the fence has one', () => {
    const { steps } = parse(
      '<process><execute item_type="tool" item_id="t/a"/></process>',
      '`rye_sign(item_type="tool", item_id="b")`',
    );
    expect(steps).toHaveLength(1);
  });
});

describe('findCalls', () => {
  const args = (text: string) => findCalls(`\`rye_execute(${text})\``).calls[0]?.args;

  test.each([
    ['', undefined],
    ['a="x"', { a: 'x' }],
    ["a='it\\'s', b=\"\\u0041\\n\"", { a: "it's", b: 'A\n' }],
    ['a=1, b=-2.5e3, c=true, d=False, e=None', { a: 1, b: -2500, c: true, d: false, e: null }],
    ['a=[1, [2,],], b={}', { a: [1, [2]], b: {} }],
    ['a={"k": {"l": "}"}}', { a: { k: { l: '}' } } }],
    [
      'a={input:n}, b=${steps.x.data.y}, c={"d": {env:V:w}}',
      { a: '{input:n}', b: '${steps.x.data.y}', c: { d: '{env:V:w}' } },
    ],
    ['\n a = 1 ,\n b = 2\n', { a: 1, b: 2 }],
  ])('%s', (text, expected) => {
    expect(args(text)).toEqual(expected);
  });

  test.each([
    'a',
    'a=',
    'a=b',
    'a="x',
    'a=1 b=2',
    'a={k: 1}',
    'a=[1',
    'a=1, a=2',
    `a=${'['.repeat(40)}`,
  ])('cannot read %s', (text) => {
    expect(findCalls(`\`rye_execute(${text})\``).unreadable).toHaveLength(1);
  });

  it('looks only into code', () => {
    expect(findCalls('rye_execute(a=1)')).toEqual({ calls: [], unreadable: [] });
    expect(findCalls('``rye_sign(a="`")``').calls).toMatchObject([
      { primary: 'sign', args: { a: '`' } },
    ]);
  });
});

it('keeps the other arguments of rye_execute beside the parameters', () => {
  const { steps } = parse(
    '',
    '`rye_execute(item_type="directive", item_id="d", parameters={"a": 1}, async=True)`',
  );
  expect(steps[0]?.calls[0]).toMatchObject({ params: { a: 1 }, options: { async: true } });
});

it('reads the isolation of a call, and gives that of a step to the directives that it starts', () => {
  const { steps } = parse(`<process>
    <step name="a" isolation="worktree" isolation_result="merge">
      <execute item_type="directive" item_id="d" /></step>
    <execute item_type="directive" item_id="e" isolation="worktree" />
  </process>`);
  expect(steps.map(({ calls }) => calls[0]?.options)).toEqual([
    { isolation: 'worktree', isolation_result: 'merge' },
    { isolation: 'worktree' },
  ]);
});

it('gives the label of a step to the directives that it starts', () => {
  const { steps } = parse(`<process>
    <step name="a" label="look at \${f}"><execute item_type="directive" item_id="d" /></step>
    <step name="b" label="x"><execute item_type="tool" item_id="t" /></step>
    <execute item_type="directive" item_id="e" label="an input" />
  </process>`);
  expect(steps.map(({ calls: [first] }) => [first?.options, first?.params])).toEqual([
    [{ label: 'look at ${f}' }, {}],
    [undefined, {}],
    [undefined, { label: 'an input' }],
  ]);
});

it.each([
  ['<execute item_type="tool" item_id="t" isolation="worktree" />', 'only a directive'],
  ['<execute item_type="directive" item_id="d" isolation="chroot" />', 'unknown isolation'],
  ['<execute item_type="directive" item_id="d" isolation_result="merge" />', 'unknown isolation'],
])('refuses the isolation of %s', (written, message) => {
  const error = errorOf(() => parse(`<process><step name="a">${written}</step></process>`));
  expect(error.code).toBe('directive_malformed');
  expect(error.message).toContain(message);
});

it('gets through a hostile body', () => {
  // Quadratic time would exceed the test timeout.
  for (const piece of [
    '<process>\n',
    '<process ',
    '`rye_execute(',
    '`rye_execute(a=',
    "'",
    '```\n',
  ]) {
    expect(parse('', `rye_ ${piece.repeat(20_000)}`).steps).toEqual([]);
  }
});
