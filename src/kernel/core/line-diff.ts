import { diffArrays } from 'diff';
import { isJsonObject, type JsonObject } from './json.ts';

/** One line of a diff; a gap replaces unchanged lines that are not shown. */
export interface DiffLine {
  readonly kind: 'add' | 'remove' | 'same' | 'gap';
  readonly text: string;
}

/** Added and removed lines up to which two texts are aligned; larger changes are shown as all old, then all new lines. */
const MAX_EDITS = 1000;
const CONTEXT_LINES = 3;

/** Compares two texts line by line; shows at most three unchanged lines beside a change. */
export function diffOf(before: string, after: string): readonly DiffLine[] {
  const [old, now] = [linesOf(before), linesOf(after)];
  const changes = diffArrays(old, now, { maxEditLength: MAX_EDITS }) ?? [
    { added: false, removed: true, value: old },
    { added: true, removed: false, value: now },
  ];
  return withoutDistantContext(
    changes.flatMap(({ added, removed, value }) => {
      const kind = added ? 'add' : removed ? 'remove' : 'same';
      return value.map((text): DiffLine => ({ kind, text }));
    }),
  );
}

/** Without the line end that closes the last line. */
function linesOf(text: string): string[] {
  return text === '' ? [] : text.replace(/\n$/, '').split('\n');
}

function unchangedLines(total: number): string {
  return `${total.toLocaleString('en')} unchanged line${total === 1 ? '' : 's'}`;
}

function withoutDistantContext(lines: readonly DiffLine[]): readonly DiffLine[] {
  const near = new Uint8Array(lines.length);
  for (const [at, { kind }] of lines.entries()) {
    if (kind !== 'same') near.fill(1, Math.max(0, at - CONTEXT_LINES), at + CONTEXT_LINES + 1);
  }
  const shown: DiffLine[] = [];
  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at];
    if (near[at] === 1 && line) shown.push(line);
    else {
      const from = at;
      while (at + 1 < lines.length && near[at + 1] === 0) at += 1;
      shown.push({ kind: 'gap', text: unchangedLines(at - from + 1) });
    }
  }
  return shown;
}

/** A text that a call replaces in a file, and the new one. */
export interface Replacement {
  readonly before: string;
  readonly after: string;
}

/** The names of the texts before and after, of rye's tools and of others that a log may come from. */
const OLD_NAMES = ['old_string', 'oldText', 'old_text', 'old_str'];
const NEW_NAMES = ['new_string', 'newText', 'new_text', 'new_str'];
const REPLACED: ReadonlySet<string> = new Set([...OLD_NAMES, ...NEW_NAMES, 'edits']);

/** Returns the replacements that the input of a call asks for. */
export function replacementsIn(input: JsonObject): readonly Replacement[] {
  const edits = Array.isArray(input['edits']) ? input['edits'] : [];
  return [input, ...edits].flatMap((edit) => {
    if (!isJsonObject(edit)) return [];
    const [before] = textsOf(edit, OLD_NAMES);
    const [after] = textsOf(edit, NEW_NAMES);
    return before === undefined || after === undefined ? [] : [{ before, after }];
  });
}

function textsOf(edit: JsonObject, names: readonly string[]): readonly string[] {
  return names.map((name) => edit[name]).filter((text) => typeof text === 'string');
}

/** Returns the input of a call without its replacements, which a diff shows. */
export function withoutReplacements(input: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(input).filter(([name]) => !REPLACED.has(name)));
}
