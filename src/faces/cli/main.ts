import process from 'node:process';
import { CommanderError, InvalidArgumentError, Option, Command as Parser } from 'commander';
import { EXIT, type ExitCode, RyeError } from '../../kernel/core/errors.ts';
import type { Io } from '../ui/io.ts';
import { canPick } from '../ui/io.ts';
import { ERASE_LINE } from '../ui/terminal-text.ts';
import { visible } from '../ui/visible.ts';
import {
  type Command,
  type Context,
  GLOBAL_OPTIONS,
  loadCommand,
  type OptionSpec,
  optionSpecs,
  readOptions,
} from './command.ts';
import { isNotBundled, outputModeOf, reportFailure } from './failure.ts';
import { createProcessIo } from './process-io.ts';
import { ROOT } from './root.ts';
import { shortHelp } from './short-help.ts';
import { gatheringUnsigned } from './unsigned-notices.ts';

export { createProcessIo };

declare const __RYE_VERSION__: string;

/** Version of the package, which the build bakes in. */
const VERSION = __RYE_VERSION__;

/** Runs one command line, without the program's name, and prints its output. Throws only what {@link isNotBundled} names. */
export async function main(argv: readonly string[], io: Io): Promise<ExitCode> {
  return await gatheringUnsigned(io, async (gathering) => await runCall(argv, gathering));
}

async function runCall(argv: readonly string[], io: Io): Promise<ExitCode> {
  const mode = outputModeOf(argv);
  const verbose = wantsTrace(argv);
  let printed = '';
  let exitCode: ExitCode = EXIT.ok;
  try {
    const parser = buildParser({
      io,
      isShort: !wantsAll(argv),
      isForeign: isForeign(argv),
      first: argv[0],
      print: (text) => {
        printed += text;
      },
      setExitCode: (code) => {
        exitCode = code;
      },
    });
    await parser.parseAsync(withoutAliases(argv), { from: 'user' });
    return exitCode;
  } catch (error) {
    if (isNotBundled(error)) throw error;
    if (error instanceof MissingCommand && mode === 'text') {
      io.stderr.write(visible(error.help));
      return EXIT.usage;
    }
    if (error instanceof CommanderError) {
      if (error.exitCode === 0) {
        if (mode === 'text') io.stdout.write(visible(printed));
        else io.stdout.writeRaw(`${informationDocument(error, printed)}\n`);
        return EXIT.ok;
      }
      return reportFailure(usageError(error), io, { mode, verbose: false });
    }
    return reportFailure(error, io, { mode, verbose });
  }
}

/** True if no word of the command line is a command of rye, but some word could be that of a plug-in. */
function isForeign(argv: readonly string[]): boolean {
  const words = argv.filter((word) => !word.startsWith('-'));
  const { commands = [], internal = [] } = ROOT;
  return words.length > 0 && ![...commands, ...internal].some(({ name }) => words.includes(name));
}

/** True for `rye help --all`, which lists every command and option. */
function wantsAll([first, ...rest]: readonly string[]): boolean {
  return first === 'help' && rest.some((word) => word === '--all' || word === 'commands');
}

/** Returns the command line with `help COMMAND`, `version` and the lack of a command replaced by their options. */
function withoutAliases(argv: readonly string[]): readonly string[] {
  const [first, ...rest] = argv;
  if (wantsAll(argv)) return [...rest.filter((word) => word === '--json'), '--help'];
  if (first === 'help') return [...rest, '--help'];
  return argv.length === 0 ? ['--help'] : first === 'version' ? ['--version', ...rest] : argv;
}

/** Returns the document that `--help` and `--version` print with `--json`. */
function informationDocument(error: CommanderError, text: string): string {
  const member = error.code === 'commander.version' ? 'version' : 'help';
  return JSON.stringify({ success: true, [member]: text.trimEnd(), warnings: [] });
}

function usageError(error: CommanderError): RyeError {
  const [message = error.message, suggestion] = error.message.replace(/^error: /, '').split('\n');
  return new RyeError('usage', reworded(message), {
    hint: suggestion?.replace(/^\((.*)\)$/, '$1') ?? 'Add --help for usage and examples.',
  });
}

