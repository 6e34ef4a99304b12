import { messageOf } from '../../core/errors.ts';
import type { EventDraft } from '../../core/events.ts';
import type { JsonObject } from '../../core/json.ts';
import { type Message, type ToolCallBlock, textOf, userText } from '../../core/message.ts';
import type { PlannedModel, ThreadPlan } from '../../core/plan.ts';
import type { Cost } from '../../core/usage.ts';
import { joinContents } from '../../hooks/dispatch.ts';
import { resolveInputs } from '../../items/inputs.ts';
import { interpolateText } from '../../items/prompt.ts';
import { foldContext } from '../../log/context.ts';
import type { CarriedContext } from '../../log/continuation.ts';
import { CONTINUE_DRAFT, isBetweenParts, isInterruption } from '../../log/interruption.ts';
import { type AwaitedCall, type CallFate, unfinishedCalls } from '../../log/open-calls.ts';
import type { SessionTree } from '../../log/tree.ts';
import type { ProviderTraits, ToolDefinition } from '../../providers/provider.ts';
import type { LogHold, LogWriter } from '../../storage/store.ts';
import type { Configured, OpenTools, Preparation, Process, Sources } from '../ports.ts';
import { resolveDirective } from '../prepare/directive.ts';
import type { ApprovalHistory } from '../run/approval-history.ts';
import { firedDraft } from '../run/hook-runner.ts';
import {
  type Conversation,
  type ConversationParts,
  directiveText,
  injectedDrafts,
  messagesOf,
  systemPrompt,
} from '../run/opening.ts';

const SHIPPED = 'rye/agent/continuation';

/** The knowledge with which a thread is told that it carries out a directive; a conversation has none. */
const INSTRUCTION = 'ctx_directive_instruction';

/**
 * Returns what makes the model continue where a run stopped, unless a person writes something: the message, or the text of
 * the interrupted answer that it has to finish. A directive that names its own continuation is told that.
 */
export async function continuationOf(
  env: Parameters<typeof continuationMessage>[0],
  facts: ContinuationFacts,
  { cutText, last }: { readonly cutText: string | undefined; readonly last: Message | undefined },
): Promise<Pick<ContinuedConversation, 'message' | 'cutText'>> {
  const { continuation_directive: own, suppress } = facts.plan;
  if (own === null || own === SHIPPED) {
    if (cutText !== undefined) return { message: undefined, cutText };
    // what a conversation was asked or has looked up is all that it needs
    const isConversation = suppress.includes(INSTRUCTION);
    if (isConversation && last?.role !== 'assistant') return { message: undefined };
    if (isConversation) return { message: 'Continue where you stopped.' };
  }
  return { message: await continuationMessage(env, facts) };
}

/** Returns the text of the interrupted answer at the end of a path; undefined if it ends otherwise. */
export function interruptedText(tree: SessionTree, leafId: string | null): string | undefined {
  const { messages, sources } = foldContext(tree, { leafId });
  const entryAt = (place: number) => tree.byId.get(sources[place] ?? '');
  let at = sources.length - 1;
  if (!isInterruption(entryAt(at))) return undefined;
  let text = '';
  while (isBetweenParts(entryAt(at))) {
    while (isBetweenParts(entryAt(at))) at -= 1;
    const part = messages[at];
    if (part?.role !== 'assistant') break;
    text = textOf(part.content) + text;
    at -= 1;
  }
  return text;
}

export interface ContinuationFacts {
  readonly plan: ThreadPlan;
  readonly previousThreadId: string;
  /** The reason of the continuation, as one sentence for the model. */
  readonly reason: string;
}

/**
 * Returns the message that starts a successor: the body of the directive's continuation directive, else of the shipped
 * one. Falls back to the reason alone, because a thread must not fail for its wording.
 */
