import type { EventDraft } from '../../core/events.ts';
import { injectedMessage, type Message, userText } from '../../core/message.ts';
import type { ContextBlock, ThreadPlan } from '../../core/plan.ts';
import type { Cost } from '../../core/usage.ts';
import { joinContents } from '../../hooks/dispatch.ts';
import { buildTree, type SessionTree } from '../../log/tree.ts';
import type { LoopPorts, PendingCalls } from '../../loop/ports.ts';
import type { ToolDefinition } from '../../providers/provider.ts';
import type { LogHold, LogWriter } from '../../storage/store.ts';
import type { ContinuedPath, OpenTools, Sources, Stored } from '../ports.ts';
import { readSigned } from '../verified-log.ts';
import type { ApprovalHistory } from './approval-history.ts';
import { firedDraft, type HookRunner } from './hook-runner.ts';
import type { Recorder } from './recorder.ts';
import type { StartedThread } from './start.ts';

export interface OpeningRequest {
  readonly plan: ThreadPlan;
  readonly hooks: HookRunner;
  readonly tools: OpenTools;
  readonly signal: AbortSignal;
}

export interface Opening {
  /** Sent byte-identical on every turn. */
  readonly system: string;
  readonly drafts: readonly EventDraft[];
  /** The message that starts the run, which follows the messages that waited for the thread. */
  readonly lastDrafts?: readonly EventDraft[];
  readonly messages: readonly Message[];
  /** Recorded definitions that are sent as they are, before what the tools offer beyond them. */
  readonly tools?: readonly ToolDefinition[];
  readonly pending?: PendingCalls;
  /** The text of an interrupted answer that the run continues. */
  readonly cutText?: string;
}

/** A start other than a directive's first message: a thread that continues an earlier one or itself. */
export interface Conversation {
  /** Holds the thread's own log, which is opened again; absent: a log is created. */
  readonly hold?: LogHold | undefined;
  /** The cost of the thread's earlier runs. */
  readonly spent?: Cost | undefined;
  /** The requests for decisions of the thread's earlier runs. */
  readonly approvals?: ApprovalHistory | undefined;
  open(parts: ConversationParts): Promise<Opening>;
}

export interface ConversationParts extends OpeningRequest {
  readonly recorder: Recorder;
  /** Writes entries that subscribers are not shown. */
  readonly writer: LogWriter;
}

/**
 * Renders the system text and the first user message once: hook text before, context before, the directive, context
 * after, hook text after. What is rendered is recorded, so that later turns and a resume send the same bytes.
 */
export async function openingMessages({
  plan,
  hooks,
  tools,
  signal,
}: OpeningRequest): Promise<Opening> {
  const report = await hooks.opening('thread_started', {}, signal);
  if (report.failure) throw report.failure;
  const { text: system, tools: definitions } = systemPrompt(plan, tools);
  const parts = [
    joinContents(report.contents, 'before'),
    directiveText(plan),
    joinContents(report.contents, 'after'),
  ];
  const message = userText(parts.filter((part) => part !== '').join('\n\n'));
  const drafts: EventDraft[] = [
    ...report.fired.map(firedDraft),
    ...report.drafts,
    { event_type: 'system_prompt', payload: { text: system, tools: definitions } },
    ...injectedDrafts([...plan.context, ...report.contents]),
    { event_type: 'message', payload: { message } },
  ];
  return { system, drafts, messages: [message] };
}

/** Returns the system text of a plan, and the definitions of the tools that are offered with it. */
export function systemPrompt(plan: ThreadPlan, tools: OpenTools) {
  const text = [joinContents(plan.context, 'system'), tools.catalog()]
    .filter((part) => part !== '')
    .join('\n\n');
  const definitions = tools
    .definitions()
    .tools.map(({ name, description, input_schema }) => ({ name, description, input_schema }));
  return { text, tools: definitions };
}

/** Returns the directive's text with the knowledge before and after it. */
export function directiveText({ context, prompt }: ThreadPlan): string {
  return [joinContents(context, 'before'), prompt, joinContents(context, 'after')]
    .filter((part) => part !== '')
    .join('\n\n');
}

/**
 * Returns events that name the source of each piece of the context; its text is in the message and the system prompt.
 */
export function injectedDrafts(blocks: readonly ContextBlock[]): EventDraft[] {
  return (['system', 'before', 'after'] as const).flatMap((position): EventDraft[] => {
    const here = blocks.filter((block) => block.position === position);
    if (here.length === 0) return [];
    return [
      {
        event_type: 'context_injected',
        payload: {
          position,
          blocks: here.map(({ id, source, content }) => ({ id, source, content })),
        },
      },
    ];
  });
}

/** Returns the messages that drafts add to the conversation. */
export function messagesOf(drafts: readonly EventDraft[]): readonly Message[] {
  return drafts.flatMap((draft): readonly Message[] => {
    if (draft.event_type === 'message') return [draft.payload.message];
    return draft.event_type === 'custom_message' ? [injectedMessage(draft.payload)] : [];
  });
}

const NO_PATH: ContinuedPath = { leafId: null };

function headOf(tree: SessionTree): ContinuedPath {
  return { tree, leafId: tree.leafId };
}

/**
 * Returns the loop's view of a thread's stream rules; empty if none watch. A thread that continues a path, by default
 * that to the head of its log, remembers what the path injected.
 */
export async function watchRules(
  env: Stored & Pick<Sources, 'rules'>,
  { threadId, plan }: StartedThread,
  path: boolean | ContinuedPath,
): Promise<Pick<LoopPorts, 'watchStream' | 'noteMessage'>> {
  if (!plan.rules || plan.rules.stream.length === 0) return {};
  return env.rules.watch(
    plan,
    path === true ? headOf(buildTree(await readSigned(env, threadId))) : path || NO_PATH,
  );
}
