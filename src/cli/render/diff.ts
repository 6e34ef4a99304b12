import type { JsonObject, JsonValue } from '../../core/json.ts';
import { type DiffLine, diffOf } from '../../core/line-diff.ts';
import { type Colors } from '../terminal-text.ts';
import { visible } from '../visible.ts';

function changesOf(before: string, after: string): readonly DiffLine[] {
  const lines = diffOf(before, after);
  return lines.some(({ kind }) => kind === 'add' || kind === 'remove') ? lines : [];
}

/** Returns the changes of a call that edits or writes a file, as far as its input tells them. */
export function callDiff(tool: string, input: JsonObject, before?: string): readonly DiffLine[] {
  const { edits, content } = input;
  if (tool === 'write') {
    return typeof content === 'string' ? changesOf(before ?? '', content) : [];
  }
  if (tool !== 'edit' && tool !== 'multi_edit') return [];
  return [input, ...(Array.isArray(edits) ? edits : [])].flatMap(replacement);
}

function replacement(edit: JsonValue): readonly DiffLine[] {
  if (typeof edit !== 'object' || edit === null || Array.isArray(edit)) return [];
  const { old_string: before, new_string: after } = edit as JsonObject;
  return typeof before === 'string' && typeof after === 'string' ? changesOf(before, after) : [];
}

const SIGNS = { add: '+', remove: '-', same: ' ', gap: '…' } as const;

/** Paints at most `max` lines of a diff, then the number of the others. */
export function paintDiff(
  lines: readonly DiffLine[],
  max: number,
  colors: Colors,
): readonly string[] {
  const shown = lines.length > max + 1 ? lines.slice(0, max) : lines;
  const rest = lines.length - shown.length;
  return [
    ...shown.map(({ kind, text }) => {
      const line = `${SIGNS[kind]} ${visible(text).replaceAll('\t', '    ')}`;
      if (kind === 'add') return colors.green(line);
      return kind === 'remove' ? colors.red(line) : colors.dim(line);
    }),
    ...(rest === 0 ? [] : [colors.dim(`… ${rest} more lines`)]),
  ];
}
