import { isRecord, type JsonObject } from '../core/json.ts';
import { type AssistantMessage, type Message, toolCallsOf } from '../core/message.ts';
import { type ModelRequest, OUTPUT_TOOL } from './provider.ts';

/** Messages never change, and a conversation sends all of them again with each turn. */
const idsOf = new WeakMap<AssistantMessage, readonly string[]>();

/** The call ids that the conversation already uses, so that a new answer cannot reuse one. */
export function usedCallIds(messages: readonly Message[]): Set<string> {
  const used = new Set<string>();
  for (const message of messages) {
    if (message.role !== 'assistant') continue;
    let ids = idsOf.get(message);
    if (ids === undefined) {
      ids = toolCallsOf(message).map(({ call_id }) => call_id);
      idsOf.set(message, ids);
    }
    for (const id of ids) used.add(id);
  }
  return used;
}

/** The request with {@link OUTPUT_TOOL} forced, for APIs and schemas that a native format can't serve. */
export function withOutputTool(request: ModelRequest, schema: JsonObject): ModelRequest {
  return {
    ...request,
    tools: [...request.tools, { ...OUTPUT_TOOL, input_schema: schema }],
    tool_choice: { name: OUTPUT_TOOL.name },
  };
}

/** An API can promise a schema only where every object lists all of its members and allows no others. */
export function isStrictSchema(value: unknown): boolean {
  if (Array.isArray(value)) return value.every(isStrictSchema);
  if (!isRecord(value)) return true;
  const { properties, required, additionalProperties, type } = value;
  if (type === 'object' || isRecord(properties)) {
    const names = isRecord(properties) ? Object.keys(properties) : [];
    const listed = Array.isArray(required) ? required : [];
    if (additionalProperties !== false || !names.every((name) => listed.includes(name))) {
      return false;
    }
  }
  return Object.values(value).every(isStrictSchema);
}
