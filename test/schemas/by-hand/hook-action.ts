import { VERBS, type Verb } from '../../../src/kernel/core/capability.ts';
import type { ControlAction, HookAction } from '../../../src/kernel/core/hook.ts';
import { ITEM_TYPES, type ItemType, itemIdProblem } from '../../../src/kernel/core/ids.ts';
import {
  isJsonObject,
  isRecord,
  type JsonObject,
  type JsonValue,
} from '../../../src/kernel/core/json.ts';
import { didYouMean } from '../../../src/kernel/core/text.ts';

/** Internal tools of the seed's format, whose calls are control decisions and events. */
const CONTROL_TOOL = 'rye/agent/threads/internal/control';
const EMITTER_TOOL = 'rye/agent/threads/internal/emitter';

/** Refuses an action with a message about it and, where one is known, what to write instead. */
export type Refuse = (message: string, hint?: string) => never;

const CONTROLS = [
  'continue',
  'retry',
  'fail',
  'abort',
  'suspend',
  'ask',
  'escalate',
  'handoff',
  'compact',
] as const satisfies readonly ControlAction['control'][];

const FORMS = ['primary', 'set_extends', 'control', 'emit', 'inject'] as const;

/** Members of a fetch or sign that may be written beside `params` instead of in it. */
const LOOSE_PARAMS = ['query', 'scope', 'source', 'destination', 'limit'] as const;

type Reader<T> = (raw: Record<string, unknown>, refuse: Refuse) => T;

const FORM_READERS: Readonly<Record<(typeof FORMS)[number], Reader<HookAction>>> = {
  primary: parseItemAction,
  set_extends: (raw, refuse) => {
    knownMembers(raw, ['set_extends'], refuse);
    return { kind: 'set_extends', target: itemId(raw['set_extends'], refuse) };
  },
  control: (raw, refuse) => ({ kind: 'control', action: parseControl(raw, refuse) }),
  emit: parseEmit,
  inject: (raw, refuse) => {
    knownMembers(raw, ['inject'], refuse);
    return { kind: 'inject', text: textMember(raw, 'inject', refuse) };
  },
};

const CONTROL_READERS: Readonly<Record<ControlAction['control'], Reader<ControlAction>>> = {
  continue: bare('continue'),
  abort: bare('abort'),
  handoff: bare('handoff'),
  retry: (raw, refuse) => ({ control: 'retry', ...delayMember(raw, refuse) }),
  fail: (raw, refuse) => ({ control: 'fail', ...optionalText(raw, 'error', refuse) }),
  suspend: (raw, refuse) => ({ control: 'suspend', ...optionalText(raw, 'reason', refuse) }),
  compact: (raw, refuse) => ({ control: 'compact', ...optionalText(raw, 'instructions', refuse) }),
  ask: parseAsk,
  escalate: parseEscalate,
};

/** Reads one action in any of its written forms. */
export function parseAction(raw: unknown, refuse: Refuse): HookAction {
  if (!isRecord(raw)) return refuse('the action is not a mapping', FORMS_HINT);
  const shorthand = VERBS.find((verb) => Object.hasOwn(raw, verb));
  if (shorthand !== undefined && !Object.hasOwn(raw, 'primary')) {
    return parseShorthand(raw, shorthand, refuse);
  }
  const forms = FORMS.filter((form) => Object.hasOwn(raw, form));
  const [form] = forms;
  if (form === undefined || forms.length > 1) {
    const found = forms.length === 0 ? 'none' : forms.join(' and ');
    return refuse(
      `the action has ${found} of ${FORMS.join(', ')}, it needs exactly one`,
      FORMS_HINT,
    );
  }
  return FORM_READERS[form](raw, refuse);
}

const FORMS_HINT =
  'Write {primary, item_type, item_id, params}, {control}, {emit, data}, {inject} or {set_extends}.';

function parseShorthand(raw: Record<string, unknown>, verb: Verb, refuse: Refuse): HookAction {
  const call = raw[verb];
  knownMembers(raw, [verb], refuse);
  if (!isRecord(call)) return refuse(`"${verb}" is not a mapping of item_type, item_id and params`);
  return parseItemAction({ ...call, primary: verb }, refuse);
}

function parseItemAction(raw: Record<string, unknown>, refuse: Refuse): HookAction {
  knownMembers(raw, ['primary', 'item_type', 'item_id', 'params', ...LOOSE_PARAMS], refuse);
  const { primary, item_type, item_id, params = {} } = raw;
  const verb = VERBS.find((known) => known === primary);
  if (verb === undefined) return refuseName('primary', primary, VERBS, refuse);
  const type = ITEM_TYPES.find((known) => known === item_type);
  if (type === undefined) return refuseName('item_type', item_type, ITEM_TYPES, refuse);
  if (!isJsonObject(params)) return refuse('"params" is not a mapping');
  const loose = LOOSE_PARAMS.filter((name) => Object.hasOwn(raw, name));
  if (verb === 'execute' && loose[0] !== undefined) {
    return refuse(
      `"${loose[0]}" must be inside params`,
      'Put the arguments of an execute under params.',
    );
  }
  const all: JsonObject = {
    ...params,
    ...Object.fromEntries(loose.map((name) => [name, raw[name] as JsonValue])),
  };
  return (
    internalAction(item_id, all, refuse) ??
    itemAction(verb, type, { id: itemId(item_id, refuse), params: all })
  );
}

function itemAction(
  primary: Verb,
  itemType: ItemType,
  { id, params }: { readonly id: string; readonly params: JsonObject },
): HookAction {
  return { kind: 'item', primary, item_type: itemType, item_id: id, params };
}

