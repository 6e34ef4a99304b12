import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { workspace } from '../helpers/workspace.ts';

/** A project with a rule that is not signed, and a file that breaks it. */
async function project() {
  const here = await workspace();
  const folder = path.join(here.project, '.ai', 'rules');
  mkdirSync(folder, { recursive: true });
  const text = '---\ndescription: No pelicans.\ncondition: ["pelican"]\n---\nWrite about gulls.\n';
  writeFileSync(path.join(folder, 'birds.md'), text);
  writeFileSync(path.join(here.project, 'a.txt'), 'A pelican.\n');
  return here;
}

const NOTICE = 'no thread uses .ai/rules/birds.md yet';

it.each([
  [['rules', 'test', 'the pelican', '--rule', 'birds'], 0],
  [['rules', 'scan', 'a.txt', '--rule', 'birds'], 1],
])(
  'rye %j tries a rule that is not signed, and says that no thread uses it',
  async (words, code) => {
    const here = await project();
    const tried = await here.rye(words);
    expect([tried.code, tried.stdout]).toEqual([code, expect.stringContaining('birds')]);
    expect(tried.stderr).toContain(NOTICE);
    expect(tried.stderr).toContain('rye sign rule birds');
    const { hits, unsigned } = JSON.parse((await here.rye([...words, '--json'])).stdout) as {
      hits: readonly object[];
      unsigned: readonly object[];
    };
    expect(hits).toMatchObject([{ rule: 'birds' }]);
    expect(unsigned).toMatchObject([{ path: expect.stringContaining('birds.md') as string }]);
    await here.rye(['sign', 'rule', 'birds']);
    const signed = await here.rye(words);
    expect([signed.code, signed.stderr]).toEqual([code, '']);
  },
);

it('a rule that cannot be read is refused as before', async () => {
  const here = await project();
  const file = path.join(here.project, '.ai', 'rules', 'broken.md');
  writeFileSync(file, '---\ncondition: [\n---\nx\n');
  const tried = await here.rye(['rules', 'test', 'x', '--rule', 'broken']);
  expect(tried.code).not.toBe(0);
  expect(tried.stderr).toContain('rule_malformed');
});

it('one whose signed text was changed is tried as it is now', async () => {
  const here = await project();
  await here.rye(['sign', 'rule', 'birds']);
  const file = path.join(here.project, '.ai', 'rules', 'birds.md');
  writeFileSync(file, readFileSync(file, 'utf8').replaceAll('pelican', 'penguin'));
  const tried = await here.rye(['rules', 'test', 'the penguin', '--rule', 'birds']);
  expect([tried.code, tried.stderr]).toEqual([0, expect.stringContaining(NOTICE)]);
});
