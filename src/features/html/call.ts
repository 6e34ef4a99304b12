import type { JsonObject, JsonValue } from '../../kernel/core/json.ts';
import type { ToolCallBlock } from '../../kernel/core/message.ts';
import { gist } from './prose.ts';

/** The name of a tool as people know it: without the prefix of rye's own tools. */
export function shortName(name: string): string {
  return /^rye_(?:file_system_)?(\w+)$/.exec(name)?.[1] ?? name;
}

/** The arguments that name what a call is about, by rank. */
const SUBJECTS = ['command', 'cmd', 'path', 'file_path', 'pattern', 'query', 'item_id', 'url'];

/** The argument that tells one call of a tool from another, and its text. */
export function subjectOf(input: JsonObject): { readonly name: string; readonly text: string } {
  const names = [...SUBJECTS, ...Object.keys(input)];
  const name = names.find((known) => Object.hasOwn(input, known) && isText(input[known])) ?? '';
  const value = input[name];
  return { name, text: typeof value === 'string' ? value : '' };
}

function isText(value: JsonValue | undefined): boolean {
  return typeof value === 'string' && value !== '';
}

/** One line for a call: `read src/import.ts`. */
export function callLine(name: string, call: ToolCallBlock | undefined): string {
  const subject = call ? gist(subjectOf(call.input).text) : '';
  // a damaged log may have anything for a name
  return `${shortName(name)} ${subject}`.trim();
}
