import { RyeError } from '../../kernel/core/errors.ts';
import { didYouMean } from '../../kernel/core/text.ts';
import { type Command, loadCommand } from './command.ts';

const LOGIN =
  'rye has no accounts. Export an API key, such as ANTHROPIC_API_KEY; `rye models list` names the variables.';

/** Words of Rye OS and of other programs, with the command here, or a sentence. */
const REPLACEMENTS: Readonly<Record<string, string>> = {
  'rye load': '`rye fetch <type> <id>`',
  'rye execute knowledge': '`rye fetch knowledge <id>`',
  'rye execute config': '`rye config show`',
  'rye graph': '`rye run <directive> --provider literal`, for a directive with <process> steps',
  'rye primary': '`rye --help`',
  'rye test': '`rye run <directive> --dry-run` or `rye run <directive> --replay FILE`',
  'rye install': '`rye import rye-os DIR`, which reviews your copy',
  'rye remote': '`rye run` on the other machine; rye has no remotes',
  'rye continue': '`rye run --continue`, `rye ask --continue` or `rye chat --continue`',
  'rye cancel': '`rye stop`',
  'rye kill': '`rye stop`, or `rye threads kill` for a process that does not react',
  'rye log': '`rye logs`',
  'rye ls': '`rye ps` for threads, or `rye list directives`',
  'rye sessions': '`rye ps`',
  'rye session': '`rye show`',
  'rye history': '`rye ps`',
  'rye status': '`rye show`',
  'rye exec': '`rye run`',
  'rye start': '`rye run`',
  'rye ui': '`rye threads open`',
  'rye open': '`rye threads open`',
  'rye tui': '`rye threads open`, or `rye chat`',
  'rye watch': '`rye attach`, or `rye tree --watch`',
  'rye tools': '`rye list tools`',
  'rye tool': '`rye list tools`, or `rye execute tool <id>`',
  'rye directives': '`rye list directives`',
  'rye login': LOGIN,
  'rye auth': LOGIN,
  'rye logout': LOGIN,
  'rye update': 'Install the new version with npm, as you installed this one.',
  'rye upgrade': 'Install the new version with npm, as you installed this one.',
  'rye uninstall': 'Run: npm uninstall -g rye-threads',
};

/** Other words for a subcommand; the first that the group has is meant. */
const SYNONYMS: Readonly<Record<string, readonly string[]>> = {
  ls: ['list'],
  ps: ['list'],
  all: ['list'],
  log: ['logs'],
  tail: ['logs'],
  stop: ['cancel'],
  abort: ['cancel'],
  end: ['cancel'],
  continue: ['resume'],
  info: ['show'],
  status: ['show', 'list'],
  get: ['show', 'list'],
  view: ['show', 'open'],
  watch: ['attach'],
  follow: ['attach'],
  message: ['steer'],
  send: ['steer'],
  create: ['add', 'init'],
  new: ['add', 'init'],
  rm: ['remove', 'gc'],
  delete: ['remove', 'gc'],
  fork: ['branch'],
  rewind: ['branch'],
  set: ['use', 'get'],
};

/** Returns the error of a word that is no command of a group; the hint has the command that was probably meant. */
export async function unknownCommand(
  path: string,
  { commands = [] }: Command,
  [word = '', next]: readonly string[],
): Promise<RyeError> {
  const names = [
    ...commands.map(({ name }) => name),
    ...(path === 'rye' ? ['help', 'version'] : []),
  ];
  const same = (SYNONYMS[word] ?? []).find((name) => names.includes(name));
  const swapped = names.find((name) => lettersOf(name) === lettersOf(word));
  return new RyeError('usage', `unknown command ${JSON.stringify(word)}`, {
    hint:
      replacementOf(path, word) ??
      (same === undefined ? undefined : `Did you mean \`${path} ${same}\`?`) ??
      (swapped === undefined ? undefined : `Did you mean \`${path} ${swapped}\`?`) ??
      (await groupNamed(path, commands, [word, next])) ??
      (path === 'rye' ? await subcommandNamed(commands, word) : undefined) ??
      didYouMean(word, names, (name) => `\`${path} ${name}\``) ??
      `List the commands with: ${path === 'rye' ? 'rye help --all' : `${path} --help`}`,
  });
}

/** Returns the letters of a word in order: two words that differ by swapped letters have the same. */
function lettersOf(word: string): string {
  return word.split('').toSorted().join('');
}

function replacementOf(path: string, word: string): string | undefined {
  if (word === 'help') return `Did you mean \`${path} --help\`?`;
  const command = `${path} ${word}`;
  const found = Object.hasOwn(REPLACEMENTS, command) ? REPLACEMENTS[command] : undefined;
  return found?.startsWith('`') === true ? `Did you mean ${found}?` : found;
}

/** Finds the command whose name is the singular or plural of a word, with the subcommand that follows: `rye thread list`. */
async function groupNamed(
  path: string,
  commands: readonly Command[],
  [word, next]: readonly [string, string | undefined],
): Promise<string | undefined> {
  const found = commands.find(({ name }) => name === `${word}s` || `${name}s` === word);
  if (found === undefined) return undefined;
  const { commands: children = [] } = await loadCommand(found);
  const names = new Set(children.map(({ name }) => name));
  const wanted = [next ?? '', ...(SYNONYMS[next ?? ''] ?? [])];
  const child = wanted.find((name) => names.has(name));
  return `Did you mean \`${[path, found.name, ...(child === undefined ? [] : [child])].join(' ')}\`?`;
}

/** Finds a word among the commands of `rye threads`, which a person may take for one of rye. */
async function subcommandNamed(
  commands: readonly Command[],
  word: string,
): Promise<string | undefined> {
  const threads = commands.find(({ name }) => name === 'threads');
  const { commands: children = [] } = threads === undefined ? {} : await loadCommand(threads);
  const isFound = children.some(({ name }) => name === word);
  return isFound ? `Did you mean \`rye threads ${word}\`?` : undefined;
}
