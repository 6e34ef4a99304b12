import { describe, expect, it, test } from 'vitest';
import { parseDirective, readDirective } from '../../src/kernel/items/directive.ts';
import { directiveFile, errorOf, where, withMetadata } from './helpers.ts';

const PATH = '.ai/directives/demo.md';

function parse(text: string) {
  return parseDirective(text, PATH);
}

const FULL = `<!-- rye:signed:2026-01-01T00:00:00Z:00:00:00 -->
# Greeting

Some words.

~~~~ xml
<directive name="greet" version="1.2.3" extends="rye/base">
  <metadata>
    <description>Say &lt;hi&gt;.</description>
    <category>demo/sub</category>
    <author>me</author>
    <model tier="fast" provider="anthropic" fallback="general" thinking="low"/>
    <limits turns="5" max_spend="0.5" duration_seconds="1.5"/>
    <continuation_directive>demo/next</continuation_directive>
    <behavior nudge="false" retries="2"><mode>strict</mode></behavior>
  </metadata>
  <inputs>
    <input name="who" required="true">Whom</input>
    <input name="count" type="integer" default="3"/>
    <input name="tone" enum="warm, cold" default="warm"/>
    <input name="key" secret="true"/>
  </inputs>
  <outputs>
    <output name="text" required="true" from="\${steps.a.text}">The text</output>
  </outputs>
</directive>
~~~~

Greet {input:who}.

\`\`\`xml
<not>this one</not>
\`\`\`
`;

describe('parseDirective', () => {
  it('reads a whole file', () => {
    const directive = parse(FULL);
    expect(directive).toMatchObject({
      path: PATH,
      name: 'greet',
      version: '1.2.3',
      extends: 'rye/base',
      description: 'Say <hi>.',
      category: 'demo/sub',
      author: 'me',
      model: { tier: 'fast', provider: 'anthropic', fallback: 'general', thinking: 'low' },
      continuationDirective: 'demo/next',
      behavior: { nudge: false, retries: 2, mode: 'strict' },
      preamble: '# Greeting\n\nSome words.',
      body: 'Greet {input:who}.\n\n```xml\n<not>this one</not>\n```',
      warnings: [],
    });
    expect(directive.rawLimits.map(({ name, value }) => [name, value])).toEqual([
      ['turns', 5],
      ['spend', 0.5],
      ['duration_seconds', 1.5],
    ]);
    expect(directive.inputs).toMatchObject([
      { name: 'who', type: 'string', required: true, secret: false, description: 'Whom' },
      { name: 'count', type: 'integer', required: false, default: 3 },
      { name: 'tone', type: 'enum', values: ['warm', 'cold'], default: 'warm' },
      { name: 'key', secret: true },
    ]);
    expect(directive.outputs).toEqual([
      {
        name: 'text',
        type: 'string',
        required: true,
        description: 'The text',
        from: '${steps.a.text}',
      },
    ]);
  });

  it('knows the line of each value, the signature line counted', () => {
    expect(parse(FULL).origins).toMatchObject({
      name: `${PATH}:7`,
      description: `${PATH}:9`,
      'limits.spend': `${PATH}:13`,
      'model.tier': `${PATH}:12`,
      'behavior.mode': `${PATH}:15`,
      'inputs.count': `${PATH}:19`,
      'outputs.text': `${PATH}:24`,
      body: `${PATH}:29`,
    });
  });

  it('reads CRLF files the same', () => {
    expect(parse(FULL.replaceAll('\n', '\r\n'))).toEqual(parse(FULL));
  });

  it('fills in missing parts of a minimal directive', () => {
    expect(parse('```xml\n<directive name="a"/>\n```')).toMatchObject({
      name: 'a',
      version: '0.0.0',
      description: '',
      body: '',
      steps: [],
      permissions: { capabilities: [], ceiling: false, xml: '' },
    });
  });

  it('accepts metadata outside of <metadata> and a template of any text', () => {
    const directive = parse(
      directiveFile('<description>D</description><template> <b & </template>'),
    );
    expect(directive.description).toBe('D');
    expect(directive.warnings).toEqual([]);
  });

  it('warns about unknown elements with the nearest name', () => {
    expect(parse(withMetadata('<limit turns="1"/>')).warnings).toMatchObject([
      { severity: 'warning', location: { line: 4 }, hint: 'Did you mean limits?' },
    ]);
  });
});

