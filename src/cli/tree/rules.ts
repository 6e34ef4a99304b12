import type { CommandSpec, OptionSpec } from '../spec.ts';

const RULE: OptionSpec = { name: 'rule', value: 'NAME', description: 'this rule alone' };

export const RULE_COMMANDS: readonly CommandSpec[] = [
  {
    name: 'rules',
    summary: 'list, try and scan with stream rules',
    examples: ['rye rules list'],
    commands: [
      {
        name: 'list',
        summary: 'list the rules of all spaces with what each is used for',
        details:
          'stream rules watch a model while it speaks, always rules are part of the system text, rulebook rules can be fetched.',
        options: [
          {
            name: 'directive',
            value: 'ID',
            description: 'as a thread of this directive has them',
          },
        ],
        examples: ['rye rules list', 'rye rules list --directive hello --json'],
        load: () => import('../commands/rules-list.ts'),
      },
      {
        name: 'test',
        summary: 'say which stream rules a text would break',
        details:
          'A file is checked as if a tool wrote it, other text as if the model said it. The exit status is 1 when there are no rules, or when the rule of --rule is not broken.',
        arguments: [
          { name: 'text|file', description: 'a text, the path of a file, or - for standard input' },
        ],
        options: [
          RULE,
          {
            name: 'source',
            value: 'SOURCE',
            choices: ['text', 'thinking', 'tool'],
            description: 'where it would be said',
          },
          {
            name: 'tool',
            value: 'NAME',
            description: 'the tool that would be called (default: write)',
          },
          { name: 'path', value: 'PATH', description: 'the path that the call would name' },
        ],
        examples: [
          "rye rules test 'const a: any = 1;' --path src/a.ts",
          "rye rules test 'git push --force' --tool bash --rule shell-no-force-push",
        ],
        load: () => import('../commands/rules-test.ts'),
      },
      {
        name: 'scan',
        summary: 'check the files of a folder as if each were written',
        details: 'The exit status is 1 when a file breaks a rule.',
        arguments: [
          {
            name: 'folder',
            optional: true,
            description: 'a folder or file (default: the project)',
          },
        ],
        options: [
          RULE,
          { name: 'no-gitignore', description: 'look at ignored files too' },
          {
            name: 'max-bytes',
            value: 'N',
            kind: 'integer',
            description: 'leave larger files out (default: 5242880)',
          },
        ],
        examples: ['rye rules scan src', 'rye rules scan --rule ts-no-any --json'],
        load: () => import('../commands/rules-scan.ts'),
      },
    ],
  },
];
