import type { OptionSpec } from '../spec.ts';

/** Options of every command; they may stand before or after its name. */
export const GLOBAL_OPTIONS: readonly OptionSpec[] = [
  {
    name: 'project',
    short: 'C',
    value: 'DIR',
    description: 'folder that contains .ai (default: $RYE_PROJECT, else the nearest above)',
  },
  {
    name: 'user-space',
    value: 'DIR',
    description: "folder of the user's .ai (default: $RYE_USER_SPACE, else home)",
  },
  {
    name: 'config',
    short: 'c',
    value: 'KEY=VALUE',
    repeat: true,
    description: 'override one configuration value',
  },
  { name: 'json', description: 'print exactly one JSON document on stdout' },
  { name: 'quiet', short: 'q', description: 'print no progress and no notices' },
  { name: 'verbose', short: 'v', description: 'print more, and stack traces of failures' },
  { name: 'no-color', description: 'print no colours' },
];
