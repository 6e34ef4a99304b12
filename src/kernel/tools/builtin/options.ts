import type { KeepFile } from '../../core/file-change.ts';
import type { DeniesRead } from '../deny-read.ts';
import type { GuardedKind } from '../guarded-paths.ts';
import type { PathRules } from '../paths.ts';
import type { Confine } from '../process.ts';
import { errorOutput, type ToolContext, type ToolOutput } from '../tool.ts';

/** Settings of the built-in tools of one thread. */
export interface BuiltinOptions {
  /** Environment that child processes are given an allow list of; also where `rg` is looked up. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Absolute folders outside the project that configuration opens. */
  readonly allowedPaths?: readonly string[];
  /** True for what tools must not read; absent: everything may be read. */
  readonly denies?: DeniesRead | undefined;
  /** Returns true if the thread may write guarded paths of a kind; absent: of none. */
  readonly lifts?: ((kind: GuardedKind) => boolean) | undefined;
  /** The folder of the thread's artifacts if it works in a worktree. */
  readonly artifacts?: string | undefined;
  /** Names of further environment variables for commands. */
  readonly passEnv?: readonly string[];
  /** Read deduplication and read-before-edit; without it both are off. */
  readonly memory?: FileMemory;
  /** Keeps what a file has before a tool changes it; absent: nothing can undo the change. */
  readonly keep?: KeepFile | undefined;
  /** Prefix each line that `read` shows with its number and a tab. Default true. */
  readonly readLineNumbers?: boolean;
  /** Maximum bytes of a command's output to keep, half head and half tail; 0: up to 16 MiB. Default 32768. */
  readonly maxOutputBytes?: number;
  /** Results above this size leave the context, so that pages are cut below it. 0 or absent: no bound. */
  readonly maxResultBytes?: number;
  /** Steps compute with results: a call that asks for no part returns the whole or fails. */
  readonly whole?: boolean;
  /** End a command's output with `(exit N, Nms)`. Default true. */
  readonly metadata?: boolean;
  /** `false` searches with the built-in engine even where ripgrep is present. Default true. */
  readonly ripgrep?: boolean;
  /** Confines commands, with the network or without it; absent: they run as they are. */
  readonly sandbox?: ((network: boolean) => Confine) | undefined;
}

/** The refusal of a result that would be shortened where {@link BuiltinOptions.whole} is set. */
export function tooLarge(what: string, advice: string): ToolOutput {
  const code = 'result_too_large';
  return errorOutput(`${code}: ${what}. ${advice}`, { code });
}

/** Bytes that a result reserves for the line about its end or its next page. */
export const NOTICE_BYTES = 512;

export function rulesOf(options: BuiltinOptions, context: ToolContext): PathRules {
  return {
    projectPath: context.projectPath,
    allow: options.allowedPaths ?? [],
    threadId: context.threadId,
    artifacts: options.artifacts,
    denies: options.denies,
    lifts: options.lifts,
  };
}

export const PATH_PROPERTY = {
  type: 'string',
  description: 'Path relative to the project, or absolute inside it.',
} as const;

export const IGNORED_PROPERTY = {
  type: 'boolean',
  description: 'Also files that git ignores. Default false.',
} as const;

/** A note for an empty result when git's ignored files were skipped. */
export function skippedNote(count: number): string {
  if (count === 0) return '';
  return ` (${count} ${count === 1 ? 'entry' : 'entries'} that git ignores skipped; set include_ignored to search them)`;
}

/** The last view that a thread had of a file: the slice it read and the content it was cut from. */
interface Seen {
  readonly slice: string;
  readonly sliceHash: string;
  readonly contentHash: string | undefined;
}

export interface FileMemoryOptions {
  /** Answer an identical re-read with a stub. Default true. */
  readonly dedupReads?: boolean;
  /** Refuse edits of files that were not read, or that changed since. Default false. */
  readonly requireReadBeforeEdit?: boolean;
}

/**
 * Remembers the files that a thread has read, by real path. It mirrors what the model can still see: code that removes
 * tool results from the context (compaction, result persistence, resume) must call {@link FileMemory.clear}, or stubs
 * would refer to text that is gone.
 */
export class FileMemory {
  readonly dedupReads: boolean;
  readonly requireReadBeforeEdit: boolean;
  readonly #seen = new Map<string, Seen>();

  constructor(options: FileMemoryOptions = {}) {
    this.dedupReads = options.dedupReads ?? true;
    this.requireReadBeforeEdit = options.requireReadBeforeEdit ?? false;
  }

  /** Records a read; true when it repeats the last one of this file and may be answered with a stub. */
  recordRead(real: string, seen: Seen): boolean {
    const last = this.#seen.get(real);
    this.#seen.set(real, seen);
    return (
      this.dedupReads &&
      last !== undefined &&
      last.slice === seen.slice &&
      last.sliceHash === seen.sliceHash
    );
  }

  /** Why an edit of content with this hash is refused, or undefined. */
  editProblem(real: string, contentHash: string): string | undefined {
    if (!this.requireReadBeforeEdit) return undefined;
    const last = this.#seen.get(real);
    if (last === undefined) return 'it has not been read yet';
    return last.contentHash === contentHash ? undefined : 'it changed since it was read';
  }

  /** After an own change: edits chain, and the next read shows the new content. */
  recordChange(real: string, contentHash: string): void {
    this.#seen.set(real, { slice: '', sliceHash: '', contentHash });
  }

  clear(): void {
    this.#seen.clear();
  }
}
