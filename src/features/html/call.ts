import type { JsonObject, JsonValue } from '../../kernel/core/json.ts';

/** The arguments that name the subject of a call, by rank. */
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