/** Puts a message of the parser into the form of rye's own messages. */
function reworded(message: string): string {
  return message
    .replace(/^missing required argument '(.*)'$/, 'missing argument <$1>')
    .replace(/^option '(.*)' argument missing$/, 'missing value: $1')
    .replace(/^unknown option '(.*)'$/, 'unknown option $1')
    .replace(
      /^option '(.*)' argument '(.*)' is invalid\. It must be (.*)\.$/,
      '$1: expected $3, got "$2"',
    )
    .replace(
      /^option '(.*)' argument '(.*)' is invalid\. Allowed choices are (.*)\.$/,
      '$1: expected one of $3, got "$2"',
    );
}

interface ParserOptions {
  readonly io: Io;
  /** The help of rye itself is the short one. */
  readonly isShort: boolean;
  /** The command line names no command of rye. */
  readonly isForeign: boolean;
  /** The first word of the command line. */
  readonly first: string | undefined;
  readonly print: (text: string) => void;
  readonly setExitCode: (exitCode: ExitCode) => void;
}

/** A group of commands, for its default command. */
interface Group {
  readonly parser: Parser;
  readonly command: Command;
}

function buildParser(options: ParserOptions): Parser {
  const { io, print, isShort } = options;
  const parser = new Parser(ROOT.name)
    .exitOverride()
    .configureOutput({
      writeOut: print,
      writeErr: () => {},
      outputError: () => {},
      getOutHelpWidth: () => io.stdout.columns,
    })
    .configureHelp({
      minWidthToWrap: 20,
      // the arguments of a command are unknown until it is loaded
      subcommandTerm: (command) => command.name(),
    })
    .helpOption('-h, --help', 'Show help')
    .helpCommand(false)
    .version(VERSION, '-V, --version', 'Print the version');
  for (const option of optionSpecs(GLOBAL_OPTIONS)) parser.addOption(parserOption(option));
  addCommand(parser, ROOT, options);
  // they may belong to a plug-in's command
  if (options.isForeign) parser.allowUnknownOption();
  if (isShort) {
    const text = shortHelp(ROOT.summary, io.stdout.columns);
    parser.helpInformation = () => text;
  }
  return parser;
}

/**
 * Declares a command to the parser and names its subcommands. The subcommand that the command line calls is loaded then.
 * `group` is set for the default command of a group.
 */
function addCommand(parser: Parser, command: Command, options: ParserOptions, group?: Group): void {
  const { summary, details, examples } = command;
  parser.summary(summary);
  parser.description(details === undefined ? summary : `${summary}.\n\n${details}`);
  const globals = parser.parent === null ? [] : ['', 'Options of every command: rye help --all'];
  // the short help has no room for examples
  const isShort = parser.parent === null && options.isShort;
  if (!isShort)
    parser.addHelpText(
      'after',
      [...globals, '', 'Examples:', ...examples.map((line) => `  $ ${line}`)].join('\n'),
    );
  const takesLast = declareArguments(parser, command);
  for (const option of command.options) parser.addOption(parserOption(option));
  const children = new Map<Parser, Command>();
  const called = parser.parent === null ? options.first : undefined;
  for (const child of named(command.commands ?? [], called)) {
    const isDefault = child.name === command.defaultCommand;
    const declared = parser.command(child.name, { isDefault }).summary(child.summary);
    if (child.heading !== undefined) declared.helpGroup(child.heading);
    children.set(declared.helpCommand(false), child);
  }
  for (const child of named(command.internal ?? [], called)) {
    children.set(parser.command(child.name, { hidden: true }), child);
  }
  parser.hook('preSubcommand', async (_, chosen) => {
    const child = children.get(chosen);
    if (child === undefined) return;
    const isDefault = child.name === command.defaultCommand;
    const loaded = await loadCommand(child);
    addCommand(chosen, loaded, options, isDefault ? { parser, command } : undefined);
  });
  const { run } = command;
  if (run !== undefined) {
    // commander passes the unknown word of a group to its default command
    parser.allowExcessArguments().action(async () => {
      const global = readOptions(GLOBAL_OPTIONS, rootOf(parser).opts());
      const context = { io: options.io, global, root: ROOT };
      const given =
        takesLast && parser.opts()['last'] === true ? ['@', ...parser.args] : parser.args;
      const picked = await withPickedThread(command, given, context);
      const words = await withNamedItem(command, picked, context);
      await assertCount(words, parser, command, group);
      const call = async (chosen: readonly string[]): Promise<ExitCode> =>
        await run(chosen, parser.opts(), context);
      options.setExitCode(await withClearThread(command, words, context, call));
    });
  } else if (command.defaultCommand === undefined) {
    parser.allowExcessArguments().action(async () => {
      if (parser.args.length > 0) {
        if (parser.parent === null && (await ranPlugin(parser, options))) return;
        throw await unknown(parser, command);
      }
      throw new MissingCommand(pathOf(parser), parser.helpInformation());
    });
  }
}

