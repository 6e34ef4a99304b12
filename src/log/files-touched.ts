import { isRecord, type JsonObject } from '../core/json.ts';
import {
  isErrorOutcome,
  type Message,
  type ToolCallBlock,
  type ToolResultMessage,
  toolCallsOf,
} from '../core/message.ts';

/** Files that a stretch of conversation read, and those that it changed; sorted, and no file is in both. */
export interface FilesTouched {
  readonly read: readonly string[];
  readonly changed: readonly string[];
}

export const NO_FILES: FilesTouched = { read: [], changed: [] };

/** Wire names of the tools that read one file. */
export const READERS: ReadonlySet<string> = new Set(['rye_file_system_read']);
/** Wire names of the tools that change one file. */
export const WRITERS: ReadonlySet<string> = new Set([
  'rye_file_system_write',
  'rye_file_system_edit',
  'rye_file_system_multi_edit',
]);

/** Files that the tool calls of these messages named; a call whose result is an error touched nothing. */
export function filesTouched(messages: readonly Message[]): FilesTouched {
  const failed = new Set(
    messages
      .filter((message): message is ToolResultMessage => message.role === 'tool_result')
      .filter(({ outcome }) => isErrorOutcome(outcome))
      .map(({ call_id }) => call_id),
  );
  const read = new Set<string>();
  const changed = new Set<string>();
  for (const message of messages) {
    if (message.role !== 'assistant') continue;
    for (const call of toolCallsOf(message)) {
      const { name, path } = fileCallOf(call);
      if (path === undefined || failed.has(call.call_id)) continue;
      if (READERS.has(name)) read.add(path);
      if (WRITERS.has(name)) changed.add(path);
    }
  }
  return arranged(read, changed);
}

/** A file tool may be called by its own name or through the primary action `rye_execute`. */
export function fileCallOf({ name, input }: ToolCallBlock): {
  readonly name: string;
  readonly path: string | undefined;
} {
  const { item_id: id, parameters } = input;
  const isIndirect = name === 'rye_execute' && typeof id === 'string' && isRecord(parameters);
  const called = isIndirect ? id.replaceAll(/[/.-]/g, '_') : name;
  const path = isIndirect ? parameters['path'] : input['path'];
  return { name: called, path: typeof path === 'string' ? path : undefined };
}

/** Both in one; a file that either one changed counts as changed. */
export function mergeFiles(left: FilesTouched, right: FilesTouched): FilesTouched {
  return arranged(
    new Set([...left.read, ...right.read]),
    new Set([...left.changed, ...right.changed]),
  );
}

function arranged(read: ReadonlySet<string>, changed: ReadonlySet<string>): FilesTouched {
  return {
    read: [...read].filter((path) => !changed.has(path)).toSorted(),
    changed: [...changed].toSorted(),
  };
}

/** The files that the `details` of a compaction or a branch summary name; none where it has no such lists. */
export function filesOfDetails(details: JsonObject | undefined): FilesTouched {
  return arranged(
    new Set(textsOf(details?.['read_files'])),
    new Set(textsOf(details?.['changed_files'])),
  );
}

function textsOf(value: unknown): readonly string[] {
  if (!Array.isArray(value)) return [];
  return value.filter((text): text is string => typeof text === 'string');
}

/** The `details` members that {@link filesOfDetails} reads back. */
export function filesAsDetails({ read, changed }: FilesTouched): JsonObject {
  return { read_files: read, changed_files: changed };
}