describe('the fence', () => {
  const root = '<directive name="a"/>';
  test.each([
    ['three backticks', `\`\`\`xml\n${root}\n\`\`\``],
    ['indented by three spaces', `   \`\`\`xml\n   ${root}\n   \`\`\``],
    ['tildes', `~~~xml\n${root}\n~~~`],
    ['closed by a longer fence', `\`\`\`xml\n${root}\n\`\`\`\`\``],
    ['more words in the info string', `\`\`\`xml title="x"\n${root}\n\`\`\``],
    ['capitals', `\`\`\`XML\n${root}\n\`\`\``],
    [
      // Requirement: code-fence-hides-directive
      'after a closed four-backtick block',
      `\`\`\`\`md\n\`\`\`xml\n<x/>\n\`\`\`\n\`\`\`\`\n\n\`\`\`xml\n${root}\n\`\`\``,
    ],
    ['a fence of another language first', `\`\`\`yaml\na: 1\n\`\`\`\n\`\`\`xml\n${root}\n\`\`\``],
    ['right below a comment', `<!-- x -->\n\`\`\`xml\n${root}\n\`\`\``],
  ])('is found: %s', (_, text) => {
    expect(parse(text).name).toBe('a');
  });

  it('holds a shorter fence without ending', () => {
    const text =
      '````xml\n<directive name="a"><raw>\n```\ncode\n```\n</raw></directive>\n````\nBody';
    expect(parse(text).body).toBe('Body');
  });

  test.each([
    ['none at all', '# Hi', 'directive_malformed 1:'],
    ['indented code', `    \`\`\`xml\n    ${root}\n    \`\`\``, 'directive_malformed 1:'],
    [
      'only inside of a longer fence',
      `\`\`\`\`md\n\`\`\`xml\n${root}\n\`\`\`\n\`\`\`\``,
      'directive_malformed 1:',
    ],
    ['not closed', `x\n\`\`\`xml\n${root}\n`, 'directive_malformed 2:1'],
    [
      'another root first',
      `\`\`\`xml\n<other/>\n\`\`\`\n\`\`\`xml\n${root}\n\`\`\``,
      'directive_malformed 2:1',
    ],
    [
      'broken XML',
      `x\n\n\`\`\`xml\n<directive name="a">\n  <b>\n</directive>\n\`\`\``,
      'xml_malformed 6:1',
    ],
  ])('is refused: %s', (_, text, place) => {
    expect(where(errorOf(() => parse(text)))).toBe(place);
  });
});

