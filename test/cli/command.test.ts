import { describe, expect, expectTypeOf, it } from 'vitest';
import {
  argument,
  choice,
  defineCommand,
  flag,
  integer,
  list,
  negatedFlag,
  optionalArgument,
  optionalText,
  text,
} from '../../src/faces/cli/command.ts';
import { createFakeIo } from '../helpers/fake-io.ts';

const CONTEXT = {
  io: createFakeIo(),
  global: {
    project: undefined,
    userSpace: undefined,
    config: [],
    json: false,
    quiet: false,
    verbose: false,
    color: true,
  },
  root: { name: 'rye', summary: '', arguments: [], options: [], examples: [] },
} as const;

describe('a command', () => {
  it('types its arguments and options by their declarations', async () => {
    let seen: unknown;
    const command = defineCommand({
      name: 'probe',
      summary: 'Probe',
      arguments: { id: argument('An ID'), rest: optionalArgument('More', { name: 'more' }) },
      options: {
        dryRun: flag('A flag'),
        gitignore: negatedFlag('A flag that is on'),
        limit: integer('N', 'A number'),
        space: choice('SPACE', ['project', 'user'], 'A choice'),
        input: list('NAME=VALUE', 'A list'),
        summary: optionalText('TEXT', 'A text or nothing'),
        out: text('FILE', 'A text', { short: 'o' }),
      },
      examples: [],
      run: ({ args, options }) => {
        expectTypeOf(args).toEqualTypeOf<{
          readonly id: string;
          readonly rest: string | undefined;
        }>();
        expectTypeOf(options).toEqualTypeOf<{
          readonly dryRun: boolean;
          readonly gitignore: boolean;
          readonly limit: number | undefined;
          readonly space: 'project' | 'user' | undefined;
          readonly input: readonly string[];
          readonly summary: string | true | undefined;
          readonly out: string | undefined;
        }>();
        // @ts-expect-error a misspelled option does not compile
        void options.dryrun;
        // @ts-expect-error a misspelled argument does not compile
        void args.ids;
        // @ts-expect-error an option is not an argument
        void args.dryRun;
        seen = { ...args, ...options };
        return Promise.resolve(0);
      },
    });
    await command.run?.(['a'], { dryRun: true, space: 'user', input: ['x=1'] }, CONTEXT);
    expect(seen).toEqual({
      id: 'a',
      rest: undefined,
      dryRun: true,
      gitignore: true,
      limit: undefined,
      space: 'user',
      input: ['x=1'],
      summary: undefined,
      out: undefined,
    });
    expect(command.options.map(({ name }) => name)).toEqual([
      'dry-run',
      'no-gitignore',
      'limit',
      'space',
      'input',
      'summary',
      'out',
    ]);
    expect(command.arguments.map(({ name }) => name)).toEqual(['id', 'more']);
  });

  it('has no options unless it declares some', async () => {
    const command = defineCommand({
      name: 'probe',
      summary: 'Probe',
      examples: [],
      run: ({ options }) => {
        // @ts-expect-error an undeclared option does not compile
        void options.dryRun;
        return Promise.resolve(0);
      },
    });
    expect(await command.run?.([], {}, CONTEXT)).toBe(0);
  });
});
