import type { ExitCode } from '../../kernel/core/errors.ts';
import type { SignableType } from '../../kernel/core/ids.ts';
import type { Io } from '../ui/io.ts';

/** The value that the parser read for an option; undefined if the command line doesn't have it. */
export type RawValue = string | number | boolean | readonly string[] | undefined;

/** An option as data. The parser, the help, the completion and docs/cli.md are made from it. */
export interface Option<V = unknown> {
  readonly description: string;
  readonly short?: string;
  /** Name of the value in the help. Absent: the option is a flag. */
  readonly value?: string;
  /** The option may be used without its value. */
  readonly optional?: true;
  /** The option may be repeated. Its value is a list. */
  readonly repeat?: true;
  /** `--no-<name>` turns off what is on by default. */
  readonly negated?: true;
  readonly kind?: 'integer' | 'number';
  readonly choices?: readonly string[];
  /** Converts the value that the parser read to the value that the command gets. */
  readonly read: (raw: RawValue) => V;
}

/** The item that an argument names: one of this type, or else of the type that the word before it names. */
export interface NamedItem {
  readonly type?: SignableType;
}

/** A positional argument as data. */
export interface Argument<V = unknown> {
  readonly description: string;
  /** Name in the help. Default: the key of the argument. */
  readonly name?: string;
  readonly optional?: true;
  readonly choices?: readonly string[];
  /** The command has the option `--last`, which sets this argument to `@`. Only for the first argument. */
  readonly isThread?: true;
  /** The argument names a thread if the word before it is this one. */
  readonly threadAfter?: string;
  /** The argument is the ID of an item. The path of the item's file is accepted too. */
  readonly item?: NamedItem;
  /** Converts the words from this argument's position on to the value that the command gets. */
  readonly read: (words: readonly string[]) => V;
}

type Options = Readonly<Record<string, Option>>;
type Arguments = Readonly<Record<string, Argument>>;
/** The declarations of a command without options or arguments. */
type None = Readonly<Partial<Record<'none', never>>>;

/** The values of options or arguments, typed by their declarations. */
export type ValuesOf<D extends Options | Arguments> = {
  readonly [K in keyof D]: ReturnType<D[K]['read']>;
};

/** Options that every command accepts, before or after its name. */
export const GLOBAL_OPTIONS = {
  project: text(
    'DIR',
    'Folder that contains .ai (default: $RYE_PROJECT, else the nearest parent)',
    {
      short: 'C',
    },
  ),
  userSpace: text('DIR', "Folder of the user's .ai (default: $RYE_USER_SPACE, else home)"),
  config: list('KEY=VALUE', 'Override one configuration value', { short: 'c' }),
  json: flag('Print exactly one JSON document on stdout'),
  quiet: flag('Suppress progress and notices', { short: 'q' }),
  verbose: flag('Print more, and stack traces of failures', { short: 'v' }),
  color: negatedFlag('Disable colors'),
} as const;

export type GlobalOptions = ValuesOf<typeof GLOBAL_OPTIONS>;

/** Everything that a command can use besides its own arguments and options. */
export interface Context {
  readonly io: Io;
  readonly global: GlobalOptions;
  /** The whole command tree, for commands about commands. */
  readonly root: Command;
}

/** One call of a command, with its arguments and options typed by its declaration. */
export interface Call<A extends Arguments, O extends Options> extends Context {
  readonly args: ValuesOf<A>;
  readonly options: ValuesOf<O>;
}

export interface OptionSpec extends Option {
  /** Long name without dashes. */
  readonly name: string;
}

export interface ArgumentSpec extends Argument {
  readonly name: string;
}

/** The words of a command in the help of its group. */
interface CommandWords {
  readonly name: string;
  readonly summary: string;
  /** The heading that the help of the group lists it below; absent: `Commands:`. */
  readonly heading?: string;
}

/** Everything of a command except its words. */
export interface CommandBody {
  /** Printed below the summary in the help. */
  readonly details?: string;
  readonly arguments: readonly ArgumentSpec[];
  readonly options: readonly OptionSpec[];
  /** Command lines that the help shows, without a prompt. */
  readonly examples: readonly string[];
  /** Present in a group only. */
  readonly commands?: readonly Command[];
  /** Commands that rye itself runs; no help shows them. */
  readonly internal?: readonly Command[];
  /** The command of a group that runs if none is named. */
  readonly defaultCommand?: string;
  /** Absent in a group. `options` has its values by the camel-cased name of the option. */
  readonly run?: (
    words: readonly string[],
    options: Readonly<Record<string, RawValue>>,
    context: Context,
  ) => Promise<ExitCode>;
}

/** A command, or a group of commands, as the parser and the help see it. */
export interface Command extends CommandWords, CommandBody {
  /** Loads the body of a command that its group only names. Until then the body is empty. */
  readonly load?: () => Promise<CommandBody>;
}

/** Names commands that a module exports, with their summaries. A command is loaded when it is on the command line. */
export function commandsOf<K extends string>(
  load: () => Promise<Readonly<Record<NoInfer<K>, CommandBody>>>,
  summaries: Readonly<Record<K, string>>,
): readonly Command[] {
  return (Object.keys(summaries) as K[]).map((name) => ({
    name,
    summary: summaries[name],
    arguments: [],
    options: [],
    examples: [],
    load: async () => (await load())[name],
  }));
}

/** Lists commands below a heading in the help of their group. */
export function withHeading(heading: string, ...commands: readonly Command[]): readonly Command[] {
  return commands.map((command) => ({ ...command, heading }));
}

