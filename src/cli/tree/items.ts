import { ITEM_TYPES, SPACES } from '../../core/ids.ts';
import type { ArgumentSpec, CommandSpec, OptionSpec } from '../spec.ts';

const TYPE: ArgumentSpec = {
  name: 'type',
  choices: ITEM_TYPES,
  description: 'directive, tool, knowledge, rule or skill; plurals are accepted',
};
const YES_OPTION: OptionSpec = {
  name: 'yes',
  short: 'y',
  description: 'do not ask; without a terminal nothing is asked',
};
const SIGNABLE_TYPE: ArgumentSpec = {
  name: 'type',
  choices: [...ITEM_TYPES, 'config'],
  description: 'an item type, or config',
};
const ID: ArgumentSpec = {
  name: 'id',
  description: 'path below the type folder without extension, such as rye/core/hello',
};
const ID_OR_GLOB: ArgumentSpec = { name: 'id|glob', description: 'an id, or a quoted glob' };
const SPACE: OptionSpec = {
  name: 'space',
  value: 'SPACE',
  choices: SPACES,
  description: 'only this space',
};

export const ITEM_COMMANDS: readonly CommandSpec[] = [
  {
    name: 'init',
    summary: 'make .ai/ in this folder, and a signing key if there is none',
    options: [
      { name: 'force', description: 'write the shipped files again where they were changed' },
    ],
    examples: ['rye init', 'rye run hello'],
    load: () => import('../commands/init.ts'),
  },
  {
    name: 'list',
    summary: 'list items with space, version and signature; shadowed ones are marked',
    arguments: [TYPE],
    options: [SPACE],
    examples: ['rye list directives', 'rye list tool --space project --json'],
    load: () => import('../commands/list.ts'),
  },
  {
    name: 'fetch',
    summary: 'show one resolved item: metadata and content',
    arguments: [TYPE, ID],
    options: [
      { name: 'raw', description: "print the file's bytes and nothing else" },
      {
        name: 'copy-to',
        value: 'SPACE',
        choices: ['project', 'user'],
        description: 'copy the item there, to change it',
      },
    ],
    examples: [
      'rye fetch directive hello',
      'rye fetch directive rye/core/project_report --copy-to project',
    ],
    load: () => import('../commands/fetch.ts'),
  },
  {
    name: 'search',
    summary: 'search items and thread exports, best first',
    details:
      'Full-text search with AND, OR, NOT, "phrases", prefix* and the fields title: tag: directive: status: model: after: before:. Over knowledge it includes the exports of past threads.',
    arguments: [
      { name: 'type', choices: [...ITEM_TYPES, 'all'], description: 'an item type, or all' },
      { name: 'query', description: 'words and operators; quote it for the shell' },
    ],
    options: [
      {
        name: 'limit',
        value: 'N',
        kind: 'integer',
        description: 'at most N results (default: 20)',
      },
      SPACE,
      {
        name: 'since',
        value: 'T',
        description: 'only what is newer: an ISO date, or an age such as 7d or 12h',
      },
      { name: 'context', description: 'print the lines around the match' },
    ],
    examples: [
      'rye search all budget',
      'rye search knowledge \'status:error "rate limit"\' --since 7d',
    ],
    load: () => import('../commands/search.ts'),
  },
  {
    name: 'validate',
    summary: 'parse and check items; each problem as file:line:col: code: message',
    details: 'Without arguments it checks everything in the project space.',
    arguments: [
      { ...TYPE, optional: true },
      { ...ID_OR_GLOB, optional: true },
    ],
    examples: ['rye validate', "rye validate directive 'team/**'"],
    load: () => import('../commands/validate.ts'),
  },
  {
    name: 'sign',
    summary: 'validate and sign items; replace signatures of the older form',
    arguments: [SIGNABLE_TYPE, ID_OR_GLOB],
    options: [{ name: 'dry-run', description: 'say what would be signed and write nothing' }],
    examples: ['rye sign directive hello', "rye sign tool 'team/*'", 'rye sign config agent/hooks'],
    load: () => import('../commands/sign.ts'),
  },
  {
    name: 'verify',
    summary: "check signatures and trust of items, or of a thread's files",
    details:
      'For a thread it checks thread.json, the plan, every checkpoint of the transcript, capabilities.md, artifacts and the knowledge export, and that it is the newest state that the registry and your user space know. It needs no registry.',
    arguments: [
      {
        name: 'type',
        choices: [...ITEM_TYPES, 'config', 'thread'],
        description: 'an item type, config or thread',
      },
      { name: 'id|glob', description: 'an id or a quoted glob; for thread, the thread id' },
    ],
    options: [
      {
        name: 'accept-head',
        description: 'after restoring a thread on purpose: make what is on disk its newest state',
      },
    ],
    examples: ["rye verify directive '**'", 'rye verify thread hello-1771322456'],
    load: () => import('../commands/verify.ts'),
  },
  {
    name: 'lock',
    summary: "show and accept changes of the project's power files",
    details:
      'The lock file pins the configuration, rules and skills that every run obeys. When one of them changes, runs are refused until you accept the change.',
    examples: ['rye lock', 'rye lock accept'],
    defaultCommand: 'status',
    commands: [
      {
        name: 'status',
        summary: 'list what is pinned and what changed; exit status 3 while runs are refused',
        examples: ['rye lock status --json'],
        load: () => import('../commands/lock-status.ts'),
      },
      {
        name: 'accept',
        summary: 'pin the power files as they are now, under your key',
        details:
          'Signed files come into force. Unsigned and missing files are given up: their guards are off.',
        options: [YES_OPTION],
        examples: ['rye lock accept', 'rye lock accept --yes --json'],
        load: () => import('../commands/lock-accept.ts'),
      },
    ],
  },
  {
    name: 'keys',
    summary: 'manage the signing key and the keys that are trusted',
    examples: ['rye keys list'],
    commands: [
      {
        name: 'init',
        summary: 'make the signing key',
        examples: ['rye keys init'],
        load: () => import('../commands/keys-init.ts'),
      },
      {
        name: 'list',
        summary: 'list own and trusted keys',
        examples: ['rye keys list --json'],
        load: () => import('../commands/keys-list.ts'),
      },
      {
        name: 'export',
        summary: 'print the public key as PEM',
        examples: ['rye keys export > alice.pem'],
        load: () => import('../commands/keys-export.ts'),
      },
      {
        name: 'trust',
        summary: 'trust a public key from a PEM or TOML file',
        arguments: [{ name: 'file', description: 'the key file, or - for standard input' }],
        options: [{ name: 'owner', value: 'NAME', description: 'whose key it is' }, YES_OPTION],
        examples: ['rye keys trust alice.pem --owner alice', 'rye keys trust - < alice.pem'],
        load: () => import('../commands/keys-trust.ts'),
      },
      {
        name: 'revoke',
        summary: 'revoke a key, signed and dated',
        arguments: [{ name: 'keyid', description: 'the fingerprint that `rye keys list` shows' }],
        options: [
          { name: 'reason', value: 'TEXT', description: 'recorded with the revocation' },
          YES_OPTION,
        ],
        examples: ['rye keys revoke 0123456789abcdef --reason "laptop lost"'],
        load: () => import('../commands/keys-revoke.ts'),
      },
      {
        name: 'rotate',
        summary: 'make a new signing key, vouched for by the old one',
        options: [YES_OPTION],
        examples: ['rye keys rotate'],
        load: () => import('../commands/keys-rotate.ts'),
      },
    ],
  },
];
