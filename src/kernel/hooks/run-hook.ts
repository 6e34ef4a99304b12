import { type Clock, overReason } from '../core/clock.ts';
import { RyeError, toRyeError } from '../core/errors.ts';
import type { EventDraft, EventPayloads } from '../core/events.ts';
import type {
  ControlAction,
  HookAction,
  HookDeclaration,
  HookEvent,
  HookLayer,
} from '../core/hook.ts';
import { assertItemId } from '../core/ids.ts';
import { isJsonObject, isRecord, type JsonObject, type JsonValue, toText } from '../core/json.ts';
import type { ContextBlock } from '../core/plan.ts';
import { escapeXml } from '../core/text.ts';
import { type CallView, matchedView } from '../policy/call-views.ts';
import { evaluate } from '../policy/condition.ts';
import { interpolate } from '../policy/interpolate.ts';
import { parseControl } from './action.ts';
import { dispatchKind } from './contexts.ts';

type ItemAction = Extract<HookAction, { readonly kind: 'item' }>;

/** The record of one hook that was considered: the payload of a `hook_fired` event. */
export type Fired = EventPayloads['hook_fired'];

/** Output of an item that ran for a hook. */
export interface ActionOutcome {
  /** Body of the item or text output of the tool, without any metadata fence. */
  readonly content?: string;
  /** The item's own name, for the wrapping element. */
  readonly name?: string;
  /** Structured output; one of the form `{control: …}` is a control action. */
  readonly data?: JsonValue;
}

/** Runs an item action whose strings are already interpolated. Rejects on every failure, soon after `signal` aborts. */
export type RunAction = (
  hook: HookDeclaration,
  action: ItemAction,
  context: JsonObject,
  signal: AbortSignal,
) => Promise<ActionOutcome>;

/** Options of every dispatch besides hooks and context. */
export interface DispatchOptions {
  readonly runAction: RunAction;
  readonly clock: Clock;
  /** Aborts when the thread is cancelled: the running hook is stopped and no later one starts. */
  readonly signal: AbortSignal;
  /** Ids of hooks, and full ids of items that hooks load, which the directive keeps out of its context. */
  readonly suppress?: readonly string[];
}

/** An event and its context. */
export interface HookCall {
  readonly event: HookEvent;
  readonly context: JsonObject;
  /** All that a call does, for `tool_gate`. A condition applies to the call if it applies to any of them. */
  readonly views?: readonly CallView[] | undefined;
}

/**
 * One hook's run: its record, and what its actions gave up to a failure. Contents are injected texts, and for context
 * events also what items gave; elsewhere the output of a hook's tools is not told to the model.
 */
export interface HookRun {
  readonly fired: Fired;
  readonly drafts: readonly EventDraft[];
  readonly contents: readonly ContextBlock[];
  readonly control?: ControlAction;
  readonly failure?: RyeError;
}

interface Progress {
  readonly drafts: EventDraft[];
  readonly contents: ContextBlock[];
  control?: ControlAction;
}

/** True for rye's own hooks, which always run and never decide. */
export function isInfra({ layer }: HookDeclaration): boolean {
  return layer === 4;
}

/** The enabled hooks of an event, in the order in which they run. */
export function hooksOf(
  hooks: readonly HookDeclaration[],
  event: HookEvent,
): readonly HookDeclaration[] {
  return inRunningOrder(
    hooks.filter(({ enabled }) => enabled),
    event,
  );
}

/**
 * All hooks of an event in the order in which they run: by layer, except that a control event asks the builtin
 * defaults after the project's hooks. A default always decides, so a project's hook after it would never be asked.
 */
export function inRunningOrder(
  hooks: readonly HookDeclaration[],
  event: HookEvent,
): readonly HookDeclaration[] {
  const isControl = dispatchKind(event) === 'control';
  const rank = ({ layer }: HookDeclaration): number =>
    isControl && layer === BUILTIN_LAYER ? PROJECT_LAYER + 0.5 : layer;
  return hooks.filter((hook) => hook.event === event).toSorted((a, b) => rank(a) - rank(b));
}

const BUILTIN_LAYER: HookLayer = 2;
const PROJECT_LAYER: HookLayer = 3;

