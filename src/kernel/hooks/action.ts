import { VERBS } from '../core/capability.ts';
import { type CheckedSchema, findProblem } from '../core/check.ts';
import type { ControlAction, HookAction } from '../core/hook.ts';
import { itemIdProblem } from '../core/ids.ts';
import { compact, isRecord, type JsonObject } from '../core/json.ts';
import declared from '../schemas/hooks.json' with { type: 'json' };
import type { ActionFiles, ControlFiles } from '../schemas/hooks.ts';

/** Internal tools of the seed's format, whose calls are control decisions and events. */
const CONTROL_TOOL = 'rye/agent/threads/internal/control';
const EMITTER_TOOL = 'rye/agent/threads/internal/emitter';

/** Refuses an action with a message about it and, where one is known, what to write instead. */
export type Refuse = (message: string, hint?: string) => never;

type Form = keyof ActionFiles;
const SCHEMAS: Readonly<Record<Form, CheckedSchema>> = declared.properties.actions.properties;
const CONTROL_SCHEMAS: Readonly<Record<keyof ControlFiles, CheckedSchema>> =
  declared.properties.controls.properties;
const FORMS = Object.keys(SCHEMAS) as readonly Form[];

/** Members of a fetch or sign that may be written beside `params` instead of in it. */
const LOOSE_PARAMS = ['query', 'scope', 'source', 'destination', 'limit'] as const;

const FORMS_HINT =
  'Write {primary, item_type, item_id, params}, {control}, {emit, data}, {inject} or {set_extends}.';

type Readers = { readonly [F in Form]: (file: ActionFiles[F], refuse: Refuse) => HookAction };

const READERS: Readers = {
  primary: itemAction,
  set_extends: ({ set_extends: id }, refuse) => ({
    kind: 'set_extends',
    target: itemId(id, refuse),
  }),
  control: (file, refuse) => ({ kind: 'control', action: parseControl(file, refuse) }),
  // {emit: name, data: {…}} and {emit: {custom_type: name, data: {…}}} are the same
  emit: ({ emit, data }) => {
    const event = typeof emit === 'string' ? { custom_type: emit, data } : emit;
    return {
      kind: 'emit',
      custom_type: event.custom_type,
      data: (event.data ?? {}) as JsonObject,
    };
  },
  inject: ({ inject: text }) => ({ kind: 'inject', text }),
};

/** Reads one action in any of its written forms. */
export function parseAction(raw: unknown, refuse: Refuse): HookAction {
  if (!isRecord(raw)) return refuse('the action is not a mapping', FORMS_HINT);
  const verb = VERBS.find((known) => Object.hasOwn(raw, known));
  if (verb !== undefined && !Object.hasOwn(raw, 'primary')) {
    const call = raw[verb];
    const only = { properties: { [verb]: {} }, additionalProperties: false };
    refuseProblem(only, raw, refuse);
    if (isRecord(call)) return readForm('primary', { ...call, primary: verb }, refuse);
    return refuse(`"${verb}" is not a mapping of item_type, item_id and params`);
  }
  const forms = FORMS.filter((form) => Object.hasOwn(raw, form));
  const [form] = forms;
  if (form !== undefined && forms.length === 1) return readForm(form, raw, refuse);
  const found = forms.length === 0 ? 'none' : forms.join(' and ');
  return refuse(`the action has ${found} of ${FORMS.join(', ')}, it needs exactly one`, FORMS_HINT);
}

function readForm(form: Form, raw: unknown, refuse: Refuse): HookAction {
  refuseProblem(SCHEMAS[form], raw, refuse);
  const read = READERS[form] as (file: unknown, refuse: Refuse) => HookAction;
  return read(raw, refuse);
}

function itemAction(file: ActionFiles['primary'], refuse: Refuse): HookAction {
  const { primary, item_type, item_id, params } = file;
  const loose = LOOSE_PARAMS.filter((name) => Object.hasOwn(file, name));
  if (primary === 'execute' && loose[0] !== undefined) {
    return refuse(
      `"${loose[0]}" must be inside params`,
      'Put the arguments of an execute under params.',
    );
  }
  const all = {
    ...params,
    ...Object.fromEntries(loose.map((name) => [name, file[name]])),
  } as JsonObject;
  if (item_id === CONTROL_TOOL) return { kind: 'control', action: controlCall(all, refuse) };
  if (item_id === EMITTER_TOOL) {
    return readForm('emit', { emit: all['event_type'], data: all['payload'] }, refuse);
  }
  return { kind: 'item', primary, item_type, item_id: itemId(item_id, refuse), params: all };
}

/** Reads a call of the internal control tool, which has other member names. */
function controlCall(params: JsonObject, refuse: Refuse): ControlAction {
  const { action, suspend_reason, limit_type, current_value: _ignored, ...rest } = params;
  const control = action === 'skip' ? 'continue' : action;
  return parseControl({ control, reason: suspend_reason, limit: limit_type, ...rest }, refuse);
}

/** Reads `{control: …}` with the members of that control action. */
export function parseControl(raw: Record<string, unknown>, refuse: Refuse): ControlAction {
  refuseProblem(SCHEMAS.control, raw, refuse);
  const { control } = raw as ActionFiles['control'];
  refuseProblem(CONTROL_SCHEMAS[control], raw, refuse);
  const file = raw as ControlFiles[typeof control];
  if (file.control !== 'retry') return compact(file);
  return compact({ control: file.control, delay_seconds: file.delay_seconds ?? file.delay });
}

/** An id, or a text with expressions that becomes one when the hook runs. */
function itemId(id: string, refuse: Refuse): string {
  const problem = id.includes('${') ? undefined : itemIdProblem(id);
  return problem === undefined ? id : refuse(`${JSON.stringify(id)} is not an item id: ${problem}`);
}

/** Refuses a value that does not match its declaration. */
export function refuseProblem(schema: CheckedSchema, value: unknown, refuse: Refuse): void {
  const problem = findProblem(schema, value);
  if (!problem) return;
  const { known, text, hint } = problem;
  if (!known) refuse(text, hint);
  refuse(`unknown member "${problem.path.at(-1)}"`, hint ?? `Valid names: ${known.join(', ')}.`);
}
