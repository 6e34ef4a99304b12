import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { type Lab, openLab } from '../attacks/lab.ts';
import { runCli } from '../helpers/run-cli.ts';

let lab: Lab;
beforeEach(async () => {
  lab = await openLab();
  onTestFinished(async () => await lab.remove());
});

/** A rule whose front matter ends with a `match`, as its lines. */
function rule(match: string, ...members: readonly string[]): string {
  const lines = match.split('\n').map((line) => `  ${line}`);
  return `---\ndescription: A rule\n${members.map((one) => `${one}\n`).join('')}match:\n${lines.join('\n')}\n---\nStop.\n`;
}

interface Sample {
  readonly text: string;
  readonly path?: string;
  readonly source?: 'text' | 'thinking' | 'tool';
}

/** Signs the rule; returns for each sample the line of its match, or false. */
async function found(match: string, samples: readonly Sample[]) {
  lab.write('rules/r.md', rule(match));
  await lab.sign('rule', 'r');
  const { rules } = lab.rye();
  const results: (number | boolean)[] = [];
  for (const { text, path, source = path === undefined ? 'text' : 'tool' } of samples) {
    const sample = { text, source, rule: 'r', ...(path === undefined ? {} : { path }) };
    const [hit] = (await rules.test(sample)).hits;
    results.push(hit === undefined ? false : (hit.line ?? true));
  }
  return results;
}

describe('conditions of match', () => {
  it.each<[string, string, readonly Sample[], readonly (number | boolean)[]]>([
    ['a text is an expression', '"foo\\\\d"', [{ text: 'a\nfoo1' }, { text: 'foo' }], [2, false]],
    ['a list is any', '[foo, bar]', [{ text: 'bar' }, { text: 'baz' }], [1, false]],
    [
      'an expression that RE2 cannot express runs as JavaScript',
      'regex: foo(?!bar)',
      [{ text: '\nfoobaz' }, { text: 'foobar' }],
      [2, false],
    ],
    [
      'inline flags work in both engines',
      'all: [{regex: "(?i)FOO"}, {regex: "(?i)foo(?!BAR)"}]',
      [{ text: 'Foo' }, { text: 'foobar' }],
      [1, false],
    ],
    [
      'all and not: an exception silences the rule',
      'all:\n  - regex: as any\n  - not: {regex: biome-ignore}',
      [{ text: 'x as any' }, { text: 'x as any // biome-ignore' }],
      [1, false],
    ],
    [
      'if takes one branch alone',
      'if: {lang: ts}\nthen: as any\nelse: interface\\{\\}',
      [
        { text: 'x as any', path: 'a.ts' },
        { text: 'x as any', path: 'a.go' },
        { text: 'interface{}', path: 'a.go' },
        { text: 'interface{}', path: 'a.ts' },
      ],
      [1, false, 1, false],
    ],
    [
      'count at least',
      'regex: TODO\ncount: 3',
      [{ text: 'TODO TODO' }, { text: 'TODO TODO\nTODO' }],
      [false, 1],
    ],
    [
      'count at most',
      'all: [{regex: x}, {regex: TODO, count: {max: 1}}]',
      [{ text: 'x' }, { text: 'x TODO' }, { text: 'x TODO TODO' }],
      [1, 1, false],
    ],
    [
      'lang knows the extensions of a language',
      'all: [{lang: typescript}, {regex: x}]',
      [
        { text: 'x', path: 'a.mts' },
        { text: 'x', path: 'a.js' },
        { text: 'x', path: 'ts' },
        { text: 'x' },
      ],
      [1, false, false, false],
    ],
    [
      'a path is a glob',
      'all: [{path: "src/**/*.test.ts"}, {regex: x}]',
      [
        { text: 'x', path: 'src/a/b.test.ts' },
        { text: 'x', path: './src/b.test.ts' },
        { text: 'x', path: 'src/b.ts' },
        { text: 'x' },
      ],
      [1, 1, false, false],
    ],
    [
      'a path is outside of the project',
      'path: {outside: cwd}',
      [
        { text: 'x', path: '/etc/hosts' },
        { text: 'x', path: '../sibling/a.ts' },
        { text: 'x', path: 'src/../../a.ts' },
        { text: 'x', path: 'src/a.ts' },
        { text: 'x', path: 'https://example.com/a.ts' },
        { text: 'x' },
      ],
      [true, true, true, false, false, false],
    ],
    [
      'one path has to satisfy all members',
      'path: {glob: "**/*.md", under: docs, regex: guide}',
      [
        { text: 'x', path: 'docs/guide.md' },
        { text: 'x', path: 'docs/other.md' },
        { text: 'x', path: 'notes/guide.md' },
        { text: 'x', path: 'docs/../guide.md' },
        { text: 'x', path: 'docs-old/guide.md' },
      ],
      [true, false, false, false, false],
    ],
    [
      'several folders may be allowed, also of the home folder',
      'path: {outside: [cwd, /tmp, ~/notes]}',
      [
        { text: 'x', path: '/tmp/a' },
        { text: 'x', path: '/var/a' },
      ],
      [false, true],
    ],
    [
      'prose and its fences are apart',
      'regex: as any\nin: prose',
      [{ text: 'no `as any`\n```ts\nx as any\n```\n' }, { text: '```ts\nx as any\n```\nend' }],
      [1, false],
    ],
    [
      'has and inside relate places',
      'regex: "try \\\\{[^}]*\\\\}"\nnot_has: {regex: log}',
      [{ text: 'try { a }' }, { text: 'try { log }' }],
      [1, false],
    ],
    ['inside', 'regex: b\ninside: "<[^>]*>"', [{ text: '<abc>' }, { text: '<a> b' }], [1, false]],
  ])('%s', async (_name, match, samples, expected) => {
    expect(await found(match, samples)).toEqual(expected);
  });
});