/** Throws `usage` for an argument that is missing or unexpected. */
async function assertCount(
  words: readonly string[],
  parser: Parser,
  command: Command,
  group: Group | undefined,
): Promise<void> {
  const hint = `Show the usage with: ${pathOf(parser)} --help`;
  const missing = command.arguments.find(
    ({ optional }, index) => optional !== true && words[index] === undefined,
  );
  if (missing !== undefined) {
    throw new RyeError('usage', `missing argument <${missing.name.replace('...', '')}>`, { hint });
  }
  const isVariadic = command.arguments.some(({ name }) => name.endsWith('...'));
  const excess = isVariadic ? undefined : words[command.arguments.length];
  if (excess === undefined) return;
  const isNamed = group === undefined || group.parser.args[0] === parser.name();
  if (!isNamed) throw await unknown(group.parser, group.command);
  throw new RyeError('usage', `unexpected argument ${JSON.stringify(excess)}`, { hint });
}

/** Runs the command of a plug-in, if there is one of that name. */
async function ranPlugin(parser: Parser, { io, setExitCode }: ParserOptions): Promise<boolean> {
  const { runPluginCommand } = await import('./plugin-command.ts');
  const global = readOptions(GLOBAL_OPTIONS, parser.opts());
  const exitCode = await runPluginCommand(parser.args, { io, global, root: ROOT });
  if (exitCode !== undefined) setExitCode(exitCode);
  return exitCode !== undefined;
}

/** Returns the command of that name alone if the list has it, else the whole list. */
function named(commands: readonly Command[], name: string | undefined): readonly Command[] {
  const found = commands.filter((command) => command.name === name);
  return found.length > 0 ? found : commands;
}

/** A word that may be the path of a file: it names a folder of the file system, or has an extension. */
const FILE_NAME = /^(?:~|\.{1,2})?\/|\.ai\/|\.[a-z]{2,4}$/i;

/** Replaces the path of an item's file by the type and the ID that the command takes. */
async function withNamedItem(
  command: Command,
  words: readonly string[],
  context: Context,
): Promise<readonly string[]> {
  const index = command.arguments.findIndex(({ item }) => item !== undefined);
  const { item } = command.arguments[index] ?? {};
  if (item === undefined || !words.some((word) => FILE_NAME.test(word))) return words;
  const { withItemPath } = await import('./item-path.ts');
  return withItemPath(words, { ...item, index }, context);
}

/** Declares the arguments to the parser. Returns true if the command takes `--last` for its first one. */
function declareArguments(parser: Parser, command: Command): boolean {
  const takesLast = command.arguments[0]?.isThread === true;
  const usage = command.arguments.map(({ name, optional, isThread }) =>
    optional === true || isThread === true ? `[${name}]` : `<${name}>`,
  );
  const isCountedLater = command.arguments.some(
    ({ threadAfter, item }) => threadAfter !== undefined || item !== undefined,
  );
  if (takesLast || isCountedLater) parser.usage(['[options]', ...usage].join(' '));
  for (const [index, { name, description }] of command.arguments.entries()) {
    // with --last the words move by one position, a person may pick a thread, and a path may replace type and ID: the
    // action counts the words
    const word = takesLast || isCountedLater ? `[${name}]` : (usage[index] ?? name);
    parser.argument(word, description);
  }
  return takesLast;
}

/** Returns the position of the argument that names a thread; -1 without one. */
function threadPosition(command: Command, words: readonly string[]): number {
  return command.arguments.findIndex(
    ({ isThread, threadAfter }, index) =>
      isThread === true || (threadAfter !== undefined && words[index - 1] === threadAfter),
  );
}

/** Lets a person pick the thread that a command line lacks. */
async function withPickedThread(
  command: Command,
  words: readonly string[],
  context: Context,
): Promise<readonly string[]> {
  const position = threadPosition(command, words);
  if (position !== words.length || !canPick(context)) return words;
  const { pickThread } = await import('./pick-thread.ts');
  const picked = await pickThread(context);
  return picked === undefined ? words : [...words, picked];
}