export async function loadCommand({ load, ...command }: Command): Promise<Command> {
  if (load === undefined) return command;
  const { arguments: _none, options: _no, examples: _nothing, ...words } = command;
  return { ...(await load()), ...words };
}

/** Loads a command and everything below it, for texts about the whole tree. */
export async function loadTree(command: Command): Promise<Command> {
  const loaded = await loadCommand(command);
  if (loaded.commands === undefined) return loaded;
  return { ...loaded, commands: await Promise.all(loaded.commands.map(loadTree)) };
}

interface CommandDefinition<A extends Arguments, O extends Options> {
  readonly details?: string;
  /** Positional arguments in their order. */
  readonly arguments?: A;
  /** Options by their camel-cased name: `dryRun` is `--dry-run`. */
  readonly options?: O;
  readonly examples: readonly string[];
  /** Does the work, prints through `io` and returns the exit status. Loads the app itself, with `import()`. */
  readonly run: (call: Call<A, O>) => Promise<ExitCode>;
}

/**
 * Declares a command: its words, its typed options and its work in one place. A command that {@link commandsOf} loads
 * has its words there.
 */
export function defineCommand<const A extends Arguments = None, const O extends Options = None>(
  definition: CommandDefinition<A, O> & CommandWords,
): Command;
export function defineCommand<const A extends Arguments = None, const O extends Options = None>(
  definition: CommandDefinition<A, O>,
): CommandBody;
export function defineCommand<const A extends Arguments = None, const O extends Options = None>(
  definition: CommandDefinition<A, O>,
): CommandBody {
  const { arguments: args = {}, options = {}, run, ...words } = definition;
  const isOfThread = Object.values<Argument>(args)[0]?.isThread === true;
  return {
    ...words,
    arguments: Object.entries<Argument>(args).map(([key, spec]) => ({ name: key, ...spec })),
    options: optionSpecs(isOfThread ? { ...options, last: LAST } : options),
    run: async (given, values, context) =>
      await run({
        ...context,
        args: readArguments(args, given),
        options: readOptions(options, values),
      } as Call<A, O>),
  };
}

const LAST = flag('The last thread; same as the ID @');

/** Declares a group of commands, such as `rye keys`. */
export function defineGroup(
  definition: Pick<CommandBody, 'details' | 'examples' | 'internal' | 'defaultCommand'> & {
    readonly commands: readonly Command[];
  },
): CommandBody {
  return { ...definition, arguments: [], options: [] };
}

export function optionSpecs(options: Options): readonly OptionSpec[] {
  return Object.entries(options).map(([key, spec]) => {
    const name = key.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
    return { ...spec, name: spec.negated === true ? `no-${name}` : name };
  });
}

export function readOptions<O extends Options>(
  options: O,
  raw: Readonly<Record<string, RawValue>>,
): ValuesOf<O> {
  return Object.fromEntries(
    Object.entries(options).map(([key, { read }]) => [key, read(raw[key])]),
  ) as ValuesOf<O>;
}

function readArguments(
  args: Arguments,
  words: readonly string[],
): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    Object.entries(args).map(([key, { read }], index) => [key, read(words.slice(index))]),
  );
}

interface Extra {
  readonly short?: string;
}

export function flag(description: string, extra: Extra = {}): Option<boolean> {
  return { ...extra, description, read: (raw) => raw === true };
}

/** Declares `--no-<name>`. The value is true unless the option is used. */
export function negatedFlag(description: string): Option<boolean> {
  return { description, negated: true, read: (raw) => raw !== false };
}

export function text(
  value: string,
  description: string,
  extra: Extra = {},
): Option<string | undefined> {
  return { ...extra, value, description, read: textOf };
}

/** Declares an option whose value may be omitted; its value is then true. */
export function optionalText(
  value: string,
  description: string,
): Option<string | true | undefined> {
  return { value, description, optional: true, read: (raw) => (raw === true ? true : textOf(raw)) };
}

export function list(
  value: string,
  description: string,
  extra: Extra = {},
): Option<readonly string[]> {
  return { ...extra, value, description, repeat: true, read: listOf };
}

export function integer(
  value: string,
  description: string,
  extra: Extra = {},
): Option<number | undefined> {
  return { ...extra, value, description, kind: 'integer', read: numberOf };
}

export function number(value: string, description: string): Option<number | undefined> {
  return { value, description, kind: 'number', read: numberOf };
}

export function choice<const C extends string>(
  value: string,
  choices: readonly C[],
  description: string,
): Option<C | undefined> {
  const read = (raw: RawValue): C | undefined => choices.find((one) => one === raw);
  return { value, choices, description, read };
}

export function argument(
  description: string,
  extra: Pick<Argument, 'name' | 'isThread' | 'threadAfter' | 'item'> = {},
): Argument<string> {
  return { ...extra, description, read: ([word = '']) => word };
}

export function optionalArgument(
  description: string,
  extra: Pick<Argument, 'name' | 'item' | 'threadAfter'> = {},
): Argument<string | undefined> {
  return { ...extra, description, optional: true, read: ([word]) => word };
}

function textOf(raw: RawValue): string | undefined {
  return typeof raw === 'string' ? raw : undefined;
}

function listOf(raw: RawValue): readonly string[] {
  return Array.isArray(raw) ? raw : [];
}

function numberOf(raw: RawValue): number | undefined {
  return typeof raw === 'number' ? raw : undefined;
}
