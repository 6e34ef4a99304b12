import { readFileSync } from 'node:fs';
import { expect, it, test } from 'vitest';
import { cliPage } from '../../src/cli/help-page.ts';
import type { CommandSpec } from '../../src/cli/spec.ts';
import { ROOT } from '../../src/cli/tree/root.ts';

it('docs/cli.md is what the command tree says (else: npm run docs:cli)', () => {
  expect(readFileSync('docs/cli.md', 'utf8')).toBe(cliPage());
});

test.each(commandsBelow(ROOT))('$name has a summary and examples', ({ summary, examples }) => {
  expect(summary).not.toBe('');
  expect(examples).not.toHaveLength(0);
});

test.each(commandsBelow(ROOT).filter(({ commands }) => commands === undefined))(
  '$name has a file that runs it',
  async ({ load }) => {
    expect(await load?.()).toMatchObject({ run: expect.any(Function) });
  },
);

function commandsBelow(spec: CommandSpec): readonly CommandSpec[] {
  return (spec.commands ?? []).flatMap((command) => [command, ...commandsBelow(command)]);
}
