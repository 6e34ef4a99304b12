import { RyeError } from '../core/errors.ts';
import { didYouMean } from '../core/text.ts';
import type { ChatCommand, ChatCommandName, ChatLine } from './api/chat.ts';

const NAMES = [
  'help',
  'model',
  'tools',
  'cost',
  'budget',
  'tree',
  'undo',
  'compact',
  'skill',
  'new',
  'quit',
] as const satisfies readonly ChatCommandName[];

export const CHAT_COMMANDS: readonly ChatCommand[] = [
  { name: 'help', summary: 'List the commands and keys', needs: 'nothing' },
  {
    name: 'model',
    argument: '[MODEL]',
    summary: 'Choose another model, from the next message on',
    needs: 'idle',
  },
  { name: 'tools', summary: 'List the tools that the model may use', needs: 'nothing' },
  { name: 'cost', summary: 'Show what the conversation has cost and may cost', needs: 'nothing' },
  {
    name: 'budget',
    argument: 'USD',
    summary: 'Let the next message spend this much',
    needs: 'idle',
  },
  {
    name: 'tree',
    argument: '[ENTRY]',
    summary: 'Show the session tree, or go back to an entry',
    needs: 'nothing',
  },
  {
    name: 'undo',
    argument: '[force]',
    summary: 'Go back to before your last message, with the files that were changed',
    needs: 'idle',
  },
  {
    name: 'compact',
    argument: '[FOCUS]',
    summary: 'Replace the older conversation with a summary',
    needs: 'idle',
  },
  {
    name: 'skill',
    argument: 'NAME',
    summary: 'Give the model a skill with the next message',
    needs: 'nothing',
  },
  { name: 'new', summary: 'Start another conversation', needs: 'idle' },
  { name: 'quit', summary: 'Leave; the conversation can be continued', needs: 'nothing' },
];

/** Other programs' names for the same. */
const ALIASES: Readonly<Record<string, ChatCommandName>> = {
  exit: 'quit',
  q: 'quit',
  '?': 'help',
  clear: 'new',
};

/** A slash and one word. A path such as `/etc/hosts` has a second slash, and is a message. */
const SLASH = /^\/([A-Za-z?_-]*)(?:\s+([^]*))?$/;

/**
 * Reads a line as a command; undefined for a message. A line that starts with a space is a message. Throws `usage` for a
 * command that does not exist, so that a typing error never reaches the model.
 */
export function chatLineOf(line: string): ChatLine | undefined {
  const [, word, rest = ''] = SLASH.exec(line.trimEnd()) ?? [];
  if (word === undefined) return undefined;
  const lower = word.toLowerCase();
  const name =
    NAMES.find((known) => known === lower) ??
    (Object.hasOwn(ALIASES, lower) ? ALIASES[lower] : undefined);
  if (name !== undefined) return { name, rest: rest.trim() };
  throw new RyeError('usage', `unknown command /${word}; nothing was sent`, {
    hint:
      didYouMean(lower, NAMES, (known) => `/${known}`) ??
      'List the commands with /help. To send the line as a message, start it with a space.',
  });
}

/** Returns the commands that a typed start can become, with their slash. */
export function completionsOf(start: string): readonly string[] {
  if (!/^\/[a-z]*$/.test(start)) return [];
  return NAMES.map((name) => `/${name}`).filter((name) => name.startsWith(start));
}

/** True for a command that can only run between two answers. */
export function needsIdle({ name, rest }: ChatLine): boolean {
  const needs = CHAT_COMMANDS.find((command) => command.name === name)?.needs;
  return needs === 'idle' || (name === 'tree' && rest !== '');
}