function internalAction(id: unknown, params: JsonObject, refuse: Refuse): HookAction | undefined {
  if (id === CONTROL_TOOL) return { kind: 'control', action: parseControlCall(params, refuse) };
  if (id !== EMITTER_TOOL) return undefined;
  const { event_type, payload } = params;
  return parseEmit(
    { emit: event_type, ...(payload === undefined ? {} : { data: payload }) },
    refuse,
  );
}

/** The call of the internal control tool, in its own names. */
function parseControlCall(params: JsonObject, refuse: Refuse): ControlAction {
  const { action, suspend_reason, limit_type, current_value: _ignored, ...rest } = params;
  return parseControl(
    {
      control: action === 'skip' ? 'continue' : action,
      ...defined('reason', suspend_reason),
      ...defined('limit', limit_type),
      ...rest,
    },
    refuse,
  );
}

function defined(name: string, value: JsonValue | undefined): JsonObject {
  return value === undefined ? {} : { [name]: value };
}

/** Reads `{control: …}` with the members of that control action. */
function parseControl(raw: Record<string, unknown>, refuse: Refuse): ControlAction {
  const control = CONTROLS.find((known) => known === raw['control']);
  return control === undefined
    ? refuseName('control', raw['control'], CONTROLS, refuse)
    : CONTROL_READERS[control](raw, refuse);
}

function bare<const C extends 'continue' | 'abort' | 'handoff'>(
  control: C,
): Reader<{ control: C }> {
  return (raw, refuse) => {
    knownMembers(raw, ['control'], refuse);
    return { control };
  };
}

function parseAsk(raw: Record<string, unknown>, refuse: Refuse): ControlAction {
  knownMembers(raw, ['control', 'reason', 'limit', 'to'], refuse);
  const { to } = raw;
  if (to !== undefined && (typeof to !== 'number' || !Number.isFinite(to) || to < 0)) {
    return refuse('"to" of ask is not a number from 0 up', 'Write {control: ask, to: 50}.');
  }
  return {
    control: 'ask',
    ...(raw['reason'] === undefined ? {} : { reason: textMember(raw, 'reason', refuse) }),
    ...(raw['limit'] === undefined ? {} : { limit: textMember(raw, 'limit', refuse) }),
    ...(to === undefined ? {} : { to }),
  };
}

function parseEscalate(raw: Record<string, unknown>, refuse: Refuse): ControlAction {
  knownMembers(raw, ['control', 'limit', 'to'], refuse);
  const to = raw['to'];
  if (typeof to !== 'number' || !Number.isFinite(to) || to < 0) {
    return refuse(
      '"to" of escalate is not a number from 0 up',
      'Write {control: escalate, limit: turns, to: 50}.',
    );
  }
  return { control: 'escalate', limit: textMember(raw, 'limit', refuse), to };
}

function delayMember(raw: Record<string, unknown>, refuse: Refuse): { delay_seconds?: number } {
  knownMembers(raw, ['control', 'delay', 'delay_seconds'], refuse);
  const delay = raw['delay_seconds'] ?? raw['delay'];
  if (delay === undefined) return {};
  if (typeof delay === 'number' && Number.isFinite(delay) && delay >= 0)
    return { delay_seconds: delay };
  return refuse('"delay" of retry is not a number of seconds from 0 up');
}

function optionalText<const N extends string>(
  raw: Record<string, unknown>,
  name: N,
  refuse: Refuse,
): { [K in N]?: string } {
  knownMembers(raw, ['control', name], refuse);
  return Object.hasOwn(raw, name)
    ? ({ [name]: textMember(raw, name, refuse) } as { [K in N]?: string })
    : {};
}

/** `{emit: name, data: {…}}` and `{emit: {custom_type: name, data: {…}}}` are the same. */
function parseEmit(raw: Record<string, unknown>, refuse: Refuse): HookAction {
  knownMembers(raw, ['emit', 'data'], refuse);
  const emit = raw['emit'];
  if (isRecord(emit)) {
    knownMembers(emit, ['custom_type', 'data'], refuse);
    return parseEmit({ emit: emit['custom_type'], data: emit['data'] }, refuse);
  }
  const { data = {} } = raw;
  if (!isJsonObject(data)) return refuse('"data" of emit is not a mapping');
  return { kind: 'emit', custom_type: textMember(raw, 'emit', refuse), data };
}

/** An id, or a text with expressions that becomes one when the hook runs. */
function itemId(value: unknown, refuse: Refuse): string {
  const shown = JSON.stringify(value) ?? 'nothing';
  if (typeof value !== 'string') return refuse(`${shown} is not an item id`);
  const problem = value.includes('${') ? undefined : itemIdProblem(value);
  return problem === undefined ? value : refuse(`${shown} is not an item id: ${problem}`);
}

function textMember(raw: Record<string, unknown>, name: string, refuse: Refuse): string {
  const value = raw[name];
  return typeof value === 'string' && value !== '' ? value : refuse(`"${name}" is not a text`);
}

/** Refuses members that an object doesn't have, naming the nearest that it does. */
export function knownMembers(
  raw: Record<string, unknown>,
  known: readonly string[],
  refuse: Refuse,
): void {
  const unknown = Object.keys(raw).find((name) => !known.includes(name));
  if (unknown === undefined) return;
  refuse(
    `unknown member "${unknown}"`,
    didYouMean(unknown, known) ?? `Valid names: ${known.join(', ')}.`,
  );
}

/** Refuses a value that is not one of a closed list of names. */
export function refuseName(
  member: string,
  value: unknown,
  valid: readonly string[],
  refuse: Refuse,
): never {
  const near = typeof value === 'string' ? didYouMean(value, valid) : undefined;
  const what =
    value === undefined ? `"${member}" is missing` : `unknown ${member} ${JSON.stringify(value)}`;
  return refuse(what, near ?? `Write one of ${valid.join(', ')}.`);
}
