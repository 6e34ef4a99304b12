import type { ExitCode } from '../core/errors.ts';
import type { Invocation } from './invocation.ts';
import type { Io } from './io.ts';

/** An option of a command as data: the parser, the help, the completion and docs/cli.md are made from it. */
export interface OptionSpec {
  /** Long name without dashes; also the key of its value. */
  readonly name: string;
  readonly short?: string;
  /** Name of the value in the help. Absent: the option is a flag. */
  readonly value?: string;
  /** The value may be left out; the option then counts as given. */
  readonly optional?: true;
  /** May be given several times; its value is a list. */
  readonly repeat?: true;
  readonly kind?: 'integer' | 'number';
  readonly choices?: readonly string[];
  readonly description: string;
}

/** A positional argument. */
export interface ArgumentSpec {
  readonly name: string;
  readonly optional?: true;
  readonly choices?: readonly string[];
  readonly description: string;
}

/**
 * What a command file exports: `run` does the work, prints through `io` and says how it ended. `root` is the whole
 * command tree, for commands about commands.
 */
export interface CommandModule {
  run(invocation: Invocation, io: Io, root: CommandSpec): Promise<ExitCode>;
}

/** A command, or a group of commands. */
export interface CommandSpec {
  readonly name: string;
  readonly summary: string;
  /** What the help says below the usage line. Default: the summary. */
  readonly details?: string;
  readonly arguments?: readonly ArgumentSpec[];
  readonly options?: readonly OptionSpec[];
  /** Command lines that the help shows, without a prompt. */
  readonly examples: readonly string[];
  readonly commands?: readonly CommandSpec[];
  /** Commands that rye itself runs; no help shows them. */
  readonly internal?: readonly CommandSpec[];
  /** The command of a group that runs when none is named. */
  readonly defaultCommand?: string;
  /** Loads the command's file, so that a call pays only for the command it runs. */
  readonly load?: () => Promise<CommandModule>;
}
