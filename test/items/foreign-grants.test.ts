import { expect, it } from 'vitest';
import { validateItem } from '../../src/kernel/items/validate.ts';

const problems = async (permissions: string) =>
  await validateItem({
    type: 'directive',
    id: 'd',
    path: 'd.md',
    text: `# d\n\n\`\`\`xml\n<directive name="d" version="1.0.0"><metadata><description>d</description><category></category><author>a</author><permissions>${permissions}</permissions></metadata></directive>\n\`\`\`\n\nDo it.\n`,
  });

it.each([
  ['<execute><tool>a/b <junk/></tool></execute>', /<junk> inside <tool> has no effect/],
  [
    '<execute><tool>a/b<process><step name="x"/></process></tool></execute>',
    /<process> inside <tool> has no effect/,
  ],
  [
    '<fetch><knowledge>a/b<acknowledge risk="elevated"/></knowledge></fetch>',
    /<acknowledge> inside <knowledge>/,
  ],
  ['<acknowledge risk="elevated">why<tool>a/b</tool></acknowledge>', /<tool> inside <acknowledge>/],
  [
    '<execute><tool optinal="true">a/b</tool></execute>',
    /attribute "optinal" of <tool> has no effect/,
  ],
])('a grant warns of what has no effect in it: %s', async (permissions, message) => {
  expect(await problems(permissions)).toMatchObject([
    { severity: 'warning', code: 'permission_malformed', message: expect.stringMatching(message) },
  ]);
});

it('a grant without foreign parts warns of nothing', async () => {
  const all = '<execute><tool optional="true" ask="true" reason="r">a/b</tool></execute>';
  expect(await problems(all)).toEqual([]);
});
