import { RyeError, type SourceLocation, toRyeError } from '../../../src/kernel/core/errors.ts';
import {
  type Condition,
  HOOK_EVENTS,
  type HookAction,
  type HookDeclaration,
  type HookEvent,
  type HookLayer,
} from '../../../src/kernel/core/hook.ts';
import { compact, isRecord, type JsonValue } from '../../../src/kernel/core/json.ts';
import {
  contextPathProblem,
  type DispatchKind,
  dispatchKind,
  isHookEvent,
} from '../../../src/kernel/hooks/contexts.ts';
import { parseCapability } from '../../../src/kernel/policy/capability.ts';
import { conditionPaths, parseCondition } from '../../../src/kernel/policy/condition.ts';
import { interpolationPaths } from '../../../src/kernel/policy/interpolate.ts';
import { knownMembers, parseAction, type Refuse, refuseName } from './hook-action.ts';

/** A hook as written in YAML or typed from XML. `origin` is `file:line`. */
export interface RawHook {
  readonly value: unknown;
  readonly origin: string;
}

/** Hooks of one source, and an error for each one that can't be used as written. */
export interface ReadHooks {
  readonly hooks: readonly HookDeclaration[];
  readonly problems: readonly RyeError[];
}

const DEFAULT_TIMEOUT_SECONDS = 30;
const MAX_TIMEOUT_SECONDS = 3600;
const MAX_ID_LENGTH = 200;
const DIRECTIVE_LAYER: HookLayer = 1;

const MEMBERS = [
  'id',
  'event',
  'layer',
  'condition',
  'action',
  'actions',
  'position',
  'wrap',
  'enabled',
  'timeout_seconds',
  'on_error',
  'description',
  'capabilities',
];

/** Events whose result can take an injected text: they occur between turns, not inside a batch of calls. */
const INJECTABLE: ReadonlySet<HookEvent> = new Set([
  'thread_started',
  'thread_continued',
  'before_compact',
  'after_step',
  'error',
  'limit',
  'context_limit_reached',
]);

/**
 * Validates the hooks of one source for its layer and collects every problem. A hook with a problem is skipped, except
 * for a `layer` member: that is a problem, and the hook stays in the layer of its source.
 */
export function readHooks(raw: readonly RawHook[], layer: HookLayer): ReadHooks {
  const hooks: HookDeclaration[] = [];
  const problems: RyeError[] = [];
  for (const entry of raw) {
    try {
      hooks.push(readHook(entry, layer));
      const moved = layerProblem(entry, layer);
      if (moved !== undefined) problems.push(moved);
    } catch (error) {
      problems.push(toRyeError(error));
    }
  }
  return { hooks, problems };
}

function layerProblem({ value, origin }: RawHook, layer: HookLayer): RyeError | undefined {
  const own = isRecord(value) ? value['layer'] : undefined;
  if (own === undefined || own === layer) return undefined;
  return new RyeError(
    'hook_invalid',
    `hooks of this source are in layer ${layer}, not ${JSON.stringify(own)}`,
    {
      location: locationOf(origin),
      hint: 'Remove "layer": the hook\'s file decides it.',
    },
  );
}

function locationOf(origin: string): SourceLocation {
  const [, path = origin, line, column] = /^(.*?)(?::(\d+))?(?::(\d+))?$/s.exec(origin) ?? [];
  return compact({
    path,
    line: line === undefined ? undefined : Number(line),
    column: column === undefined ? undefined : Number(column),
  });
}

