import type { ErrorInfo } from '../../core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import type { JsonObject } from '../../core/json.ts';
import type { PartialLimits } from '../../core/limits.ts';
import type { ToolOutcome } from '../../core/message.ts';
import type { ThreadResult } from '../../core/thread.ts';
import type { Cost } from '../../core/usage.ts';
import type { Tone } from '../../log/account.ts';
import type { ExecuteDirectiveRequest } from '../presets.ts';
import type {
  ApprovalAttendant,
  DecidedApproval,
  DecideRequest,
  ListedApproval,
} from './approvals.ts';
import type { ResumeThreadRequest, ThreadDetails } from './threads.ts';
import type { FileUndo, ManualCompaction, SessionTreeReads } from './trees.ts';

/** A conversation to begin, or a thread to continue. */
export interface ChatRequest {
  /** Default: `rye/core/chat`. */
  readonly directiveId?: string;
  /** Inputs of the directive, beside the first message. */
  readonly inputs?: JsonObject;
  /**
   * The input that takes the first message. Default: `message` for `rye/core/chat`; another directive runs with `inputs` alone
   * before the first message.
   */
  readonly messageInput?: string;
  /** The thread to continue. */
  readonly threadId?: string;
  /** Other members of the request that starts the thread. */
  readonly start?: Omit<ExecuteDirectiveRequest, 'directiveId' | 'inputs' | 'limits'>;
  /** Options of every later run. */
  readonly resume?: Pick<ResumeThreadRequest, 'secrets' | 'allowUnsigned'>;
  /** Limits of each message; `spend` is the limit of the whole conversation. */
  readonly limits?: PartialLimits;
  /** False: the items of a continued thread begin with the next message. */
  readonly hasHistory?: boolean;
  /** Called with every event of the runs, in order, once it is durable. Must not throw. */
  readonly onEvent?: (event: LogEvent | UnknownEvent) => void;
}

/** One part of a conversation as a screen shows it. It is replaced when it changes, never changed. */
export type ChatItem =
  | { readonly kind: 'user'; readonly text: string }
  | {
      readonly kind: 'assistant';
      readonly text: string;
      readonly thinking: string;
      /** `cut`: it was stopped before its end. */
      readonly state: 'streaming' | 'done' | 'cut';
    }
  | {
      readonly kind: 'call';
      readonly callId: string;
      /** The wire name. */
      readonly name: string;
      readonly input: JsonObject;
      readonly state: 'requested' | 'waiting' | 'running' | ToolOutcome;
      /** Live output while it runs, then the result; the end of long ones. */
      readonly output: string;
      /** Why it did not simply succeed. */
      readonly reason?: string;
    }
  | { readonly kind: 'notice'; readonly tone: Tone; readonly text: string };

/** The effect of an empty message: it continues a stopped answer, shows what waits for a decision, or sends what is queued. */
export type EmptyMessage = 'nothing' | 'continues' | 'decides' | 'sends';

/** The view of a conversation now. */
export interface ChatState {
  /** Absent: the thread has not started. */
  readonly threadId?: string;
  readonly isRunning: boolean;
  readonly emptyMessage: EmptyMessage;
  /** Absent: it is not known yet. */
  readonly model?: string;
  /** The cost of the thread so far. */
  readonly spent?: Cost;
  /** The spend limit of the conversation in USD. */
  readonly budget?: number;
  /** The same array over the life of the chat, which grows and whose items are replaced. */
  readonly items: readonly ChatItem[];
  /** Messages that wait for the running answer. */
  readonly queued: readonly string[];
  /** Requests of the running answer that wait for a decision in this chat. */
  readonly approvals: readonly ListedApproval[];
  /** The error of the last run. */
  readonly error?: ErrorInfo;
}

/** Called after changes, at most once for each turn of the event loop. `changed`: positions of items that are new or replaced. */
export type ChatListener = (state: ChatState, changed: ReadonlySet<number>) => void;

export interface ChatSendOptions {
  /** Decides about calls instead of {@link Chat.decide}. Called for each run. */
  readonly attendant?: () => ApprovalAttendant;
  /** Called with the result of each run. */
  readonly onResult?: (result: ThreadResult) => void;
}