/**
 * True if a directive's `suppress` names a hook, by its id or by the full id of an item that it loads. Only hooks
 * that add context can be kept out, so that a directive can't switch off a gate.
 */
export function isSuppressed(hook: HookDeclaration, suppress: readonly string[]): boolean {
  if (dispatchKind(hook.event) !== 'context') return false;
  return (
    suppress.includes(hook.id) ||
    hook.actions.some((action) => action.kind === 'item' && suppress.includes(action.item_id))
  );
}

/** The record of a hook that does not run, or undefined when it is to run. */
export function notRun(
  hook: HookDeclaration,
  call: HookCall,
  suppress: readonly string[],
): Fired | undefined {
  const matched = contextFor(hook, call) !== undefined;
  if (!matched) return firedRecord(hook, { matched, outcome: 'not_matched' });
  return isSuppressed(hook, suppress)
    ? firedRecord(hook, { matched, outcome: 'suppressed' })
    : undefined;
}

/** The context for the actions of a hook, with the part of a call that its condition matches; undefined if there is none. */
function contextFor({ condition }: HookDeclaration, call: HookCall): JsonObject | undefined {
  const { context, views } = call;
  if (condition === undefined || views === undefined) {
    return condition === undefined || evaluate(condition, context) ? context : undefined;
  }
  const view = matchedView(condition, context, views);
  return view && { ...context, input: view.input };
}

/** A `hook_fired` payload. */
export function firedRecord(
  { id, layer, event }: HookDeclaration,
  rest: Pick<Fired, 'matched' | 'outcome'> & Partial<Fired>,
): Fired {
  return { id, layer, event, duration_ms: 0, ...rest };
}

/**
 * Considers one hook: evaluates its condition and runs its actions in order, within its timeout. Never rejects; a
 * control action ends the hook.
 */
export async function runHook(
  hook: HookDeclaration,
  call: HookCall,
  options: DispatchOptions,
): Promise<HookRun> {
  const aside = notRun(hook, call, options.suppress ?? []);
  if (aside !== undefined) return { fired: aside, drafts: [], contents: [] };

  const progress: Progress = { drafts: [], contents: [] };
  const start = options.clock.monotonic();
  const failure = await withinTimeout(hook, options, (signal) =>
    runActions(hook, contextFor(hook, call) ?? call.context, { ...options, signal, progress }),
  );
  const duration_ms = Math.round(options.clock.monotonic() - start);
  if (failure === undefined) {
    const outcome = progress.control?.control ?? (progress.contents.length > 0 ? 'content' : 'ok');
    return { ...progress, fired: firedRecord(hook, { matched: true, duration_ms, outcome }) };
  }
  const { error, outcome } = failure;
  const fired = firedRecord(hook, {
    matched: true,
    duration_ms,
    outcome,
    error: error.message,
    ...(error.code === 'approval_required' ? { code: error.code } : {}),
  });
  const { drafts, contents } = progress;
  return { drafts, contents, fired, failure: error };
}

interface Failure {
  readonly outcome: 'failed' | 'timeout' | 'cancelled';
  readonly error: RyeError;
}

/**
 * Runs `work` until it settles, the hook's time is up or the thread is cancelled; then `work`'s signal is aborted. A hook
 * that runs no item needs no timer.
 */
async function withinTimeout(
  hook: HookDeclaration,
  { clock, signal }: DispatchOptions,
  work: (signal: AbortSignal) => Promise<void>,
): Promise<Failure | undefined> {
  if (signal.aborted) return cancelled(hook);
  const run = (until: AbortSignal): Promise<Failure | undefined> =>
    work(until).then(
      () => undefined,
      (error: unknown): Failure => ({ outcome: 'failed', error: toRyeError(error, 'hook_failed') }),
    );
  if (!hook.actions.some(({ kind }) => kind === 'item')) return await run(signal);
  const stop = new AbortController();
  const abort = (): void => stop.abort();
  signal.addEventListener('abort', abort, { once: true });
  try {
    const stopped = clock
      .sleep(hook.timeout_seconds * 1000, stop.signal)
      .then(() => (signal.aborted ? cancelled(hook) : timedOut(hook)));
    return await Promise.race([run(stop.signal), stopped]);
  } finally {
    signal.removeEventListener('abort', abort);
    stop.abort(overReason());
  }
}

