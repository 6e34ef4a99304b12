import {
  merged,
  type Part,
  readShellLine,
  type SimpleCommand,
  textOf,
  type Word,
} from './shell-words.ts';

/** A simple command as rules read it: its words with one space between them. */
export interface CommandView {
  /** As it is written, without quotes. */
  readonly text: readonly Part[];
  /** The same command by other names: of its program alone, without leading options, and without what starts it. */
  readonly others: readonly (readonly Part[])[];
}

const SHELLS: ReadonlySet<string> = new Set('sh bash dash ash ksh mksh zsh fish rbash'.split(' '));
/** Programs that run another one, which their arguments name. */
const STARTERS: ReadonlySet<string> = new Set(
  'env sudo doas su runuser nohup nice ionice chrt time timeout stdbuf setsid command builtin exec xargs parallel find fd ssh watch chroot unshare nsenter flock strace ltrace script trap mapfile readarray busybox toybox systemd-run taskset prlimit setpriv entr caffeinate arch proot fakeroot dbus-run-session xvfb-run numactl'.split(
    ' ',
  ),
);
/** Programs that take a line of the shell as an argument. */
const LINE_TAKERS: ReadonlySet<string> = new Set(
  'env su runuser watch ssh script trap mapfile readarray flock parallel entr'.split(' '),
);
/** Builtins after which a line has another meaning than its words have. */
const REDEFINES: ReadonlySet<string> = new Set(['alias', 'enable', 'hash']);
const MAX_DEPTH = 8;
const MAX_WORDS = 64;
const MAX_VIEWS = 500;

/**
 * Returns the simple commands that a line of the shell runs, including commands in `sh -c`, `eval` and here-documents. Undefined if
 * that cannot be known: the line cannot be read, or a variable, a pattern or stdin decides which program runs.
 */
export function shellCommands(line: string): readonly CommandView[] | undefined {
  const views: CommandView[] = [];
  return addLine(line, views, 0) ? views : undefined;
}

/** Adds the commands of a line; false if they cannot be known. */
function addLine(line: string, views: CommandView[], depth: number): boolean {
  const commands = depth > MAX_DEPTH ? undefined : readShellLine(line);
  return commands?.every((command) => addCommand(command, views, depth)) === true;
}

function addCommand({ words, stdin }: SimpleCommand, views: CommandView[], depth: number): boolean {
  const [program] = words;
  if (program === undefined) return true;
  if (textOf(program) === null || views.length > MAX_VIEWS) return false;
  const started = startedBy(words);
  // any of them may be a program
  if (started.length > MAX_WORDS || started.some((word) => word.includes(null))) return false;
  const runs = [words, ...started.map((_, at) => [...started.slice(at), ...readBy(words)])];
  const named = runs.map((run) => ({ run, name: nameOf(run) }));
  if (named.some(({ name }) => REDEFINES.has(name))) return false;
  const others = named.flatMap(({ run, name }) => spellingsOf(run, name));
  views.push({ text: joined(words), others });
  const scripts = named.flatMap(({ run, name }) => scriptsOf(run, name, stdin));
  return scripts.every((one) => one !== null && addLine(one, views, depth + 1));
}

/** The words among which is the program that a command starts: `-u me git push` of `sudo -u me git push`. */
function startedBy(words: readonly Word[]): readonly Word[] {
  const name = nameOf(words);
  if (!STARTERS.has(name)) return [];
  if (name !== 'find' && name !== 'fd') return words.slice(1);
  const at = words.findIndex((one) => /^-(?:exec|ok|x)/i.test(textOf(one) ?? ''));
  return at === -1 ? [] : words.slice(at + 1);
}

/** Arguments that a command takes from its stdin. */
function readBy(words: readonly Word[]): readonly Word[] {
  return /^(?:xargs|parallel)$/.test(nameOf(words)) ? [[null]] : [];
}

/** The name of the program of a command; empty if it is not known. */
function nameOf([program = []]: readonly Word[]): string {
  const text = textOf(program) ?? '';
  return text.slice(text.lastIndexOf('/') + 1);
}

/** `/usr/bin/git -c a=b push` is `git -c a=b push`, `git a=b push` and `git push` too. */
function spellingsOf(words: readonly Word[], name: string): readonly (readonly Part[])[] {
  const [, ...rest] = words;
  if (name === '') return [joined(words)];
  const first = [name];
  const spellings = [joined([first, ...rest])];
  if (rest[0]?.[0]?.startsWith('-') !== true && rest[0]?.[0] !== null) return spellings;
  for (let at = 1; at < Math.min(rest.length, MAX_WORDS); at += 1) {
    spellings.push(joined([first, ...rest.slice(at)]));
  }
  return spellings;
}

/** Lines of the shell that a command runs; null: one that is not known. */
function scriptsOf(
  words: readonly Word[],
  name: string,
  stdin: string | null | undefined,
): readonly (string | null)[] {
  const args = words.slice(1).map(textOf);
  if (name === 'eval') return [args.includes(null) ? null : args.join(' ')];
  // `watch 'git push'`, `su -c 'git push'`
  if (LINE_TAKERS.has(name)) return args.filter((one) => one !== null && /\s/.test(one));
  const read = [stdin ?? null];
  if (name === '.' || name === 'source') return isScriptFile(args[0]) ? [] : read;
  if (!SHELLS.has(name)) return [];
  const plain = args.filter(
    (one, at) => !/^(?:[-+][a-zA-Z]*[oO]|--\w+-file|--rcfile)$/.test(args[at - 1] ?? ''),
  );
  if (/^--(?:version|help)$/.test(plain[0] ?? '')) return [];
  const inline = plain.findIndex((one) => /^[-+][a-zA-Z]*c/.test(one ?? ''));
  if (inline !== -1) return linesIn(plain.slice(inline + 1));
  const options = plain.findIndex((one) => one === null || !/^[-+]/.test(one));
  const readsStdin = plain.some((one) => /^-[a-zA-Z]*s/.test(one ?? ''));
  return !readsStdin && isScriptFile(plain[options]) ? [] : read;
}

/** The line after `-c`, and what may be one because options come before it. */
function linesIn(args: readonly (string | null)[]): readonly (string | null)[] {
  const operands = args.filter((one) => one === null || !/^[-+]/.test(one));
  if (operands.length === 0) return [null];
  return operands.filter((one, at) => at === 0 || one === null || /\s/.test(one));
}

/** True for a file whose text the command does not show; pipes and substitutions are none. */
function isScriptFile(path: string | null | undefined): boolean {
  return typeof path === 'string' && !/^\/(?:dev|proc)\//.test(path);
}

function joined(words: readonly Word[]): readonly Part[] {
  return merged(words.flatMap((word, at) => (at === 0 ? word : [' ', ...word])));
}