/** A command of a conversation, as a help lists it. */
export interface ChatCommand {
  readonly name: ChatCommandName;
  /** The rest of the line, for the help. */
  readonly argument?: string;
  readonly summary: string;
  /** `idle`: waits for the end of an answer. */
  readonly needs: 'nothing' | 'idle';
}

export type ChatCommandName =
  | 'help'
  | 'model'
  | 'tools'
  | 'cost'
  | 'budget'
  | 'tree'
  | 'undo'
  | 'compact'
  | 'skill'
  | 'new'
  | 'quit';

/** A typed command. */
export interface ChatLine {
  readonly name: ChatCommandName;
  /** The rest of the line. */
  readonly rest: string;
}

/** A model that a conversation can use. */
export interface ChatModel {
  readonly provider: string;
  readonly model: string;
  readonly tiers: readonly string[];
  /** It answers next. */
  readonly isCurrent: boolean;
}

/** The effect of a command, for a screen to show. */
export type ChatOutcome =
  | { readonly command: 'help'; readonly commands: readonly ChatCommand[] }
  | { readonly command: 'quit' }
  | { readonly command: 'new' }
  /** `chosen` is absent for `/model` without a model: the person chooses one of `models`. */
  | { readonly command: 'model'; readonly chosen?: string; readonly models: readonly ChatModel[] }
  | {
      readonly command: 'tools';
      readonly tools: readonly { readonly name: string; readonly description: string }[];
    }
  /** `details` is absent before the thread has started. */
  | { readonly command: 'cost'; readonly details?: ThreadDetails }
  | { readonly command: 'budget'; readonly usd: number }
  /** `at` is the entry that the next message continues from. */
  | { readonly command: 'tree'; readonly tree: Awaited<ReturnType<SessionTreeReads['view']>> }
  | { readonly command: 'tree'; readonly at: string }
  /** `draft`: the text of the message that was undone. */
  | { readonly command: 'undo'; readonly draft: string; readonly undone: FileUndo }
  | { readonly command: 'compact'; readonly outcome: ManualCompaction }
  | { readonly command: 'skill'; readonly skill: string };

/**
 * A conversation in one thread, without a screen: the first message starts the thread, each further one is a run of it, and
 * a message during a run is queued for it. `rye chat` shows it at a terminal.
 */
export interface Chat {
  readonly state: ChatState;
  /** True if the directive runs without a message before the first one. */
  readonly beginsAlone: boolean;
  readonly commands: readonly ChatCommand[];
  /** Returns the function that ends the subscription. */
  readonly subscribe: (listener: ChatListener) => () => void;
  /**
   * Sends a message and resolves with the result of the last run, once also the messages are answered that came too late for
   * the run before. During a run the message is queued, and the result is undefined. Without a text, see {@link EmptyMessage}.
   */
  readonly send: (text?: string, options?: ChatSendOptions) => Promise<ThreadResult | undefined>;
  /** Decides about a request of the running answer. */
  readonly decide: (id: string, decision: Omit<DecideRequest, 'id'>) => Promise<DecidedApproval>;
  /** Stops the answer; an empty message continues it. */
  readonly interrupt: (reason?: string) => void;
  /** Takes back the queued messages that the thread has not got. */
  readonly takeBack: () => Promise<readonly string[]>;
  /** Reads a line as a command; undefined for a message. Throws `usage` for an unknown command. */
  readonly parse: (line: string) => ChatLine | undefined;
  /** Runs a command. None of it reaches the model. Throws `usage` for one that has to wait for the answer. */
  readonly run: (
    command: ChatLine,
    options?: { readonly signal?: AbortSignal },
  ) => Promise<ChatOutcome>;
  /** Selects the model of the next run. Throws for one that the thread could not use. */
  readonly useModel: (wanted: {
    readonly model: string;
    readonly provider?: string;
  }) => Promise<void>;
  /** The messages that still wait in the thread, and those that it never got. */
  readonly left: () => Promise<{
    readonly waiting: readonly string[];
    readonly lost: readonly string[];
  }>;
  /** Stops the answer and lets other processes continue the conversation. Idempotent. */
  readonly close: () => void;
}
