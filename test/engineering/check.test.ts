import process from 'node:process';
import { expect, it } from 'vitest';
// @ts-expect-error: a script without types
import { ALL, checksOf, runChecks } from '../../scripts/check.mjs';

interface Check {
  readonly name: string;
  readonly command: readonly string[];
}

const namesOf = (checks: readonly Check[]): readonly string[] => checks.map(({ name }) => name);

async function tried(checks: readonly Check[]): Promise<{ passes: boolean; output: string }> {
  let output = '';
  const write = (text: string): void => {
    output += text;
  };
  return { passes: (await runChecks(checks, { write })) as boolean, output };
}

const exits = (name: string, script: string): Check => ({
  name,
  command: [process.execPath, '-e', script],
});

it('check passes only if every checker passes, and shows the output of those that fail', async () => {
  const good = exits('good', 'console.log("fine")');
  const bad = exits('bad', 'console.log("line 3 is wrong"); process.exitCode = 3');
  expect((await tried([good, good])).passes).toBe(true);
  const { passes, output } = await tried([bad, good]);
  expect(passes).toBe(false);
  expect(output).toMatch(/^FAIL bad .*\nline 3 is wrong$/m);
  expect(output).toMatch(/^ok {3}good /m);
  expect(output).not.toContain('fine');
});

it.each([
  ['is killed', exits('killed', 'process.kill(process.pid, "SIGKILL")')],
  ['is not installed', { name: 'missing', command: ['/nowhere/checker'] }],
])('check fails if a checker %s', async (_, broken) => {
  expect((await tried([broken])).passes).toBe(false);
});

it('check runs each checker', () => {
  expect(namesOf(ALL as Check[]).toSorted()).toEqual(
    [
      'budgets',
      'dead code',
      'format',
      'imports',
      'lint',
      'page types',
      'types',
      'words',
    ].toSorted(),
  );
});

it('check --changed gives a changed file to the checkers that can read it', () => {
  const code = checksOf(['src/kernel/core/ids.ts', 'CHANGELOG.md']) as Check[];
  expect(namesOf(code)).toEqual(['lint', 'types', 'format', 'words']);
  const [lint, , format, words] = code.map(({ command }) => command);
  expect(lint?.slice(-1)).toEqual(['src/kernel/core/ids.ts']);
  expect(format?.slice(-2)).toEqual(['src/kernel/core/ids.ts', 'CHANGELOG.md']);
  expect(words?.slice(2)).toEqual(['src/kernel/core/ids.ts']);
  expect(namesOf(checksOf(['docs/cli.md']) as Check[])).toEqual(['format', 'words']);
  expect(checksOf([])).toEqual([]);
});
