import type { JsonObject } from '../../core/json.ts';
import type { FileMemory } from '../file-memory.ts';
import type { GuardedKind } from '../guarded-paths.ts';
import type { PathRules } from '../paths.ts';
import type { Confine } from '../process.ts';
import type { ToolContext } from '../tool.ts';

/** Settings of the built-in tools of one thread. */
export interface BuiltinOptions {
  /** Environment that child processes are given an allow list of; also where `rg` is looked up. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Absolute folders outside the project that configuration opens. */
  readonly allowedPaths?: readonly string[];
  /** Whether the thread may write guarded paths of a kind; absent: of none. */
  readonly lifts?: ((kind: GuardedKind) => boolean) | undefined;
  /** Names of further environment variables for commands. */
  readonly passEnv?: readonly string[];
  /** Read deduplication and read-before-edit; without it both are off. */
  readonly memory?: FileMemory;
  /** Prefix each line that `read` shows with its number and a tab. Default true. */
  readonly readLineNumbers?: boolean;
  /** How much of a command's output is kept, in bytes, half head and half tail; 0: up to 16 MiB. Default 32768. */
  readonly maxOutputBytes?: number;
  /** Results above this size leave the context, so that pages are cut below it. 0 or absent: no bound. */
  readonly maxResultBytes?: number;
  /** End a command's output with `(exit N, Nms)`. Default true. */
  readonly metadata?: boolean;
  /** `false` searches with the built-in engine even where ripgrep is present. Default true. */
  readonly ripgrep?: boolean;
  /** Confines commands, with the network or without it; absent: they run as they are. */
  readonly sandbox?: ((network: boolean) => Confine) | undefined;
}

/** Room in a result for the line that tells how it ended or goes on. */
export const NOTICE_BYTES = 512;

export function rulesOf(options: BuiltinOptions, context: ToolContext): PathRules {
  return {
    projectPath: context.projectPath,
    allow: options.allowedPaths ?? [],
    threadId: context.threadId,
    lifts: options.lifts,
  };
}

export const PATH_PROPERTY: JsonObject = {
  type: 'string',
  description: 'Path relative to the project, or absolute inside it.',
};