describe('what is refused', () => {
  test.each([
    ['no name', '```xml\n<directive version="1.0.0"/>\n```', 'has no name'],
    ['an unknown attribute', '```xml\n<directive name="a" extend="b"/>\n```', '"extend"'],
    [
      'extends out of the space',
      '```xml\n<directive name="a" extends="../b"/>\n```',
      'is not a directive id',
    ],
    [
      'a description twice',
      withMetadata('<description>a</description>\n<description>b</description>'),
      '5:1',
    ],
    ['an unknown thinking level', withMetadata('<model thinking="huge"/>'), 'not a thinking level'],
    [
      'a bad continuation',
      withMetadata('<continuation_directive>a b</continuation_directive>'),
      'not a directive id',
    ],
    ['an empty context item', withMetadata('<context><system/></context>'), 'is empty'],
    [
      'a context id out of the space',
      withMetadata('<context><before>/etc</before></context>'),
      'not a knowledge id',
    ],
    ['behavior as text', withMetadata('<behavior>fast</behavior>'), 'contains text'],
    [
      'an unknown type',
      directiveFile('<inputs><input name="a" type="strin"/></inputs>'),
      'Did you mean string?',
    ],
    [
      'a default of another type',
      directiveFile('<inputs><input name="a" type="integer" default="x"/></inputs>'),
      'default "x"',
    ],
    [
      'an enum without values',
      directiveFile('<inputs><input name="a" type="enum"/></inputs>'),
      'has no values',
    ],
    ['an input without name', directiveFile('<inputs><input/></inputs>'), 'has no name'],
    [
      'an input twice',
      directiveFile('<inputs><input name="a"/><input name="a"/></inputs>'),
      'declared twice',
    ],
    [
      'an output name with a space',
      directiveFile('<outputs><output name="a b"/></outputs>'),
      'not a name',
    ],
  ])('%s', (_, text, message) => {
    const error = errorOf(() => parse(text));
    expect(error.code).toBe('directive_malformed');
    expect(`${error.message} ${error.hint ?? ''}`).toContain(message);
  });

  it('reports all of it at once', () => {
    const text = withMetadata(
      '<limits turns="-1" tokns="5"/>\n<permissions><excute>*</excute></permissions>',
    );
    const { problems } = readDirective(text, PATH);
    expect(problems.all.map(({ code, location }) => `${code} ${location.line}`)).toEqual([
      'invalid_limit 4',
      'unknown_limit 4',
      'permission_malformed 5',
    ]);
    expect(errorOf(() => parse(text)).details).toMatchObject({
      problems: [
        expect.stringContaining('demo.md:4:1: invalid_limit'),
        expect.any(String),
        expect.any(String),
      ],
    });
  });
});

describe('limits', () => {
  const limits = (attributes: string) =>
    parse(withMetadata(`<limits ${attributes}/>`)).rawLimits.map(
      ({ name, value }) => `${name}=${value}`,
    );

  it('takes both spellings', () => {
    expect(limits('max_turns="1" tokens="2" spend="0" max_depth="0" spawns="3"')).toEqual([
      'turns=1',
      'tokens=2',
      'spend=0',
      'depth=0',
      'spawns=3',
    ]);
  });

  it('accepts the currency that spend is in', () => {
    expect(limits('spend="1" spend_currency="USD"')).toEqual(['spend=1']);
  });

  test.each([
    ['turns="1" max_turns="2"', 'invalid_limit'],
    ['turns="NaN"', 'invalid_limit'],
    ['turns="Infinity"', 'invalid_limit'],
    ['turns=""', 'invalid_limit'],
    ['turns="1.5"', 'invalid_limit'],
    ['spend="-0.1"', 'invalid_limit'],
    ['tokens="many"', 'invalid_limit'],
    ['turn="1"', 'unknown_limit'],
    ['max_cost="1"', 'unknown_limit'],
    ['spend_currency="EUR"', 'unknown_limit'],
  ])('refuses %s', (attributes, code) => {
    expect(where(errorOf(() => limits(attributes)))).toBe(`${code} 4:1`);
  });

  it('names the valid ones and the nearest', () => {
    expect(errorOf(() => limits('turn="1"')).hint).toBe(
      'Did you mean turns? Limits are turns, tokens, spend, duration_seconds, spawns, depth, each also as max_….',
    );
  });
});