/** Runs a command. If the part of an ID fits several threads, lets a person pick one of them and runs it again. */
async function withClearThread(
  command: Command,
  words: readonly string[],
  context: Context,
  call: (words: readonly string[]) => Promise<ExitCode>,
): Promise<ExitCode> {
  try {
    return await call(words);
  } catch (error) {
    const position = threadPosition(command, words);
    const isUnclear = error instanceof RyeError && error.code === 'ambiguous' && position !== -1;
    const candidates: unknown = isUnclear ? error.details?.['candidates'] : undefined;
    if (!Array.isArray(candidates) || !canPick(context)) throw error;
    const { pickThread } = await import('./pick-thread.ts');
    const picked = await pickThread(context, candidates);
    if (picked === undefined) throw error;
    return await call(words.with(position, picked));
  }
}

/** A group without a command. People get its help, programs an error. */
class MissingCommand extends RyeError {
  readonly help: string;

  constructor(path: string, help: string) {
    super('usage', `\`${path}\` needs a command`, { hint: `List them with: ${path} --help` });
    this.help = help;
  }
}

async function unknown(parser: Parser, command: Command): Promise<RyeError> {
  const { unknownCommand } = await import('./unknown-command.ts');
  return await unknownCommand(pathOf(parser), command, parser.args);
}

function pathOf(parser: Parser): string {
  return parser.parent === null ? parser.name() : `${pathOf(parser.parent)} ${parser.name()}`;
}

function rootOf(parser: Parser): Parser {
  return parser.parent === null ? parser : rootOf(parser.parent);
}

function parserOption(spec: OptionSpec): Option {
  const { name, short, kind, value, choices, description } = spec;
  const usage = value === undefined ? '' : spec.optional === true ? ` [${value}]` : ` <${value}>`;
  const long = `--${name}${usage}`;
  const option = new Option(short === undefined ? long : `-${short}, ${long}`, description);
  if (choices !== undefined) return option.choices(choices);
  if (kind !== undefined) return option.argParser((text) => parseNumber(text, kind));
  if (spec.repeat === true) {
    return option.argParser((text: string, previous: readonly string[] | undefined) => [
      ...(previous ?? []),
      text,
    ]);
  }
  return option;
}

function parseNumber(text: string, kind: 'integer' | 'number'): number {
  const value = text.trim() === '' ? Number.NaN : Number(text);
  if (kind === 'integer' ? Number.isSafeInteger(value) && value >= 0 : Number.isFinite(value)) {
    return value;
  }
  throw new InvalidArgumentError(
    kind === 'integer' ? 'It must be a whole number.' : 'It must be a number.',
  );
}

/**
 * Runs the process's command line and ends the process. If a bug or an impatient interrupt ends it early, reports the
 * failure in the output mode of the call. Returns only if another bundle of the program has to run the call.
 */
export async function start(io = createProcessIo()): Promise<void> {
  const argv = process.argv.slice(2);
  const failure = { mode: outputModeOf(argv), verbose: wantsTrace(argv) };
  let isReported = false;
  const report = (thrown: unknown): ExitCode => {
    isReported = true;
    // it may show the status line of a run
    if (io.stderr.isTty) io.stderr.writeRaw(ERASE_LINE);
    return reportFailure(thrown, io, failure);
  };
  const onUncaught = (error: unknown): void => {
    process.exit(isReported ? EXIT.failed : report(error));
  };
  process.on('uncaughtException', onUncaught);
  process.on('exit', (code) => {
    if (isReported) return;
    const cancelled = new RyeError('cancelled', 'interrupted before the command finished');
    const stuck = new RyeError('internal', 'the program ended before the command finished');
    process.exitCode = report(code === EXIT.cancelled ? cancelled : stuck);
  });
  let exitCode: ExitCode;
  try {
    exitCode = await main(argv, io);
  } catch {
    isReported = true;
    process.off('uncaughtException', onUncaught);
    return;
  }
  isReported = true;
  const delivery = await io.flush();
  process.exit(delivery === 'failed' && exitCode === EXIT.ok ? EXIT.failed : exitCode);
}

function wantsTrace(argv: readonly string[]): boolean {
  return argv.includes('--verbose') || argv.includes('-v');
}
