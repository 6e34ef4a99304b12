import process from 'node:process';
import { Command, CommanderError, InvalidArgumentError, Option } from 'commander';
import { EXIT, type ExitCode, RyeError } from '../core/errors.ts';
import { compact } from '../core/json.ts';
import { didYouMean } from '../core/text.ts';
import { outputModeOf, reportFailure } from './failure.ts';
import type { GlobalOptions, Invocation, OptionValue } from './invocation.ts';
import type { Io } from './io.ts';
import { createProcessIo } from './process-io.ts';
import type { CommandSpec, OptionSpec } from './spec.ts';
import { ERASE_LINE } from './terminal-text.ts';
import { GLOBAL_OPTIONS } from './tree/global-options.ts';
import { ROOT } from './tree/root.ts';
import { VERSION } from './version.ts';

export { createProcessIo };

/** Runs one command line, without the program's name, and prints what it has to say. Never throws. */
export async function main(argv: readonly string[], io: Io): Promise<ExitCode> {
  const mode = outputModeOf(argv);
  const verbose = wantsTrace(argv);
  let printed = '';
  let exitCode: ExitCode = EXIT.ok;
  try {
    const program = buildProgram(io, {
      words: new Set(argv),
      print: (text) => {
        printed += text;
      },
      run: async (spec, invocation) => {
        const module = await spec.load?.();
        if (module !== undefined) exitCode = await module.run(invocation, io, ROOT);
      },
    });
    await program.parseAsync(argv, { from: 'user' });
    return exitCode;
  } catch (error) {
    if (error instanceof CommanderError) {
      if (error.exitCode === 0) {
        io.stdout.write(mode === 'text' ? printed : `${informationDocument(error, printed)}\n`);
        return EXIT.ok;
      }
      return reportFailure(usageError(error), io, { mode, verbose: false });
    }
    return reportFailure(error, io, { mode, verbose });
  }
}

/** `--help` and `--version` under `--json`. */
function informationDocument(error: CommanderError, text: string): string {
  const member = error.code === 'commander.version' ? 'version' : 'help';
  return JSON.stringify({ success: true, [member]: text.trimEnd() });
}

function usageError(error: CommanderError): RyeError {
  const [message = error.message, suggestion] = error.message.replace(/^error: /, '').split('\n');
  return new RyeError('usage', message, {
    hint: suggestion?.replace(/^\((.*)\)$/, '$1') ?? 'Add --help to see the usage and examples.',
  });
}

interface Handlers {
  /** The command line. */
  readonly words: ReadonlySet<string>;
  readonly print: (text: string) => void;
  readonly run: (spec: CommandSpec, invocation: Invocation) => Promise<void>;
}

function buildProgram(io: Io, handlers: Handlers): Command {
  const program = new Command(ROOT.name)
    .exitOverride()
    .configureOutput({
      writeOut: handlers.print,
      writeErr: () => {},
      outputError: () => {},
      getOutHelpWidth: () => io.stdout.columns,
    })
    .configureHelp({ showGlobalOptions: true, minWidthToWrap: 20 })
    .helpOption('-h, --help', 'show help')
    .helpCommand(false)
    .version(VERSION, '-V, --version', 'print the version');
  for (const option of GLOBAL_OPTIONS) program.addOption(optionOf(option));
  describe({ command: program, spec: ROOT }, handlers);
  return program;
}

/** A command of commander with the spec that it was made from. */
interface Described {
  readonly command: Command;
  readonly spec: CommandSpec;
}

/** Gives a commander command everything that its spec says, subcommands included. */
function describe({ command, spec }: Described, handlers: Handlers, group?: Described): void {
  const summary = `${spec.summary.charAt(0).toUpperCase()}${spec.summary.slice(1)}`;
  command.summary(spec.summary);
  command.description(spec.details === undefined ? summary : `${summary}.\n\n${spec.details}`);
  command.addHelpText(
    'after',
    ['', 'Examples:', ...spec.examples.map((line) => `  $ ${line}`)].join('\n'),
  );
  for (const { name, optional, description } of spec.arguments ?? []) {
    command.argument(optional === true ? `[${name}]` : `<${name}>`, description);
  }
  for (const option of spec.options ?? []) command.addOption(optionOf(option));
  for (const child of commandsWithin({ command, spec }, handlers)) {
    const isDefault = child.name === spec.defaultCommand;
    const described = { command: command.command(child.name, { isDefault }), spec: child };
    describe(described, handlers, isDefault ? { command, spec } : undefined);
  }
  for (const child of spec.internal ?? []) {
    describe({ command: command.command(child.name, { hidden: true }), spec: child }, handlers);
  }
  if (spec.load === undefined) {
    if (spec.defaultCommand !== undefined) return;
    command.allowExcessArguments().action(() => {
      throw unknownCommand({ command, spec }, command.args[0]);
    });
    return;
  }
  // commander hands a group's unknown word to its default command
  command.allowExcessArguments(group !== undefined).action(async () => {
    const excess = command.args[spec.arguments?.length ?? 0];
    if (group !== undefined && excess !== undefined) throw unknownCommand(group, excess);
    await handlers.run(spec, invocationOf(command, spec));
  });
}

