import { RyeError, type SourceLocation, toRyeError } from '../core/errors.ts';
import {
  type Condition,
  HOOK_EVENTS,
  type HookAction,
  type HookDeclaration,
  type HookEvent,
  type HookLayer,
} from '../core/hook.ts';
import { compact, isRecord, type JsonValue } from '../core/json.ts';
import { parseCapability } from '../policy/capability.ts';
import { conditionPaths, parseCondition } from '../policy/condition.ts';
import { brokenExpressions, interpolationPaths } from '../policy/interpolate.ts';
import declared from '../schemas/hooks.json' with { type: 'json' };
import type { HookFile } from '../schemas/hooks.ts';
import { parseAction, type Refuse, refuseProblem } from './action.ts';
import { contextPathProblem, type DispatchKind, dispatchKind } from './contexts.ts';

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
const MAX_ID_LENGTH = 200;
const DIRECTIVE_LAYER: HookLayer = 1;

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
 * Validates the hooks of one source for its layer. Throws the first problem: `hook_invalid` or `condition_invalid`
 * with file:line and the nearest name. Use {@link readHooks} to get them all.
 */
export function parseHooks(raw: readonly RawHook[], layer: HookLayer): readonly HookDeclaration[] {
  const { hooks, problems } = readHooks(raw, layer);
  const [problem] = problems;
  if (problem !== undefined) throw problem;
  return hooks;
}

/** Like {@link parseHooks} for one file or directive, in which a second hook with an id would replace the first, a guard. */
export function parseDistinctHooks(
  raw: readonly RawHook[],
  layer: HookLayer,
): readonly HookDeclaration[] {
  const hooks = parseHooks(raw, layer);
  const [problem] = doubledHooks(hooks);
  if (problem !== undefined) throw problem;
  return hooks;
}

/** Returns an error for each hook that has the id of an earlier one. */
export function doubledHooks(hooks: readonly HookDeclaration[]): readonly RyeError[] {
  return hooks.flatMap(({ id, origin }, at) => {
    const twin = hooks.slice(0, at).find((earlier) => earlier.id === id);
    if (twin === undefined) return [];
    const message = `${origin}: the id "${id}" is that of the hook at ${twin.origin}`;
    const hint =
      'Give each hook of a file or directive its own id. An inherited gate is replaced only by a gate.';
    return [new RyeError('hook_invalid', message, { hint })];
  });
}

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
  const isSwitch = isRecord(value) && isSwitchOff(value);
  const written = isSwitch ? { ...value, event: SWITCHED_OFF_EVENT } : value;
  refuseProblem(declared.properties.hook, written, refuse);
  const file = written as HookFile;
  const { id, event, description } = file;
  if (id.length > MAX_ID_LENGTH) refuse(`its id is longer than ${MAX_ID_LENGTH} characters`);
  const common = {
    id,
    layer,
    origin,
    enabled: file.enabled ?? true,
    position: file.position ?? 'before',
    wrap: file.wrap ?? true,
    timeout_seconds: file.timeout_seconds ?? DEFAULT_TIMEOUT_SECONDS,
    ...compact({
      on_error: file.on_error,
      description: typeof description === 'string' ? description : undefined,
      capabilities: file.capabilities?.map((entry) => parseCapability(String(entry))),
    }),
    event,
  };
  if (isSwitch) return { ...common, actions: [] };

  checkFits(file, layer, refuse);
  const condition = conditionMember(file.condition, event, location);
  const actions = actionsMember(file, refuse);
  for (const action of actions) checkAction(action, event, refuse);
  if (condition === undefined) return { ...common, actions };
  checkConditionPaths(condition, event, refuse);
  return { ...common, condition, actions };
}

/** Placeholder for the event of a switched-off hook, which is known only when the layers are merged. */
const SWITCHED_OFF_EVENT: HookEvent = 'after_complete';

/** `{id, enabled: false}` alone switches off a hook of the same id. Another value of `enabled` is refused later. */
function isSwitchOff({ enabled = true, action, actions }: Record<string, unknown>): boolean {
  return enabled !== true && action === undefined && actions === undefined;
}

/** True if a declaration only switches another one off: its event then means nothing. */
export function switchesOff(hook: HookDeclaration): boolean {
  return !hook.enabled && hook.actions.length === 0;
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

function actionsMember({ action, actions }: HookFile, refuse: Refuse): readonly HookAction[] {
  if (action !== undefined && actions !== undefined)
    return refuse('it has both action and actions');
  const listed = action === undefined ? actions : [action];
  if (!Array.isArray(listed) || listed.length === 0)
    return refuse('it has no action', 'Write action: {…} or actions: [{…}].');
  return listed.map((entry) => parseAction(entry, refuse));
}

const FITTING: readonly {
  readonly member: 'position' | 'wrap' | 'on_error';
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
function checkFits(file: HookFile, layer: HookLayer, refuse: Refuse): void {
  for (const { member, kinds, why } of FITTING) {
    if (file[member] !== undefined && !kinds.includes(dispatchKind(file.event))) {
      refuse(`"${member}" on the event ${file.event} ${why}`);
    }
  }
  if (file.capabilities !== undefined && layer === DIRECTIVE_LAYER) {
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
  if (action.kind === 'control' && action.action.control === 'ask' && !ASKABLE.has(event)) {
    refuse(`ask decides nothing on the event ${event}`, 'Use tool_gate or limit.');
  }
  if (action.kind === 'inject' && !INJECTABLE.has(event)) {
    refuse(`inject can't add text on the event ${event}`, 'Use thread_started or after_step.');
  }
  const texts = interpolatedPart(action);
  const [broken] = brokenExpressions(texts);
  if (broken !== undefined) {
    const hint =
      "After || write a path, a text in quotes, a number, true or false: ${inputs.who || 'you'}.";
    refuse(`the expression ${broken} can't be read`, hint);
  }
  checkPaths(interpolationPaths(texts), event, refuse);
}

const ASKABLE: ReadonlySet<HookEvent> = new Set(['tool_gate', 'limit']);

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
