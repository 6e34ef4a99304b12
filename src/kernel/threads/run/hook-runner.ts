import { capabilityOf } from '../../core/capability.ts';
import { RyeError } from '../../core/errors.ts';
import type { EventDraft } from '../../core/events.ts';
import type { HookDeclaration, HookEvent } from '../../core/hook.ts';
import { compact, type JsonObject } from '../../core/json.ts';
import { LruMap } from '../../core/lru.ts';
import { textOf } from '../../core/message.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import {
  type CompactReport,
  type ContextReport,
  dispatchBeforeCompact,
  dispatchContext,
  dispatchControl,
  dispatchObserving,
} from '../../hooks/dispatch.ts';
import type { ActionOutcome, DispatchOptions, Fired, RunAction } from '../../hooks/run-hook.ts';
import { mayRun } from '../../hooks/sources.ts';
import { assertIdentity } from '../../items/binding.ts';
import { type Knowledge, parseKnowledge } from '../../items/knowledge.ts';
import type {
  ControlEvent,
  GateDecision,
  HookDecision,
  HookPort,
  HookReport,
  ObservedEvent,
} from '../../loop/ports.ts';
import { type CallView, readsFiles } from '../../policy/call-views.ts';
import type { AwaitedThreads } from '../../tools/tool.ts';
import type { OpenTools, Process, RunChild, Sources } from '../ports.ts';
import { workFolder } from '../worktrees.ts';
import { type HookAsks, needsPerson } from './hook-asks.ts';
import type { Recorder } from './recorder.ts';

export interface HookRunnerOptions {
  readonly env: Process & Pick<Sources, 'items'>;
  readonly plan: ThreadPlan;
  readonly threadId: string;
  /** Begins the ids of its tool calls: each is unique in the thread's log. */
  readonly callPrefix: string;
  readonly tools: OpenTools;
  readonly children: { readonly runForHook: RunChild; withdraw(threadId: string): Promise<void> };
  readonly recorder: Recorder;
  /** Absent: nothing that the hooks call has an effect. */
  readonly asks?: HookAsks | undefined;
}

type ItemAction = Parameters<RunAction>[1];

/** The hook whose action runs, the context of its event, and what stops it. */
interface Running {
  readonly hook: HookDeclaration;
  readonly context: JsonObject;
  readonly signal: AbortSignal;
}

/**
 * Runs a thread's merged hooks. Their item actions act under the thread's capabilities and, for hooks of a configured
 * file, under what that file is granted; the hooks that rye ships are not bound.
 */
export class HookRunner implements HookPort {
  readonly #options: HookRunnerOptions;
  /** The context of every event, without secret inputs. */
  readonly #base: JsonObject;
  readonly #listened: ReadonlySet<HookEvent>;
  readonly #failed = new Set<string>();
  #calls = 0;

