import type { JsonObject } from '../../core/json.ts';
import type { DecidingHandlers } from '../../hooks/handlers.ts';
import type { LibraryTool } from '../presets.ts';
import type { Rye, Subscriber } from './rye.ts';

/** What the module of a plug-in exports as `plugin`. It is called once for each opened rye. */
export type PluginFactory = (host: PluginHost) => Plugin | Promise<Plugin>;

/** A part of rye that configuration adds. `plugins.yaml` has to grant each member that it has. */
export interface Plugin {
  /** Small letters, digits and hyphens. No two plug-ins share one. */
  readonly name: string;
  /** By ID, such as `acme/lookup`. A directive has to grant each like any other tool. */
  readonly tools?: Readonly<Record<string, LibraryTool>>;
  /** Judge each call of a tool: all of them have to let it pass. One that fails refuses the call. */
  readonly gates?: readonly DecidingHandlers['tool_gate'][];
  /** Get every event of the threads that this process runs, after it is durable. */
  readonly subscribers?: readonly Subscriber[];
  /** SQL statements for the plug-in's database in the project's `.ai/state/plugins`; each runs once, in order. Only add to the list. */
  readonly tables?: readonly string[];
  /** Words for people about custom entries, by their custom type. */
  readonly events?: Readonly<Record<string, (data: JsonObject) => string>>;
  /** Commands of `rye`. One does not replace a command that rye has. */
  readonly commands?: readonly PluginCommand[];
}

/** A command of `rye`, by its name. */
export interface PluginCommand {
  readonly name: string;
  readonly summary: string;
  /** Does the work. Returns the exit status; nothing is 0. */
  run(call: PluginCall): Promise<number | undefined | void>;
}

export interface PluginCall {
  /** The words after the command. */
  readonly words: readonly string[];
  /** True with `--json`: print one document. */
  readonly json: boolean;
  readonly rye: Rye;
  /** Prints a text and a line break on stdout. */
  print(text: string): void;
}

/** The parts of rye that a plug-in works with. */
export interface PluginHost {
  readonly projectPath: string;
  readonly rows: PluginRows;
  /** Prints one line for people, once. */
  notice(text: string): void;
}

/** The plug-in's database (SQLite). Opened, with its tables, when it is first used. */
export interface PluginRows {
  all(sql: string, ...parameters: readonly unknown[]): readonly unknown[];
  /** Returns the number of changed rows. */
  run(sql: string, ...parameters: readonly unknown[]): number;
}
