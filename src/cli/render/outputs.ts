import { isJsonObject, type JsonObject, type JsonValue, toText } from '../../core/json.ts';
import type { Sink } from '../io.ts';
import { formatTable, wrapped } from '../output.ts';
import { linesOf, oneLine, replaced, type Shown, shown, trimmed, visible } from '../visible.ts';

const INDENT = '  ';

/**
 * Formats the outputs of a run for a terminal: a value after its name, a text of several lines and a list of objects
 * below it. Pipes get each output on one line instead.
 */
export function outputLines(outputs: JsonObject, sink: Sink): readonly Shown[] {
  return Object.entries(outputs).flatMap(([name, value]) => outputOf(oneLine(name), value, sink));
}

function outputOf(name: Shown, value: JsonValue | undefined, sink: Sink): readonly Shown[] {
  if (value === undefined) return [shown`${name}:`];
  const table = tableOf(value, { ...sink, columns: sink.columns - INDENT.length });
  if (table !== undefined)
    return [shown`${name}:`, ...table.map((line) => shown`${INDENT}${line}`)];
  const text = trimmed(replaced(visible(toText(value)), /\t/g, () => shown`${INDENT}`));
  const lines = linesOf(text);
  if (lines.length === 1) return wrapped(shown`${name}: ${text}`, sink);
  const below = lines.flatMap((line) => wrapped(shown`${INDENT}${line}`, sink));
  return [shown`${name}:`, ...below];
}

/** Formats a list of objects with a column for each member; undefined for any other value. */
function tableOf(value: JsonValue, sink: Sink): readonly Shown[] | undefined {
  if (!Array.isArray(value) || value.length === 0 || !value.every(isJsonObject)) return undefined;
  const rows = value.map((row) => new Map(cellsOf(row)));
  const names = [...new Set(rows.flatMap((row) => [...row.keys()]))];
  const filled = names.filter((name) => rows.some((row) => (row.get(name) ?? '') !== ''));
  if (filled.length === 0) return undefined;
  return formatTable(
    filled,
    rows.map((row) => filled.map((name) => row.get(name) ?? '')),
    sink,
  );
}

/** Returns the members of an object as text. The members of an object in it have its name before theirs. */
function cellsOf(row: JsonObject): readonly (readonly [name: string, text: string])[] {
  return Object.entries(row).flatMap(([name, value]) => {
    if (isJsonObject(value)) {
      return Object.entries(value).map(
        ([member, inner]) => [`${name}.${member}`, textOf(inner)] as const,
      );
    }
    return [[name, textOf(value)] as const];
  });
}

function textOf(value: JsonValue | undefined): string {
  return value === undefined || value === null ? '' : toText(value);
}
