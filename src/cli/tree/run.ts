import type { CommandSpec, OptionSpec } from '../spec.ts';

const SAFETY: readonly OptionSpec[] = [
  {
    name: 'acknowledge',
    value: 'RISK',
    repeat: true,
    description: 'accept a risk that the policy asks about',
  },
  {
    name: 'allow-unsigned',
    description: "run the project's own unsigned items; the thread is marked as unverified",
  },
];

const DIRECTIVE_OPTIONS: readonly OptionSpec[] = [
  {
    name: 'input',
    value: 'NAME=VALUE',
    repeat: true,
    description: 'an input; NAME=@FILE reads a file',
  },
  { name: 'inputs', value: 'JSON', description: 'all inputs as JSON, @FILE, or - for stdin' },
  { name: 'model', value: 'MODEL', description: 'model id or tier' },
  { name: 'provider', value: 'PROVIDER', description: 'provider of the model' },
  {
    name: 'limit',
    value: 'NAME=N',
    repeat: true,
    description: 'turns, tokens, spend (USD), duration_seconds, spawns or depth',
  },
  { name: 'max-turns', value: 'N', kind: 'integer', description: 'the same as --limit turns=N' },
  {
    name: 'max-budget-usd',
    value: 'USD',
    kind: 'number',
    description: 'the same as --limit spend=USD',
  },
  { name: 'thread-id', value: 'ID', description: 'id of the new thread; refused where taken' },
  { name: 'session-id', value: 'ID', description: 'the same as --thread-id' },
  {
    name: 'parent',
    value: 'ID',
    description: 'parent thread (default: $RYE_PARENT_THREAD_ID)',
  },
  ...SAFETY,
  { name: 'allow-unpriced', description: 'run a model whose price is not known' },
  { name: 'json-schema', value: 'FILE', description: 'JSON Schema that the outputs must match' },
  {
    name: 'async',
    description: 'start it in a process of its own, print its id as JSON and return',
  },
  { name: 'dry-run', description: 'print the plan; nothing is registered, spent or written' },
  {
    name: 'output-format',
    value: 'FORMAT',
    choices: ['text', 'json', 'stream-json'],
    description: 'text, the result as JSON, or every event as a JSON line',
  },
  { name: 'output', short: 'o', value: 'FILE', description: 'also write the final result there' },
  { name: 'print', short: 'p', description: 'print the final result only, without live output' },
  {
    name: 'record',
    value: 'FILE',
    description: "write the model's stream there",
  },
  { name: 'replay', value: 'FILE', description: 'play this recording instead of asking a model' },
];

const DIRECTIVE: CommandSpec = {
  name: 'directive',
  summary: 'run a directive as a thread',
  arguments: [{ name: 'id', description: 'id of the directive, such as rye/core/hello' }],
  options: DIRECTIVE_OPTIONS,
  examples: [
    'rye execute directive hello --input who=Ada',
    'rye execute directive rye/core/project_report --input path=. --limit spend=0.50',
    'rye execute directive hello --dry-run --json',
    'rye run hello --output-format stream-json',
    'rye run hello --async',
  ],
  load: () => import('../commands/execute-directive.ts'),
};

export const RUN_COMMANDS: readonly CommandSpec[] = [
  {
    name: 'execute',
    summary: 'run a directive or a tool',
    examples: ['rye execute directive hello --input who=Ada'],
    commands: [
      DIRECTIVE,
      {
        name: 'tool',
        summary: 'run one tool under the same checks as a thread',
        arguments: [{ name: 'id', description: 'id of the tool, such as rye/file-system/glob' }],
        options: [
          {
            name: 'param',
            value: 'NAME=VALUE',
            repeat: true,
            description: 'a parameter; NAME=@FILE reads a file',
          },
          {
            name: 'params',
            value: 'JSON',
            description: 'all parameters as JSON, @FILE, or - for stdin',
          },
          {
            name: 'async',
            description: 'start it in a process of its own, print its id as JSON and return',
          },
          ...SAFETY,
        ],
        examples: ["rye execute tool rye/file-system/glob --param pattern='**/*.md'"],
        load: () => import('../commands/execute-tool.ts'),
      },
    ],
  },
  { ...DIRECTIVE, name: 'run', summary: 'short for `rye execute directive`' },
];