export async function continuationMessage(
  env: Configured &
    Pick<Sources, 'items'> &
    Pick<Preparation, 'environment'> &
    Pick<Process, 'onNotice'>,
  { plan, previousThreadId, reason }: ContinuationFacts,
): Promise<string> {
  const directiveId = plan.continuation_directive ?? SHIPPED;
  const facts: JsonObject = {
    original_directive: plan.directive.id,
    original_directive_body: plan.body,
    previous_thread_id: previousThreadId,
    continuation_message: reason,
  };
  try {
    const config = env.config;
    const { composed } = await resolveDirective(env.items, config, { directiveId, inputs: facts });
    const declared = new Set(composed.inputs.map(({ name }) => name));
    const given = Object.entries(facts).filter(([name]) => declared.has(name));
    const { values, secretNames } = resolveInputs(composed.inputs, Object.fromEntries(given));
    const scope = {
      inputs: values,
      secretNames,
      env: env.environment,
      envAllow: config.envAllow,
    };
    return interpolateText(composed.body, scope).value.trim();
  } catch (error) {
    env.onNotice(`the continuation directive ${directiveId} is not used: ${messageOf(error)}`);
    return reason;
  }
}

/** Entries that are appended at once when a conversation is copied. */
const CHUNK = 500;

const LOST_FATES: readonly CallFate[] = [
  'interrupted',
  'result_lost',
  'awaiting_approval',
  'awaiting_threads',
];
const UNSTARTED_FATES: readonly CallFate[] = [...LOST_FATES, 'not_started'];

/** The beginning of a run that follows a refreshed plan. */
export interface RefreshedStart {
  /** True if the directive reads differently, so that the model is told it again. */
  readonly isTold: boolean;
  /** Entries that set the model. */
  readonly entries: readonly EventDraft[];
}

export interface ContinuedConversation {
  /** Holds the thread's own log if this is its next run; absent for a successor. */
  readonly hold?: LogHold;
  /** The cost of the thread's earlier runs. */
  readonly spent?: Cost;
  readonly approvals?: ApprovalHistory;
  /** Written before anything else: `run_started` and what belongs to it. Absent for a successor. */
  readonly begin?: readonly EventDraft[];
  /** Written by a successor after the conversation that it takes along. */
  readonly continued?: readonly EventDraft[];
  /** Set if the run follows a refreshed plan. */
  readonly refreshed?: RefreshedStart | undefined;
  readonly previousThreadId: string;
  readonly traits: (model: PlannedModel) => ProviderTraits;
  /** Calls that were started and wait for threads of this one's family, by their ids; absent: none. */
  readonly awaited?: ReadonlyMap<string, AwaitedCall>;
  /** The messages so far, to see what was interrupted. */
  readonly messages: readonly Message[];
  /** The entries before the new messages, without the results of `rerun` calls. */
  readonly carry: (rerun: ReadonlySet<string>) => CarriedContext;
  /** The message to the model: the caller's text, or that of the continuation directive; undefined for none. */
  readonly message: string | undefined;
  /** The text of an interrupted answer that the model shall continue; absent: none. */
  readonly cutText?: string | undefined;
  /** Called once the log holds the context: links the threads. */
  readonly onCarried?: () => Promise<void>;
}

/**
 * The beginning of the next run of a thread, or of a successor: what precedes it, the text of the `thread_continued` hooks,
 * then a message. Calls of idempotent tools that a crash interrupted are run again before the model is asked; a
 * replayable provider, which cannot judge, also makes those that it never started. Calls that wait for a person are made
 * once they agree, and those that wait for threads continue.
 */
export function continuedConversation(facts: ContinuedConversation): Conversation {
  const { hold, spent, approvals, begin, continued = [], refreshed, message, cutText } = facts;
  const { awaited = new Map<string, AwaitedCall>() } = facts;
  const previous = { previous_thread_id: facts.previousThreadId };
  return {
    hold,
    spent,
    approvals,
    open: async (parts) => {
      const { recorder } = parts;
      if (begin) recorder.record(begin);
      const fates = facts.traits(parts.plan.model).replayable ? UNSTARTED_FATES : LOST_FATES;
      const found = unfinishedCalls(facts.messages, fates);
      const rerun = await rerunnable(parts.tools, found, awaited);
      const carried = facts.carry(new Set(rerun?.callIds));
      appendAll(parts.writer, carried.drafts);
      await recorder.checkpoint();
      await facts.onCarried?.();
      if (!begin) {
        recorder.record([{ event_type: 'thread_continued', payload: previous }, ...continued]);
      }
      const recorded = refreshed
        ? beginRefreshed(parts, refreshed)
        : {
            system: systemNow(parts, carried),
            tools: carried.tools as unknown as readonly ToolDefinition[],
          };
      const told = refreshed?.isTold === true ? [REPLACED, directiveText(parts.plan)] : [];
      const { before, text } = await continuedDrafts(parts, previous, [...told, message ?? '']);
      const lastDrafts = [...text, ...(cutText === undefined ? [] : [CONTINUE_DRAFT])];
      if (rerun) {
        const pending = { answer: rerun.answer, after: [...before, ...lastDrafts], awaited };
        return { ...recorded, drafts: [], messages: carried.messages, pending };
      }
      const messages = [...carried.messages, ...messagesOf(before)];
      const cut = cutText === undefined ? {} : { cutText };
      return { ...recorded, drafts: before, lastDrafts, messages, ...cut };
    },
  };
}

