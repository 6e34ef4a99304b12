import { isJsonObject, isRecord, type JsonObject, parseJson } from '../core/json.ts';
import type { ToolCallBlock } from '../core/message.ts';

/** True for the JSON of an object. */
export function isObject(json: string): boolean {
  return isJsonObject(parseJson(json));
}

/** The arguments of a call. A few servers send in each piece all so far, or the whole again. */
export function joined(pieces: readonly string[]): string {
  const json = pieces.join('');
  if (isObject(json)) return json;
  let last = '';
  for (const piece of pieces) last = last !== '' && piece.startsWith(last) ? piece : last + piece;
  if (isObject(last)) return last;
  // before the arguments, some gateways send the empty ones that their block begins with
  const rest = json.replace(/^\s*\{\s*\}\s*(?=\{)/, '');
  return isObject(rest) ? rest : json;
}

/** Arguments are JSON text; a few servers send the object itself. */
export function argumentText(value: unknown): string {
  if (typeof value === 'string') return value;
  return isRecord(value) ? JSON.stringify(value) : '';
}

/** The arguments that a JSON text means: `null` for none, and JSON inside of a JSON text, are sent by some servers. */
function argumentsOf(json: string): JsonObject | undefined {
  const value = parseJson(json);
  if (value === null) return {};
  const inner = typeof value === 'string' ? parseJson(value) : value;
  return isJsonObject(inner) ? inner : undefined;
}

/** A call with the streamed JSON of its arguments; `malformed` keeps a text that is no JSON object. */
export function callOfJson({
  callId,
  name,
  json,
}: {
  readonly callId: string;
  readonly name: string;
  readonly json: string;
}): ToolCallBlock {
  const call = { type: 'tool_call', call_id: callId, name } as const;
  const input = argumentsOf(json);
  return input ? { ...call, input } : { ...call, input: {}, malformed: json };
}
