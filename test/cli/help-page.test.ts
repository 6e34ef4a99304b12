import { readFileSync } from 'node:fs';
import { expect, it, test } from 'vitest';
import { type Command, loadTree } from '../../src/faces/cli/command.ts';
import { cliPage } from '../../src/faces/cli/help-page.ts';
import { ROOT } from '../../src/faces/cli/root.ts';

const COMMANDS = commandsBelow(await loadTree(ROOT));

it('docs/cli.md is up to date (else: npm run docs:cli)', async () => {
  expect(readFileSync('docs/cli.md', 'utf8')).toBe(await cliPage());
});

test.each(COMMANDS)('$name has a summary and examples', ({ summary, examples }) => {
  expect(summary).not.toBe('');
  expect(examples).not.toHaveLength(0);
});

test.each(COMMANDS.filter(({ commands }) => commands === undefined))(
  '$name has a run function',
  ({ run }) => {
    expect(run).toBeTypeOf('function');
  },
);

function commandsBelow(spec: Command): readonly Command[] {
  return (spec.commands ?? []).flatMap((command) => [command, ...commandsBelow(command)]);
}