function readHook({ value, origin }: RawHook, layer: HookLayer): HookDeclaration {
  const location = locationOf(origin);
  const name = isRecord(value) && typeof value['id'] === 'string' ? `hook "${value['id']}": ` : '';
  const refuse: Refuse = (message, hint) => {
    throw new RyeError('hook_invalid', name + message, { location, hint });
  };
  if (!isRecord(value))
    return refuse('a hook is not a mapping', 'Write a list of {id, event, action}.');
  knownMembers(value, MEMBERS, refuse);
  const id = hookId(value['id'], refuse);
  const common = {
    id,
    layer,
    origin,
    enabled: flagMember(value, 'enabled', refuse),
    position: choiceMember(value, 'position', ['before', 'after'] as const, refuse) ?? 'before',
    wrap: flagMember(value, 'wrap', refuse),
    timeout_seconds: timeoutMember(value['timeout_seconds'], refuse),
    ...optionalMembers(value, refuse),
  };
  if (isSwitchOff(value)) return { ...common, event: SWITCHED_OFF_EVENT, actions: [] };

  const event = eventMember(value['event'], refuse);
  checkFits(value, { event, layer }, refuse);
  const condition = conditionMember(value['condition'], event, location);
  const actions = actionsMember(value, refuse);
  for (const action of actions) checkAction(action, event, refuse);
  if (condition !== undefined) checkConditionPaths(condition, event, refuse);
  return { ...common, event, ...(condition === undefined ? {} : { condition }), actions };
}

/** Placeholder for the event of a switched-off hook, which is known only when the layers are merged. */
const SWITCHED_OFF_EVENT: HookEvent = 'after_complete';

/** `{id, enabled: false}` alone switches off a hook of the same id. */
function isSwitchOff(value: Record<string, unknown>): boolean {
  return (
    value['enabled'] === false && value['action'] === undefined && value['actions'] === undefined
  );
}

function hookId(value: unknown, refuse: Refuse): string {
  if (typeof value !== 'string' || value.trim() === '')
    return refuse('it has no id', 'Give each hook an id.');
  return value.length > MAX_ID_LENGTH
    ? refuse(`its id is longer than ${MAX_ID_LENGTH} characters`)
    : value;
}

function eventMember(value: unknown, refuse: Refuse): HookEvent {
  return isHookEvent(value) ? value : refuseName('event', value, HOOK_EVENTS, refuse);
}

function conditionMember(
  value: unknown,
  event: HookEvent,
  location: SourceLocation,
): Condition | undefined {
  if (value === undefined) return undefined;
  const condition = parseCondition(value, location);
  return event === 'resolve_extends' ? withRequestedModel(condition) : condition;
}

/** `model.tier` and its like: `model` is a text, and its parts are members of `requested_model`. */
function withRequestedModel(condition: Condition): Condition {
  if ('any' in condition) return { any: condition.any.map(withRequestedModel) };
  if ('all' in condition) return { all: condition.all.map(withRequestedModel) };
  if ('not' in condition) return { not: withRequestedModel(condition.not) };
  return { ...condition, path: condition.path.replace(/^model\./, 'requested_model.') };
}

function actionsMember(value: Record<string, unknown>, refuse: Refuse): readonly HookAction[] {
  const { action, actions } = value;
  if (action !== undefined && actions !== undefined)
    return refuse('it has both action and actions');
  const listed = action === undefined ? actions : [action];
  if (!Array.isArray(listed) || listed.length === 0)
    return refuse('it has no action', 'Write action: {…} or actions: [{…}].');
  return listed.map((entry) => parseAction(entry, refuse));
}

function optionalMembers(
  value: Record<string, unknown>,
  refuse: Refuse,
): Pick<HookDeclaration, 'on_error' | 'description' | 'capabilities'> {
  const { description, capabilities } = value;
  if (capabilities !== undefined && !Array.isArray(capabilities)) {
    return refuse('"capabilities" is not a list of capabilities');
  }
  return compact({
    on_error: choiceMember(value, 'on_error', ['ignore', 'fail'] as const, refuse),
    description: typeof description === 'string' ? description : undefined,
    capabilities: capabilities?.map((entry) => parseCapability(String(entry))),
  });
}

const FITTING: readonly {
  readonly member: string;
  readonly kinds: readonly DispatchKind[];
  readonly why: string;
}[] = [
  { member: 'position', kinds: ['context'], why: 'has no place: only context events add text' },
  { member: 'wrap', kinds: ['context'], why: 'has nothing to wrap: only context events add text' },
  {
    member: 'on_error',
    kinds: ['context', 'control'],
    why: 'has no effect: these hooks never change an outcome',
  },
];