describe('in tells code, comments and strings apart', () => {
  const forms = (comment: string, literal: string, code: string): readonly string[] => [
    comment,
    literal,
    code,
  ];
  it.each([
    ['ts', forms('// as any', 'const s = "as any";', 'x as any')],
    ['tsx', forms('/* as any */', 'const s = `as any`;', 'const s = `${x as any}`;')],
    ['js', forms('// "as any', 'const r = /as any"/;', "f(/'/, as any)")],
    ['py', forms('# as any', '"""\nas any\n"""', "f('#') + as any")],
    ['go', forms('// as any', '`as any`', "'\"' as any")],
    ['rs', forms('/* /* */ as any */', 'r#"" as any"#', "&'a x as any")],
    ['java', forms('/* as any */', '"\\"as any"', "'\"' + as any")],
    ['sh', forms('# as any', "'as any'", 'echo ${#x} as any')],
    ['sql', forms('-- as any', "'it''s as any'", 'SELECT as any')],
    ['lua', forms('--[[ as any ]]', '[[as any]]', 'x = as any')],
    ['rb', forms('# as any', '"#as any"', 'x#as\nas any')],
    ['php', forms('# as any', "'as any'", '$x as any')],
    ['css', forms('/* as any */', '"as any"', 'a { as any }')],
    ['html', forms('<!-- as any -->', '<a b="as any">', '<p>as any</p>')],
    ['yaml', forms('# as any', 'a: "as any"', "a: don't # b\nb: as any")],
    ['hs', forms('{- as any -}', '"as any"', 'as any -- x')],
  ])('of %s', async (extension, [comment = '', literal = '', code = '']) => {
    const path = `a.${extension}`;
    const samples = [comment, literal, code].map((text) => ({ text, path }));
    for (const [region, expected] of [
      ['comment', [true, false, false]],
      ['string', [false, true, false]],
      ['code', [false, false, true]],
      ['[code, string]', [false, true, true]],
    ] as const) {
      const results = await found(`regex: as any\nin: ${region}`, samples);
      expect([region, ...results.map((line) => line !== false)]).toEqual([region, ...expected]);
    }
  });

  it('an unknown language satisfies neither in nor its opposite', async () => {
    const samples = [{ text: 'as any', path: 'a.xyz' }];
    expect(await found('regex: as any\nin: code', samples)).toEqual([false]);
    expect(await found('not: {regex: as any, in: code}', samples)).toEqual([false]);
    expect(await found('regex: as any', samples)).toEqual([1]);
    lab.write('rules/r.md', rule('regex: as any\nin: code'));
    const trial = await lab.rye().rules.test({ text: 'as any', source: 'tool', path: 'a.xyz' });
    expect(trial.notes).toEqual([expect.stringContaining('.xyz files are not told apart')]);
  });

  it('a long hostile line costs linear time', async () => {
    const text = `${'"\\'.repeat(200_000)}${'/['.repeat(200_000)}\nas any`;
    expect(await found('regex: as any\nin: code', [{ text, path: 'a.ts' }])).toEqual([2]);
  });
});