  constructor(options: HookRunnerOptions) {
    const { plan, threadId, env } = options;
    this.#options = options;
    this.#listened = new Set(plan.hooks.filter(({ enabled }) => enabled).map(({ event }) => event));
    this.#base = {
      thread_id: threadId,
      directive: plan.directive.id,
      model: plan.model.id,
      inputs: openInputs(plan),
      parent_thread_id: plan.parent_thread_id,
      project_path: env.projectPath,
      depth: plan.limits.depth,
    };
  }

  listens(event: HookEvent): boolean {
    return this.#listened.has(event);
  }

  async control(
    event: ControlEvent,
    context: JsonObject,
    signal: AbortSignal,
  ): Promise<HookDecision> {
    return this.#noticed(
      await dispatchControl(this.#hooks, this.#call(event, context), this.#dispatch(signal)),
    );
  }

  async observe(
    event: ObservedEvent,
    context: JsonObject,
    signal: AbortSignal,
  ): Promise<HookReport> {
    return this.#noticed(
      await dispatchObserving(this.#hooks, this.#call(event, context), this.#dispatch(signal)),
    );
  }

  async gate(
    context: JsonObject,
    signal: AbortSignal,
    views?: readonly CallView[],
  ): Promise<GateDecision> {
    return await dispatchControl(
      this.#hooks,
      { ...this.#call('tool_gate', context), views },
      this.#dispatch(signal),
    );
  }

  gatesPaths(): boolean {
    return this.#hooks.some(
      ({ event, enabled, condition, actions }) =>
        enabled &&
        event === 'tool_gate' &&
        (readsFiles(condition) || actions.some(({ kind }) => kind === 'item')),
    );
  }

  /** `thread_started` or `thread_continued`: text for the model around the directive. */
  async opening(
    event: 'thread_started' | 'thread_continued',
    context: JsonObject,
    signal: AbortSignal,
  ): Promise<ContextReport> {
    const { plan } = this.#options;
    const { id, description, category } = plan.directive;
    const call = this.#call(event, {
      directive_body: [id, description, plan.body].join('\n'),
      limits: { ...plan.limits },
      category,
      spend_limit: plan.limits.spend,
      max_turns: plan.limits.turns,
      capabilities_summary: plan.capabilities.join(', '),
      ...context,
    });
    return this.#noticed(await dispatchContext(this.#hooks, call, this.#dispatch(signal)));
  }

  /** `before_compact`: whether there is to be a summary, whose, and what it is to attend to. */
  async beforeCompact(context: JsonObject, signal: AbortSignal): Promise<CompactReport> {
    const call = this.#call('before_compact', context);
    return await dispatchBeforeCompact(this.#hooks, call, this.#dispatch(signal));
  }

  /** `after_complete`: what the hooks left for the log. Bounded by each hook's own timeout, never cancelled. */
  async observeAfterComplete(context: JsonObject): Promise<readonly EventDraft[]> {
    return await this.#observed('after_complete', context);
  }

  /** `child_finished`: what the hooks left for the log. */
  async observeChild(context: JsonObject): Promise<readonly EventDraft[]> {
    return await this.#observed('child_finished', context);
  }

  /** Returns whether `after_complete` hooks do nothing, only `emit` marks for the log, or have other effects. */
  completion(): 'none' | 'marks' | 'acts' {
    if (!this.listens('after_complete')) return 'none';
    const isMark = this.#hooks.every(
      ({ event, enabled, actions }) =>
        !enabled || event !== 'after_complete' || actions.every(({ kind }) => kind === 'emit'),
    );
    return isMark ? 'marks' : 'acts';
  }

  /** `delivery`: what the hooks left for the conversation and the log. */
  async observeDelivery(context: JsonObject): Promise<readonly EventDraft[]> {
    return await this.#observed('delivery', context);
  }

  /** True if an `after_complete` hook may start a child thread, which needs this thread's open budget. */
  spendsAfterCompletion(): boolean {
    return this.#hooks.some(
      ({ event, enabled, actions }) =>
        enabled &&
        event === 'after_complete' &&
        actions.some((action) => action.kind === 'item' && action.primary === 'execute'),
    );
  }

  async #observed(event: HookEvent, context: JsonObject): Promise<readonly EventDraft[]> {
    const { fired, drafts } = this.#noticed(
      await dispatchObserving(
        this.#hooks,
        this.#call(event, context),
        this.#dispatch(new AbortController().signal),
      ),
    );
    return [...fired.map(firedDraft), ...drafts];
  }

  /** Notifies the person once about each hook that failed, except those that the plan warned about. */
  #noticed<T extends { readonly fired: readonly Fired[] }>(report: T): T {
    const { env, plan } = this.#options;
    for (const { id, event, outcome, error } of report.fired) {
      if (outcome !== 'failed' && outcome !== 'timeout') continue;
      const isKnown =
        this.#failed.has(id) ||
        plan.warnings.some((warning) => warning.startsWith(`hook ${id} cannot run:`));
      this.#failed.add(id);
      if (!isKnown) env.onNotice(`hook ${id} on ${event} failed: ${error ?? outcome}`);
    }
    return report;
  }

  get #hooks(): readonly HookDeclaration[] {
    return this.#options.plan.hooks;
  }

  #call(event: HookEvent, context: JsonObject) {
    return { event, context: compact({ ...this.#base, ...context }) as JsonObject };
  }

  #dispatch(signal: AbortSignal): DispatchOptions {
    const { env, plan } = this.#options;
    return {
      clock: env.clock,
      signal,
      suppress: plan.suppress,
      runAction: async (hook, action, context, hookSignal) =>
        await this.#run({ hook, context, signal: hookSignal }, action),
    };
  }

  async #run(running: Running, action: ItemAction): Promise<ActionOutcome> {
    this.#authorize(running.hook, action);
    const { primary, item_type: type, item_id: id, params } = action;
    if (primary === 'sign')
      return await this.#runTool(running, 'rye/sign', { item_type: type, item_id: id });
    if (primary === 'fetch' || type === 'knowledge') return await this.#loadBody(action);
    if (type === 'directive') return await this.#runDirective(running, action);
    return await this.#runTool(running, id, params);
  }

  #authorize(hook: HookDeclaration, { primary, item_type, item_id }: ItemAction): void {
    const need = { verb: primary, item_type, item_id };
    if (mayRun(hook, this.#options.plan.capabilities, need)) return;
    throw hookDenied(hook, capabilityOf(need));
  }

  async #loadBody({ item_type: type, item_id: id }: ItemAction): Promise<ActionOutcome> {
    const item = await this.#options.env.items.load(type, id, 'context');
    if (type !== 'knowledge') return { content: item.text };
    const { body, name, category } = knowledge.getOrMake(`${item.sha256} ${item.path}`, () =>
      parseKnowledge(item.text, item.path),
    );
    assertIdentity(item, { name, category });
    return { content: body.trim(), ...(name === undefined ? {} : { name }) };
  }

  async #runDirective(
    { hook, context, signal }: Running,
    { item_id: directiveId, params: inputs }: ItemAction,
  ): Promise<ActionOutcome> {
    const { asks, tools } = this.#options;
    if (asks) {
      // as a model would call it, so that one rule applies to both
      const tool = await tools.tool('rye/execute');
      const input = { item_type: 'directive', item_id: directiveId, parameters: inputs };
      const need = { verb: 'execute', item_type: 'directive', item_id: directiveId } as const;
      await asks.refuseAsked(hook, { tool, input, need, context });
    }
    const { capabilities: hookCapabilities } = hook;
    const request = { directiveId, inputs, ...(hookCapabilities ? { hookCapabilities } : {}) };
    const result = await this.#options.children.runForHook(request, signal);
    const { waiting_for: waits, thread_id: child } = result;
    if (waits !== undefined) throw await this.#giveUp(hook, { threads: [child], owned: true });
    if (!result.success) {
      throw new RyeError(
        'hook_failed',
        `thread ${result.thread_id} ended as ${result.status}: ${result.error?.message ?? ''}`,
      );
    }
    return { content: result.result, ...(result.outputs ? { data: result.outputs } : {}) };
  }

  /** Ends threads of a hook that wait for people, if it has started them: nothing would take their results. */
  async #giveUp(
    hook: HookDeclaration,
    { threads, owned = false }: Pick<AwaitedThreads, 'threads'> & { readonly owned?: boolean },
  ): Promise<RyeError> {
    for (const threadId of owned ? threads : []) await this.#options.children.withdraw(threadId);
    return needsPerson(hook, `what thread ${threads.join(', ')} wants to do`);
  }

  /** Runs a tool with the same order as the loop: validated, allowed, intent in the log, effect, outcome in the log. */
  async #runTool(
    { hook, context, signal }: Running,
    id: string,
    params: JsonObject,
  ): Promise<ActionOutcome> {
    const { tools, recorder, threadId, callPrefix, env, asks } = this.#options;
    const tool = await tools.tool(id);
    const validation = await tools.validate(tool.inputSchema, params);
    if (!validation.ok)
      throw new RyeError(
        'invalid_input',
        `the parameters of ${id} are wrong: ${validation.problems}`,
      );
    const { input } = validation;
    const need = tool.need?.(input) ?? { verb: 'execute', item_type: 'tool', item_id: id };
    await asks?.refuseAsked(hook, { tool, input, need, context });
    this.#calls += 1;
    const callId = `${callPrefix}${this.#calls}`;
    const start = env.clock.monotonic();
    recorder.record([
      {
        event_type: 'tool_call_start',
        payload: { call_id: callId, tool: id, name: id, input, turn: 0 },
        durable: !tool.traits.reads_only,
      },
    ]);
    await recorder.settled();
    const output = await tool.execute(input, {
      callId,
      threadId,
      projectPath: workFolder(env, this.#options.plan),
      signal,
      progress: () => undefined,
    });
    const gaveUp = output.waiting && (await this.#giveUp(hook, output.waiting));
    const text = gaveUp?.message ?? textOf(output.content);
    recorder.record([
      {
        event_type: 'tool_settled',
        payload: {
          call_id: callId,
          tool: id,
          outcome: gaveUp || output.is_error ? 'error' : 'ok',
          duration_ms: Math.round(env.clock.monotonic() - start),
          output_bytes: Buffer.byteLength(text),
        },
      },
    ]);
    if (gaveUp) throw gaveUp;
    if (output.is_error) throw new RyeError('tool_failed', text);
    return { content: text, ...(output.data ? { data: output.data } : {}) };
  }
}

/** The log record of one hook. */
export function firedDraft(fired: Fired): EventDraft {
  return { event_type: 'hook_fired', payload: fired };
}

function openInputs({ inputs, secret_inputs: secrets }: ThreadPlan): JsonObject {
  return Object.fromEntries(Object.entries(inputs).filter(([name]) => !secrets.includes(name)));
}

function hookDenied({ id, layer, origin }: HookDeclaration, capability: string): RyeError {
  return new RyeError(
    'capability_denied',
    `hook ${id} needs ${capability}, which neither its thread nor its file may use`,
    {
      hint:
        layer === PROJECT_LAYER
          ? `Add it to project_capabilities in ~/.ai/config/agent/hooks.yaml, or remove the hook at ${origin}.`
          : `Grant it in the directive's <permissions>, or remove the hook at ${origin}.`,
    },
  );
}

const PROJECT_LAYER = 3;

/** Entries that hooks load for each thread, by their hash and path. */
const knowledge = new LruMap<string, Knowledge>(16);