describe('permissions', () => {
  const permissions = (inner: string, attributes = '') =>
    parse(withMetadata(`<permissions${attributes}>${inner}</permissions>`)).permissions;

  test.each([
    ['*', ['rye.*']],
    // Requirement: wildcard-with-acknowledgement
    ['*<acknowledge risk="unrestricted">x</acknowledge>', ['rye.*']],
    ['<fetch>*</fetch>', ['rye.fetch.*']],
    ['<execute><tool>a.b</tool></execute>', ['rye.execute.tool.a.b']],
    ['<execute><tool>a/b-c/*</tool></execute>', ['rye.execute.tool.a.b-c.*']],
    ['<execute><tool>*</tool></execute>', ['rye.execute.tool.*']],
    ['<sign>directive.*</sign>', ['rye.sign.directive.*']],
    ['<sign>directive/x</sign>', ['rye.sign.directive.x']],
    [
      '<execute><tool>a</tool><tool>b</tool><directive>c</directive></execute><execute><tool>a</tool><skill>s</skill></execute>',
      [
        'rye.execute.tool.a',
        'rye.execute.tool.b',
        'rye.execute.directive.c',
        'rye.execute.skill.s',
      ],
    ],
    ['*<fetch><rule>r</rule></fetch>', ['rye.*', 'rye.fetch.rule.r']],
    ['', []],
  ])('%s', (inner, capabilities) => {
    expect(permissions(inner).capabilities).toEqual(capabilities);
  });

  it('keeps acknowledgements with their place', () => {
    expect(
      permissions('<acknowledge risk="elevated">needed</acknowledge>').acknowledgements,
    ).toEqual([{ risk: 'elevated', reason: 'needed', origin: `${PATH}:4` }]);
    expect(
      permissions('<acknowledge risk="elevated" tool="rye/bash">needed</acknowledge>')
        .acknowledgements,
    ).toEqual([{ risk: 'elevated', tool: 'rye/bash', reason: 'needed', origin: `${PATH}:4` }]);
  });

  it('knows a ceiling and the element as written', () => {
    expect(permissions('*', ' ceiling="true"')).toMatchObject({
      ceiling: true,
      xml: '<permissions ceiling="true">*</permissions>',
    });
    expect(permissions('*', ' ceiling="false"').ceiling).toBe(false);
  });

  it('adds up several elements', () => {
    const { capabilities, xml } = parse(
      withMetadata(
        '<permissions><fetch>*</fetch></permissions>\n<permissions><sign>*</sign></permissions>',
      ),
    ).permissions;
    expect(capabilities).toEqual(['rye.fetch.*', 'rye.sign.*']);
    expect(xml.split('\n')).toHaveLength(2);
  });

  test.each([
    '<search>*</search>',
    '<cap>rye.*</cap>',
    '<execute/>',
    '<execute><tol>a</tol></execute>',
    '<execute><tool/></execute>',
    '<execute><tool>a b</tool></execute>',
    '<execute><tool>a..b</tool></execute>',
    '<execute><tool>a/</tool></execute>',
    '<execute><tool>a, b</tool></execute>',
    '<fetch>nothing</fetch>',
    'rye.*',
    '<acknowledge>why</acknowledge>',
    '<acknowledge risk="high">why</acknowledge>',
    '<acknowledge risk="elevated" tool="">why</acknowledge>',
    '<acknowledge risk="elevated" tool="a b">why</acknowledge>',
  ])('refuses %s', (inner) => {
    expect(errorOf(() => permissions(inner)).code).toBe('permission_malformed');
  });

  it('refuses an unknown attribute, which may be a misspelt ceiling', () => {
    expect(errorOf(() => permissions('*', ' celing="true"')).message).toContain('celing');
  });
});