describe('a match that cannot be read', () => {
  it.each([
    ['regexp: x', 'match.regexp: one of all, any', '4:3'],
    ['all:\n  - regex: x\n    nope: 1', 'match.all[0].nope: unknown member', '6:7'],
    ['regex: x\nast: y', 'match.ast: regex and ast are two conditions', '5:3'],
    ['all: []', 'at least one condition', '4:3'],
    ['all: {regex: x}', 'match.all: must be a list', '4:3'],
    ['lang: typscript', 'the language typscript is unknown', '4:3'],
    ['lang: ts\ncount: 2', 'match.count: unknown member', '5:3'],
    ['if: {lang: ts}', 'the member then is missing', '4:3'],
    ['regex: x\nelse: y', 'match.else: unknown member', '5:3'],
    ['regex: x\nin: [code, nonsense]', '"nonsense" is none of', '5:3'],
    ['regex: x\ncount: "2"', 'match.count: must be a whole number', '5:3'],
    ['regex: x\nhas: {lang: ts}', 'match.has: must be about regex or ast', '5:3'],
    ['path: {glob: "*.ts", inside: x}', 'match.path.inside: unknown member', '4:24'],
    ['path: {}', 'one of glob, regex, under, outside is missing', '4:3'],
    ['path: /etc/**', 'it starts with a slash', '4:3'],
    ['did: {}', 'one of tool, path, args is missing', '4:3'],
    ['did: {ran: bash}', 'match.did.ran: unknown member', '4:9'],
    ['did: {tool: read, within: 0}', 'match.did.within: must be a number of calls', '4:21'],
    ['regex: (unclosed', 'match.regex: the expression (unclosed', '4:3'],
    ['regex: a++', 'match.regex: the expression a++', '4:3'],
    ['not: 7', 'match.not: must be a text, a list or a mapping', '4:3'],
    ['regex:', 'match.regex: a value is missing', '4:3'],
  ])('%s', async (match, message, place) => {
    const file = lab.write('rules/r.md', rule(match));
    const { items, rules } = lab.rye();
    const [problem] = (await items.validate({ type: 'rule', pattern: 'r' })).problems;
    expect(problem).toMatchObject({
      severity: 'error',
      code: 'rule_malformed',
      message: expect.stringContaining(message),
    });
    expect(`${problem?.line}:${problem?.column}`).toBe(place);
    const [signed] = await items.sign('rule', 'r');
    expect(signed?.status).toBe('failed');
    // another program may have signed it
    lab.signed('rules/r.md', rule(match));
    const line = Number(place.split(':')[0]) + 1;
    expect((await lab.rye().rules.list()).refused).toMatchObject([
      { path: file, message: expect.stringContaining(`r.md:${line}:`) },
    ]);
    await expect(rules.test({ text: 'x', source: 'text', rule: 'r' })).rejects.toMatchObject({
      code: 'rule_malformed',
      message: expect.stringContaining(message),
    });
  });

  it('a condition beside it is named as ignored', async () => {
    lab.write('rules/r.md', rule('regex: x', 'condition: y'));
    const { items, rules } = lab.rye();
    const { problems } = await items.validate({ type: 'rule', pattern: 'r' });
    expect(problems).toMatchObject([
      { severity: 'warning', line: 3, message: '"condition" is ignored beside match' },
    ]);
    expect((await rules.test({ text: 'y', source: 'text', rule: 'r' })).hits).toEqual([]);
  });

  it('the command line names file and line', async () => {
    lab.write('rules/r.md', rule('any:\n  - regex: x\n  - lung: ts'));
    const options = { cwd: lab.project, env: lab.env };
    const { stderr, code } = await runCli(['sign', 'rule', 'r'], options);
    expect(stderr).toContain('.ai/rules/r.md:6:7: rule_malformed: match.any[1].lung');
    expect(stderr).toContain('Did you mean lang?');
    expect(code).not.toBe(0);
  });
});