function cancelled({ id }: HookDeclaration): Failure {
  const error = new RyeError('cancelled', `hook ${id} was stopped because its thread was`);
  return { outcome: 'cancelled', error };
}

function timedOut({ id, timeout_seconds, origin }: HookDeclaration): Failure {
  const error = new RyeError('hook_failed', `hook ${id} took longer than ${timeout_seconds} s`, {
    hint: `Raise timeout_seconds of the hook in ${origin}.`,
  });
  return { outcome: 'timeout', error };
}

interface RunningHook extends DispatchOptions {
  readonly progress: Progress;
}

async function runActions(
  hook: HookDeclaration,
  context: JsonObject,
  running: RunningHook,
): Promise<void> {
  const { progress, signal } = running;
  for (const action of hook.actions) {
    if (action.kind === 'item') {
      const resolved = resolveItem(action, context);
      const outcome = await running.runAction(hook, resolved, context, signal);
      // a result after the timeout is ignored
      if (signal.aborted) return;
      takeOutcome(hook, { action: resolved, outcome }, progress);
    } else if (action.kind === 'emit') {
      progress.drafts.push(emitted(action, context));
    } else if (action.kind === 'inject') {
      const { value } = interpolate(action.text, context);
      progress.contents.push(block(hook, hook.id, value === null ? '' : toText(value)));
    } else if (action.kind === 'control') {
      progress.control = resolveControl(action.action, context);
    }
    if (progress.control !== undefined) return;
  }
}

function resolveItem(action: ItemAction, context: JsonObject): ItemAction {
  const { value: id } = interpolate(action.item_id, context);
  const { value: params } = interpolate(action.params, context);
  const item_id = id === null ? '' : toText(id);
  assertItemId(item_id, action.item_type);
  return { ...action, item_id, params: isJsonObject(params) ? params : {} };
}

/** Omits members whose expression has no value, so that the receiver's default applies. */
function resolveControl(action: ControlAction, context: JsonObject): ControlAction {
  const { value } = interpolate({ ...action }, context);
  const members = Object.entries(isRecord(value) ? value : {}).filter(
    ([, member]) => member !== null,
  );
  return controlOf(Object.fromEntries(members));
}

function controlOf(raw: Record<string, unknown>): ControlAction {
  return parseControl(raw, (message, hint) => {
    throw new RyeError('hook_failed', `the control action of the hook can't be used: ${message}`, {
      hint,
    });
  });
}

function emitted(
  { custom_type, data }: Extract<HookAction, { readonly kind: 'emit' }>,
  context: JsonObject,
): EventDraft {
  const { value } = interpolate(data, context);
  return { event_type: 'custom', payload: { custom_type, data: isJsonObject(value) ? value : {} } };
}

function takeOutcome(
  hook: HookDeclaration,
  { action, outcome }: { readonly action: ItemAction; readonly outcome: ActionOutcome },
  progress: Progress,
): void {
  const { content = '', data } = outcome;
  if (dispatchKind(hook.event) === 'context' && content.trim() !== '') {
    const text = hook.wrap ? wrapped(action, { ...outcome, content }) : content;
    progress.contents.push(block(hook, action.item_id, text));
  }
  if (isRecord(data) && Object.hasOwn(data, 'control')) progress.control = controlOf(data);
}

function block(hook: HookDeclaration, id: string, content: string): ContextBlock {
  return { position: hook.position, id, source: `hook ${hook.id}`, content };
}

/** `<Name id="…" type="…">` around a content; Name is the item's name where XML can have it as one. */
function wrapped(
  { item_id, item_type }: ItemAction,
  { content, name }: { readonly content: string; readonly name?: string },
): string {
  const leaf = item_id.slice(item_id.lastIndexOf('/') + 1);
  const tag =
    [name, leaf].find((candidate) => candidate !== undefined && XML_NAME.test(candidate)) ??
    'context';
  // quoted text must not be able to end its own quotation
  const quoted = content.replaceAll(`</${tag}`, `&lt;/${tag}`);
  return `<${tag} id="${escapeXml(item_id)}" type="${item_type}">\n${quoted}\n</${tag}>`;
}

const XML_NAME = /^[A-Za-z_][\w.-]*$/;
