import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { type Lab, openLab } from '../attacks/lab.ts';

let lab: Lab;
beforeEach(async () => {
  lab = await openLab();
  onTestFinished(async () => await lab.remove());
});

const rule = (...members: readonly string[]): string =>
  `---\ndescription: A rule\nscope: [text]\n${members.join('\n')}\n---\nStop.\n`;

describe('a condition that RE2 cannot express runs as JavaScript by itself', () => {
  it.each([
    ['(?<q>["\'])x\\k<q>', `say "x" now`, `say "x' now`],
    ['(a|b)\\1', 'xaax', 'xabx'],
    ['foo(?!bar)', 'foobaz', 'foobar'],
    ['(?<=no )cat', 'no cat', 'a cat'],
    ['\\p{Script=Greek}', 'λ', 'l'],
  ])('%s', async (condition, bad, good) => {
    lab.write('rules/r.md', rule(`condition: ${JSON.stringify(condition)}`));
    await lab.sign('rule', 'r');
    const rules = lab.rye().rules;
    const hits = async (text: string) =>
      (await rules.test({ text, source: 'text', rule: 'r' })).hits.map((hit) => hit.rule);
    expect([await hits(bad), await hits(good)]).toEqual([['r'], []]);
    expect((await rules.list()).rules.find(({ name }) => name === 'r')).toMatchObject({
      bucket: 'stream',
      problems: [],
    });
  });

  it('beside one of the linear engine, in one rule', async () => {
    lab.write('rules/r.md', rule('condition: ["plain", "foo(?!bar)"]'));
    await lab.sign('rule', 'r');
    for (const text of ['a plain text', 'foobaz'])
      expect((await lab.rye().rules.test({ text, source: 'text', rule: 'r' })).hits).toHaveLength(
        1,
      );
  });
});

describe('a condition that no engine can run', () => {
  const problemsOf = async () =>
    (await lab.rye().items.validate({ type: 'rule', pattern: 'r' })).problems;

  it.each(['a\\Z', '\\h+', '(?>a)b', 'a++', '(unclosed', '\\Gx', '(a)\\g1'])(
    'is refused when it is signed: %s',
    async (condition) => {
      lab.write('rules/r.md', rule(`condition: ${JSON.stringify(condition)}`));
      expect(await problemsOf()).toMatchObject([
        { severity: 'error', message: expect.stringContaining(`condition ${condition}: `) },
      ]);
      const [signed] = await lab.rye().items.sign('rule', 'r');
      expect(signed?.status).toBe('failed');
    },
  );

  it('is a warning beside others', async () => {
    lab.write('rules/r.md', rule('condition: ["fine", "a++"]'));
    expect(await problemsOf()).toMatchObject([{ severity: 'warning' }]);
  });
});

it('testing an unsigned rule reports that it is not signed', async () => {
  lab.write('rules/r.md', rule('condition: x'));
  const { hits, unsigned } = await lab.rye().rules.test({ text: 'x', source: 'text', rule: 'r' });
  expect(hits).toMatchObject([{ rule: 'r' }]);
  expect(unsigned).toMatchObject([{ message: expect.stringContaining('rye sign rule r') }]);
});

describe('a trial of all rules', () => {
  it('includes rules that are not signed, with a notice, and hides no signed one', async () => {
    lab.write('rules/r.md', rule('condition: x'));
    lab.write('rules/ts-no-any.md', rule('enabled: false', 'condition: y'));
    lab.write('rules/torn.md', rule('match: {regexp: x}'));
    const { rules } = lab.rye();
    const trial = await rules.test({ text: 'x as any', source: 'tool', path: 'a.ts' });
    expect(trial.hits).toMatchObject([{ rule: 'ts-no-any' }]);
    expect((await rules.list()).refused).toContainEqual({
      path: expect.stringContaining('torn.md'),
      message: expect.stringContaining('match.regexp'),
    });
    const prose = await rules.test({ text: 'x', source: 'text' });
    expect(prose.hits).toMatchObject([{ rule: 'r' }]);
    expect(prose.unsigned.map(({ message }) => message)).toEqual([
      expect.stringContaining('rye sign rule r'),
      expect.stringMatching(/is not signed.*torn\.md:\d+:\d+: match\.regexp: one of/),
    ]);
  });

  it('a scan checks with signed rules alone', async () => {
    lab.write('rules/r.md', `---\ncondition: x\n---\nStop.\n`);
    lab.write('../src/a.txt', 'x');
    const { hits, unsigned } = await lab.rye().rules.scan({ folder: `${lab.project}/src` });
    expect([hits, unsigned]).toEqual([[], []]);
  });
});