/** A group that no word of the command line names cannot be entered: its commands are not made. */
function commandsWithin({ command, spec }: Described, { words }: Handlers): readonly CommandSpec[] {
  return command.parent === null || words.has(spec.name) ? (spec.commands ?? []) : [];
}

function unknownCommand({ command, spec }: Described, word: string | undefined): RyeError {
  const names = (spec.commands ?? []).map(({ name }) => name);
  const path = pathOf(command);
  const known = `Commands are: ${names.join(', ')}.`;
  if (word === undefined) {
    return new RyeError('usage', `no command follows \`${path}\``, {
      hint: `${known} See ${path} --help.`,
    });
  }
  return new RyeError('usage', `there is no command \`${path} ${word}\``, {
    hint: replacementOf(`${path} ${word}`) ?? didYouMean(word, names) ?? known,
  });
}

/** Commands of Rye OS, with what does the same here. */
const REPLACEMENTS: Readonly<Record<string, string>> = {
  'rye load': 'rye fetch <type> <id>',
  'rye execute knowledge': 'rye fetch knowledge <id>',
  'rye execute config': 'rye config show',
  'rye thread': 'rye run <directive>',
  'rye graph': 'rye run <directive> --provider literal, for a directive with <process> steps',
  'rye primary': 'rye --help',
  'rye test': 'rye run <directive> --dry-run, or rye run <directive> --replay FILE',
  'rye install': 'rye import rye-os DIR, which reviews what you copied',
  'rye remote': 'rye run on that machine; rye has no remotes',
};

function replacementOf(command: string): string | undefined {
  const found = Object.hasOwn(REPLACEMENTS, command) ? REPLACEMENTS[command] : undefined;
  return found === undefined ? undefined : `Did you mean: ${found}?`;
}

function pathOf(command: Command): string {
  return command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`;
}

function optionOf(spec: OptionSpec): Option {
  const { name, short, kind, choices, description } = spec;
  const long = `--${name}${valueUsage(spec)}`;
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

function valueUsage({ value, optional }: OptionSpec): string {
  if (value === undefined) return '';
  return optional === true ? ` [${value}]` : ` <${value}>`;
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

function invocationOf(command: Command, spec: CommandSpec): Invocation {
  const options: Record<string, OptionValue | undefined> = {};
  for (const { name } of spec.options ?? []) options[name] = valueOf(command, name);
  return { args: command.args, options, global: globalOptionsOf(rootOf(command)) };
}

function rootOf(command: Command): Command {
  return command.parent === null ? command : rootOf(command.parent);
}

function valueOf(command: Command, name: string): OptionValue | undefined {
  const key = name.replaceAll(/-(.)/g, (_, letter: string) => letter.toUpperCase());
  return command.getOptionValue(key) as OptionValue | undefined;
}

function globalOptionsOf(program: Command): GlobalOptions {
  const text = (name: string): string | undefined => valueOf(program, name) as string | undefined;
  const flag = (name: string): boolean => valueOf(program, name) === true;
  const config = valueOf(program, 'config') as readonly string[] | undefined;
  return compact({
    project: text('project'),
    userSpace: text('user-space'),
    json: flag('json'),
    quiet: flag('quiet'),
    verbose: flag('verbose'),
    color: flag('color'),
    config: config ?? [],
  });
}

/**
 * Runs the process's command line and ends the process. Whatever ends it before a command has said how it ended,
 * a bug or an impatient interrupt, is reported as a failure in the form that the caller reads.
 */
export async function start(io = createProcessIo()): Promise<void> {
  const argv = process.argv.slice(2);
  const failure = { mode: outputModeOf(argv), verbose: wantsTrace(argv) };
  let isReported = false;
  const report = (thrown: unknown): ExitCode => {
    isReported = true;
    // the status line of a run may stand there
    if (io.stderr.isTty) io.stderr.write(ERASE_LINE);
    return reportFailure(thrown, io, failure);
  };
  process.on('uncaughtException', (error) => {
    process.exit(isReported ? EXIT.failed : report(error));
  });
  process.on('exit', (code) => {
    if (isReported) return;
    const cancelled = new RyeError('cancelled', 'interrupted before it could finish');
    const stuck = new RyeError('internal', 'the program ran out of work before it was done');
    process.exitCode = report(code === EXIT.cancelled ? cancelled : stuck);
  });
  const exitCode = await main(argv, io);
  isReported = true;
  const delivery = await io.flush();
  process.exit(delivery === 'failed' && exitCode === EXIT.ok ? EXIT.failed : exitCode);
}

function wantsTrace(argv: readonly string[]): boolean {
  return argv.includes('--verbose') || argv.includes('-v');
}
