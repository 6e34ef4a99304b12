import { HOOK_EVENTS } from '../../core/hook.ts';
import type { CommandSpec } from '../spec.ts';

export const OPERATING_COMMANDS: readonly CommandSpec[] = [
  {
    name: 'import',
    summary: 'review items that were written for another program',
    examples: ['rye import rye-os ../project'],
    commands: [
      {
        name: 'rye-os',
        summary: 'review a tree of Rye OS: what runs, what needs a change, and a patch',
        details:
          'Reads every .ai folder below DIR and changes nothing there. A private copy is signed and planned; no tool, model or server is run.',
        arguments: [{ name: 'dir', description: 'a project or checkout of Rye OS' }],
        options: [
          {
            name: 'patch',
            value: 'FILE',
            description:
              'write the mechanical changes there, for git apply in DIR; FILE must not exist',
          },
        ],
        examples: ['rye import rye-os ../project --patch project.patch'],
        load: () => import('../commands/import-rye-os.ts'),
      },
    ],
  },
  {
    name: 'hooks',
    summary: 'explain which hooks apply',
    examples: ['rye hooks explain hello --event thread_started'],
    commands: [
      {
        name: 'list',
        summary: 'list the merged hooks of all layers',
        arguments: [
          { name: 'directive', optional: true, description: 'with the hooks of this directive' },
        ],
        examples: ['rye hooks list', 'rye hooks list hello --json'],
        load: () => import('../commands/hooks-list.ts'),
      },
      {
        name: 'explain',
        summary: 'say which hooks would fire, and why the others would not',
        arguments: [{ name: 'directive', description: 'id of the directive' }],
        options: [
          {
            name: 'event',
            value: 'EVENT',
            choices: HOOK_EVENTS,
            description: 'only hooks on this event',
          },
          {
            name: 'input',
            value: 'NAME=VALUE',
            repeat: true,
            description: 'an input that conditions may read',
          },
        ],
        examples: ['rye hooks explain hello --event error'],
        load: () => import('../commands/hooks-explain.ts'),
      },
      {
        name: 'schema',
        summary: 'print what the hooks of an event can read, as JSON Schema',
        arguments: [{ name: 'event', optional: true, description: 'only this event' }],
        examples: ['rye hooks schema tool_gate'],
        load: () => import('../commands/hooks-schema.ts'),
      },
    ],
  },
  {
    name: 'config',
    summary: 'show configuration and where each value comes from',
    examples: ['rye config show'],
    commands: [
      {
        name: 'show',
        summary: 'list every value with the file that set it',
        examples: ['rye config show --json'],
        load: () => import('../commands/config-show.ts'),
      },
      {
        name: 'get',
        summary: 'print one value',
        arguments: [{ name: 'path', description: 'dotted path, such as resilience.limits.turns' }],
        examples: ['rye config get resilience.limits.turns'],
        load: () => import('../commands/config-get.ts'),
      },
      {
        name: 'path',
        summary: 'print the folders that configuration is read from',
        examples: ['rye config path'],
        load: () => import('../commands/config-path.ts'),
      },
    ],
  },
  {
    name: 'models',
    summary: 'list configured models',
    examples: ['rye models list'],
    defaultCommand: 'list',
    commands: [
      {
        name: 'list',
        summary: 'list models with provider, tier, window and price',
        examples: ['rye models list --json'],
        load: () => import('../commands/models-list.ts'),
      },
    ],
  },
  {
    name: 'doctor',
    summary: 'check keys, configuration, providers, sandbox and state',
    details:
      'Each check is ok, warn or fail, with a hint. The exit status is 1 when one fails. With --repair the registry, the ledger and the search index are rebuilt from signed files first: damaged ones are moved aside, nothing is deleted. It is refused while a thread runs.',
    options: [
      { name: 'repair', description: 'rebuild damaged or missing databases from signed files' },
    ],
    examples: ['rye doctor', 'rye doctor --repair'],
    load: () => import('../commands/doctor.ts'),
  },
  {
    name: 'completion',
    summary: 'print a completion script for a shell',
    arguments: [
      { name: 'shell', choices: ['bash', 'zsh', 'fish'], description: 'bash, zsh or fish' },
    ],
    examples: [
      'rye completion bash > ~/.local/share/bash-completion/completions/rye',
      'rye completion fish > ~/.config/fish/completions/rye.fish',
    ],
    load: () => import('../commands/completion.ts'),
  },
];