describe('hooks', () => {
  const hook = (xml: string) => parse(withMetadata(`<hooks>\n${xml}\n</hooks>`)).rawHooks[0];

  it('types attributes and keeps names as text', () => {
    expect(
      hook('<hook id="1" event="error" wrap="false" timeout_seconds="5" enabled="true"/>'),
    ).toEqual({
      value: { id: '1', event: 'error', wrap: false, timeout_seconds: 5, enabled: true },
      origin: `${PATH}:5`,
    });
  });

  test.each([
    ['<condition path="a.0" op="gt" value="3"/>', { path: 'a.0', op: 'gt', value: 3 }],
    ['<condition path="a" op="regex" value="404"/>', { path: 'a', op: 'regex', value: '404' }],
    ['<condition path="a" op="in" value=\'["x",1]\'/>', { path: 'a', op: 'in', value: ['x', 1] }],
    ['<condition path="a" op="exists"/>', { path: 'a', op: 'exists' }],
    [
      '<any><condition path="a"/><not><condition path="b"/></not></any>',
      { any: [{ path: 'a' }, { not: { path: 'b' } }] },
    ],
    ['<condition path="a"/><condition path="b"/>', { all: [{ path: 'a' }, { path: 'b' }] }],
    ['<condition><all><condition path="a"/></all></condition>', { all: [{ path: 'a' }] }],
  ])('reads the condition %s', (xml, condition) => {
    expect(hook(`<hook id="a">${xml}</hook>`)?.value['condition']).toEqual(condition);
  });

  test.each([
    [
      '<action primary="execute" item_type="tool" item_id="1"><param name="n">2</param></action>',
      { primary: 'execute', item_type: 'tool', item_id: '1', params: { n: 2 } },
    ],
    [
      '<action><fetch item_type="knowledge" item_id="k"/></action>',
      { primary: 'fetch', item_type: 'knowledge', item_id: 'k' },
    ],
    [
      '<execute item_type="tool" item_id="t"/>',
      { primary: 'execute', item_type: 'tool', item_id: 't' },
    ],
    ['<action set_extends="a/b"/>', { set_extends: 'a/b' }],
    ['<set_extends>a/b</set_extends>', { set_extends: 'a/b' }],
    ['<action control="retry" delay="2"/>', { control: 'retry', delay: 2 }],
    ['<control action="fail" error="no"/>', { control: 'fail', error: 'no' }],
    ['<control>abort</control>', { control: 'abort' }],
    ['<inject>Remember.</inject>', { inject: 'Remember.' }],
    ['<emit custom_type="x"><param name="a">1</param></emit>', { emit: 'x', data: { a: 1 } }],
    ['<action emit="x"><param name="a">1</param></action>', { emit: 'x', data: { a: 1 } }],
  ])('reads the action %s', (xml, action) => {
    expect(hook(`<hook id="a">${xml}</hook>`)?.value['action']).toEqual(action);
  });

  it('reads several actions as a list', () => {
    const value = hook(
      '<hook id="a"><action><execute item_type="tool" item_id="t"/><fetch item_type="rule" item_id="r"/></action></hook>',
    )?.value;
    expect(value?.['actions']).toMatchObject([{ primary: 'execute' }, { primary: 'fetch' }]);
    expect(value?.['action']).toBeUndefined();
  });

  it('reads other children as members and warns about <when>', () => {
    const directive = parse(
      withMetadata(
        '<hooks><hook id="a"><description>Why</description><capabilities>rye.a, rye.b</capabilities><when>x</when></hook></hooks>',
      ),
    );
    expect(directive.rawHooks[0]?.value).toEqual({
      id: 'a',
      description: 'Why',
      capabilities: ['rye.a', 'rye.b'],
    });
    expect(directive.warnings).toMatchObject([{ code: 'hook_invalid' }]);
  });
});

describe('context', () => {
  it('keeps the order of each position and warns about others', () => {
    const directive = parse(
      withMetadata(
        '<context><system>a</system><before>b</before><system>c</system><after>d</after><suppress>h1</suppress><sytem>x</sytem></context>',
      ),
    );
    expect(directive.context.system.map(({ id }) => id)).toEqual(['a', 'c']);
    expect(directive.context.before).toEqual([{ id: 'b', origin: `${PATH}:4` }]);
    expect(directive.context.suppress).toEqual(['h1']);
    expect(directive.warnings).toMatchObject([{ hint: 'Did you mean system?' }]);
  });
});