/** Refuses members that can't mean anything for the event or in the layer. */
function checkFits(
  value: Record<string, unknown>,
  { event, layer }: { readonly event: HookEvent; readonly layer: HookLayer },
  refuse: Refuse,
): void {
  for (const { member, kinds, why } of FITTING) {
    if (value[member] !== undefined && !kinds.includes(dispatchKind(event))) {
      refuse(`"${member}" on the event ${event} ${why}`);
    }
  }
  if (value['capabilities'] !== undefined && layer === DIRECTIVE_LAYER) {
    refuse(
      '"capabilities" is not for hooks of a directive',
      "They act under the capabilities of their thread: grant it in the directive's <permissions>.",
    );
  }
}

function checkAction(action: HookAction, event: HookEvent, refuse: Refuse): void {
  const kind = dispatchKind(event);
  if ((action.kind === 'set_extends') !== (kind === 'routing')) {
    const what = kind === 'routing' ? 'only set_extends decides' : 'set_extends decides nothing';
    refuse(`${what} on the event ${event}`, 'set_extends belongs to resolve_extends.');
  }
  if (action.kind === 'control' && kind !== 'control' && event !== 'before_compact') {
    refuse(
      `a control action decides nothing on the event ${event}`,
      'Use error, limit, after_step, context_limit_reached, before_compact or tool_gate.',
    );
  }
  if (action.kind === 'inject' && !INJECTABLE.has(event)) {
    refuse(`inject can't add text on the event ${event}`, 'Use thread_started or after_step.');
  }
  checkPaths(interpolationPaths(interpolatedPart(action)), event, refuse);
}

/** Returns the part of an action that is interpolated when it runs. */
function interpolatedPart(action: HookAction): JsonValue {
  if (action.kind === 'item') return [action.item_id, action.params];
  if (action.kind === 'emit') return action.data;
  if (action.kind === 'inject') return action.text;
  return action.kind === 'control' ? { ...action.action } : null;
}

/**
 * Refuses paths that the event's context can't have. `exists` may also ask for what only another event has, so that
 * one condition can serve several events.
 */
function checkConditionPaths(condition: Condition, event: HookEvent, refuse: Refuse): void {
  const valued = conditionPaths(condition, 'exists');
  const asked = conditionPaths(condition).filter((path) => !valued.includes(path));
  const unknown = asked.filter((path) =>
    HOOK_EVENTS.every((any) => contextPathProblem(any, path) !== undefined),
  );
  checkPaths([...valued, ...unknown], event, refuse);
}

function checkPaths(paths: readonly string[], event: HookEvent, refuse: Refuse): void {
  for (const path of paths) {
    const problem = contextPathProblem(event, path);
    if (problem === undefined) continue;
    const near =
      problem.near.length === 0 ? undefined : `Did you mean ${problem.near.join(' or ')}?`;
    refuse(
      `"${path}" is not in the context of ${event}: ${problem.message}`,
      near ?? `"rye hooks schema ${event}" shows what is.`,
    );
  }
}

function flagMember(value: Record<string, unknown>, name: string, refuse: Refuse): boolean {
  const flag = value[name];
  if (flag === undefined) return true;
  return typeof flag === 'boolean'
    ? flag
    : refuse(`"${name}" is ${JSON.stringify(flag)}, not true or false`);
}

function choiceMember<const T extends string>(
  value: Record<string, unknown>,
  name: string,
  valid: readonly T[],
  refuse: Refuse,
): T | undefined {
  const chosen = value[name];
  if (chosen === undefined) return undefined;
  return valid.find((known) => known === chosen) ?? refuseName(name, chosen, valid, refuse);
}

function timeoutMember(value: unknown, refuse: Refuse): number {
  if (value === undefined) return DEFAULT_TIMEOUT_SECONDS;
  return typeof value === 'number' && value > 0 && value <= MAX_TIMEOUT_SECONDS
    ? value
    : refuse(
        `"timeout_seconds" is ${JSON.stringify(value)}, not a number above 0 and up to ${MAX_TIMEOUT_SECONDS}`,
      );
}