/** Returns the recorded system text. Adds what the plan has beyond it, such as rules in force now, and records both. */
function systemNow(
  { plan, recorder }: ConversationParts,
  { system, tools }: Pick<CarriedContext, 'system' | 'tools'>,
): string {
  const added = plan.context.filter(
    ({ position, content }) => position === 'system' && !system.includes(content),
  );
  if (added.length === 0) return system;
  const text = [system, joinContents(added, 'system')].filter((part) => part !== '').join('\n\n');
  recorder.record([
    { event_type: 'system_prompt', payload: { text, tools } },
    ...injectedDrafts(added),
  ]);
  return text;
}

/** Precedes the directive of a refreshed plan. */
const REPLACED = 'The task of this thread was changed. This text replaces the earlier one:';

/** Records the settings, the system text and the tools of a refreshed plan, which replace the recorded ones from here on. */
function beginRefreshed(
  { plan, tools, recorder }: ConversationParts,
  { isTold, entries }: RefreshedStart,
): { readonly system: string; readonly tools: readonly ToolDefinition[] } {
  const { text, tools: definitions } = systemPrompt(plan, tools);
  recorder.record([
    ...entries,
    { event_type: 'system_prompt', payload: { text, tools: definitions } },
    ...injectedDrafts(plan.context.filter(({ position }) => isTold || position === 'system')),
  ]);
  return { system: text, tools: definitions };
}

/** Returns the entries of the `thread_continued` hooks, and the message with the hooks' text around it. */
async function continuedDrafts(
  { hooks, signal }: ConversationParts,
  previous: JsonObject,
  message: readonly string[],
): Promise<{ readonly before: readonly EventDraft[]; readonly text: readonly EventDraft[] }> {
  const report = await hooks.opening('thread_continued', previous, signal);
  if (report.failure) throw report.failure;
  const text = [
    joinContents(report.contents, 'before'),
    ...message,
    joinContents(report.contents, 'after'),
  ]
    .filter((part) => part !== '')
    .join('\n\n');
  return {
    before: [...report.fired.map(firedDraft), ...report.drafts],
    text: text === '' ? [] : [{ event_type: 'message', payload: { message: userText(text) } }],
  };
}

/** Appends a copied conversation. Subscribers are not shown again what they saw in the original. */
export function appendAll(writer: LogWriter, drafts: readonly EventDraft[]): void {
  for (let start = 0; start < drafts.length; start += CHUNK) {
    writer.append(drafts.slice(start, start + CHUNK));
  }
}

/** The calls of the last answer that may be run again: never started, as good twice as once, or waiting for threads. */
async function rerunnable(
  tools: OpenTools,
  found: ReturnType<typeof unfinishedCalls>,
  awaited: ReadonlyMap<string, AwaitedCall>,
) {
  if (!found) return undefined;
  const content: ToolCallBlock[] = [];
  for (const { call, fate } of found.calls) {
    if (fate === 'awaiting_threads') {
      if (awaited.has(call.call_id)) content.push(call);
      continue;
    }
    const resolution = await tools.set.resolve(call.name, call.input);
    const isIdempotent = resolution.kind === 'resolved' && resolution.call.tool.traits.idempotent;
    const mayRun = fate === 'not_started' || fate === 'awaiting_approval';
    if (mayRun || isIdempotent) content.push(call);
  }
  if (content.length === 0) return undefined;
  return {
    callIds: content.map(({ call_id }) => call_id),
    answer: { ...found.answer, content },
  };
}
