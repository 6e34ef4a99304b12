import { isRecord } from '../../../src/kernel/core/json.ts';

type Check = (payload: Record<string, unknown>) => string | undefined;

function needsStrings(...members: readonly string[]): Check {
  return (payload) => {
    const missing = members.find((member) => typeof payload[member] !== 'string');
    return missing === undefined ? undefined : `its payload has no text in ${missing}`;
  };
}

function nullableString(member: string): Check {
  return (payload) =>
    payload[member] === null || typeof payload[member] === 'string'
      ? undefined
      : `its payload's ${member} is neither a string nor null`;
}

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

const message: Check = ({ message: value }) => {
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
};

const contextEdit: Check = (payload) => {
  const { target_id, action, content } = payload;
  if (typeof target_id !== 'string') return 'its payload has no text in target_id';
  if (action === 'omit') return undefined;
  return action === 'replace' && typeof content === 'string'
    ? undefined
    : 'its context edit neither omits nor replaces with a text';
};

const ruleInjection: Check = ({ rules }) =>
  Array.isArray(rules) && rules.every((rule) => isRecord(rule) && typeof rule['name'] === 'string')
    ? undefined
    : 'its rules are not a list of named ones';

const protectedIds: Check = ({ protected_entry_ids: ids }) =>
  ids === undefined || (Array.isArray(ids) && ids.every((id) => typeof id === 'string'))
    ? undefined
    : "its payload's protected_entry_ids is not a list of ids";

// only what the tree and the folds read: a payload beyond that is carried, not judged
const CHECKS: Readonly<Record<string, Check>> = {
  message,
  system_prompt: (payload) =>
    typeof payload['text'] === 'string' && Array.isArray(payload['tools'])
      ? undefined
      : 'its system prompt needs text and tools',
  model_change: needsStrings('provider', 'model'),
  thinking_change: needsStrings('level'),
  compaction: (payload) =>
    needsStrings('summary')(payload) ??
    nullableString('first_kept_entry_id')(payload) ??
    protectedIds(payload),
  branch_summary: needsStrings('from_id', 'summary'),
  custom: needsStrings('custom_type'),
  custom_message: needsStrings('custom_type', 'content'),
  label: (payload) => needsStrings('target_id')(payload) ?? nullableString('label')(payload),
  title: needsStrings('title'),
  rule_injection: ruleInjection,
  context_edit: contextEdit,
  leaf: nullableString('target_id'),
};

/** Why the payload of a known type can't be folded, or undefined. Unknown types have nothing to check. */
export function payloadProblem(
  eventType: string,
  payload: Record<string, unknown>,
): string | undefined {
  // most lines of a large log
  if (eventType === 'message') return message(payload);
  return Object.hasOwn(CHECKS, eventType) ? CHECKS[eventType]?.(payload) : undefined;
}
