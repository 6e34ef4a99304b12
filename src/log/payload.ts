import { type CheckedSchema, findProblem } from '../core/check.ts';
import { isRecord } from '../core/json.ts';
import schema from '../schemas/events.json' with { type: 'json' };

function isBlock(block: unknown): boolean {
  if (!isRecord(block)) return false;
  const { type } = block;
  if (type === 'text' || type === 'thinking') return typeof block['text'] === 'string';
  if (type === 'tool_call') {
    const { call_id, name, input } = block;
    return typeof call_id === 'string' && typeof name === 'string' && isRecord(input);
  }
  if (type !== 'image') return false;
  return typeof block['data'] === 'string' && typeof block['media_type'] === 'string';
}

function areBlocks(content: unknown): boolean {
  if (!Array.isArray(content)) return false;
  for (let at = 0; at < content.length; at += 1) if (!isBlock(content[at])) return false;
  return true;
}

/** The check of most lines of a large log, by hand for speed. It refuses what the declaration refuses. */
function messageProblem({ message: value }: Record<string, unknown>): string | undefined {
  if (!isRecord(value)) return 'its payload has no message';
  const { role, content, call_id } = value;
  if (role !== 'assistant' && role !== 'tool_result' && role !== 'user') {
    return `its message has the unknown role ${JSON.stringify(role)}`;
  }
  if (!areBlocks(content)) return "its message's content is not a list of known blocks";
  if (role === 'tool_result' && typeof call_id !== 'string') {
    return 'its tool result names no call_id';
  }
  return undefined;
}

const schemas: Readonly<Record<string, CheckedSchema>> = schema.properties;

/** Why the payload of a known type can't be folded, or undefined. Unknown types have nothing to check. */
export function payloadProblem(
  eventType: string,
  payload: Record<string, unknown>,
): string | undefined {
  if (eventType === 'message') return messageProblem(payload);
  const declared = Object.hasOwn(schemas, eventType) ? schemas[eventType] : undefined;
  return declared && findProblem(declared, payload)?.text;
}
