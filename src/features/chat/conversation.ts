import type { ApprovalAttendant } from '../../kernel/app/api/approvals.ts';
import type { ExecuteDirectiveRequest, Rye } from '../../kernel/app/api/rye.ts';
import type {
  ResumeThreadRequest,
  SentDelivery,
  ThreadDetails,
} from '../../kernel/app/api/threads.ts';
import { messageLimits, withoutSpend } from '../../kernel/app/message-limits.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../kernel/core/events.ts';
import { compact } from '../../kernel/core/json.ts';
import type { PartialLimits } from '../../kernel/core/limits.ts';
import type { ThreadResult } from '../../kernel/core/thread.ts';
import { payloadOf } from './items.ts';

type ConversationRye = Pick<Rye, 'threads' | 'recovery' | 'deliveries' | 'trees'>;
type RunEvent = LogEvent | UnknownEvent;

export interface ConversationOptions {
  readonly rye: ConversationRye;
  /** Returns the request that starts the thread. `message` is undefined if the directive starts without one. */
  readonly begin: (message: string | undefined) => ExecuteDirectiveRequest;
  /** True if the directive starts without a message; default: false. */
  readonly beginsAlone?: boolean;
  /** Options of every later run. */
  readonly resume?: Pick<ResumeThreadRequest, 'secrets' | 'allowUnsigned'>;
  /** Limits of a message that the command line sets; `spend` is granted once. */
  readonly limits?: PartialLimits;
  /** Takes the conversation of a thread for this process. Throws `thread_locked`. */
  readonly lock: (threadId: string) => ConversationLock;
  readonly onEvent: (event: RunEvent) => void;
}

interface ConversationLock {
  assertHeld(): void;
  release(): void;
}

/** A message that waits for the thread. */
export interface QueuedMessage {
  /** ID of its delivery. */
  readonly id: string;
  readonly seq: number;
  readonly text: string;
}

interface WantedModel {
  readonly model: string;
  readonly provider?: string;
}

/**
 * One thread that a person talks with: the first message starts it, each further one is a run of it. A message that is
 * sent while a run is under way becomes a delivery to that run.
 */
export class Conversation {
  readonly #options: ConversationOptions;
  #threadId: string | undefined;
  #lock: ConversationLock | undefined;
  #grants: PartialLimits = {};
  #spend: number | undefined;
  #model: WantedModel | undefined;
  /** The next message takes the place of the first one. */
  #restarts = false;
  #run: AbortController | undefined;
  /** The model of the next run, as far as it is known. */
  #modelName: string | undefined;

  constructor(options: ConversationOptions) {
    this.#options = options;
  }

  /** The thread, once it has started. */
  get threadId(): string | undefined {
    return this.#threadId;
  }

  /** The model that answers next, as a run or a person named it last. */
  get modelName(): string | undefined {
    return this.#modelName;
  }

  /** True if a run without a message comes before the next message: that with which the directive starts. */
  get beginsAlone(): boolean {
    return this.#threadId === undefined && this.#options.beginsAlone === true;
  }

  get isRunning(): boolean {
    return this.#run !== undefined;
  }

  /** Continues an existing thread. Throws `thread_locked` if another chat has it, or if it runs. */
  async open(threadId: string): Promise<ThreadDetails> {
    const { rye, limits = {}, lock } = this.#options;
    this.#lock = lock(threadId);
    let details = await rye.threads.show(threadId);
    if (details.thread.status === 'running' && details.explanation !== null) {
      // it crashed: what its log proves counts from here on
      await rye.recovery.recover({ threadId });
      details = await rye.threads.show(threadId);
    }
    if (details.thread.status === 'running') {
      throw new RyeError('thread_locked', `thread ${threadId} is running in another process`, {
        hint: `Follow it with \`rye threads logs ${threadId} --follow\`, or stop it with \`rye threads cancel ${threadId}\`.`,
        details: { thread_id: threadId, pid: details.thread.pid },
      });
    }
    this.#threadId = threadId;
    this.#modelName = details.document?.model;
    const { spend, ...rest } = limits;
    this.#spend = spend;
    this.#grants = { ...messageLimits(details), ...rest };
    return details;
  }

  /**
   * Runs one message to its end. Without a message, the thread continues where it stopped. `attendant` decides about its
   * calls; without one, a call that asks suspends the thread.
   */
  async send(message?: string, attendant?: ApprovalAttendant): Promise<ThreadResult> {
    if (this.#run) throw new RyeError('internal', 'a message is already being answered');
    const run = new AbortController();
    this.#run = run;
    try {
      const subscriber = compact({ signal: run.signal, onEvent: this.#seen, attendant });
      if (this.#threadId === undefined) return await this.#begin(message, subscriber);
      return await this.#resume(this.#threadId, message, subscriber);
    } finally {
      this.#run = undefined;
    }
  }

  /** Sends a message to the run that is under way. */
  async steer(message: string): Promise<SentDelivery> {
    if (this.#threadId === undefined) {
      throw new RyeError('illegal_transition', 'the thread has not started yet', {
        hint: 'Send the message again in a moment.',
      });
    }
    return await this.#options.rye.deliveries.send(this.#threadId, message);
  }

  /** Returns how many messages wait for the thread. */
  async waiting(): Promise<number> {
    if (this.#threadId === undefined) return 0;
    const listed = await this.#options.rye.deliveries.list(this.#threadId);
    return listed.filter(({ state }) => state === 'queued').length;
  }

  /** Returns the messages of people that wait for the thread, in their order. */
  async queued(): Promise<readonly QueuedMessage[]> {
    if (this.#threadId === undefined) return [];
    const listed = await this.#options.rye.deliveries.list(this.#threadId);
    return listed
      .filter((one) => one.state === 'queued' && one.class === 'person' && one.entry_id === null)
      .map(({ delivery_id, seq, text }) => ({ id: delivery_id, seq, text }));
  }

  /** Takes back a message that waits; false if the thread has got it, or gets it now. */
  async withdraw({ seq }: QueuedMessage): Promise<boolean> {
    if (this.#threadId === undefined) return false;
    try {
      await this.#options.rye.deliveries.resolve(this.#threadId, seq, 'dropped');
      return true;
    } catch {
      return false;
    }
  }

  /** Stops the run that is under way; the thread can be continued. */
  interrupt(reason = 'interrupted by Ctrl-C'): void {
    this.#run?.abort(reason);
  }

  /** Selects the model of the next run. Throws for one that the thread could not use. */
  async useModel(wanted: WantedModel): Promise<void> {
    const { rye, begin } = this.#options;
    if (this.#threadId !== undefined) await rye.trees.changeModel(this.#threadId, wanted);
    // the plan needs some message, and does not depend on it
    else await rye.threads.plan({ ...begin('?'), ...wanted });
    // a conversation that is started later has it too
    this.#model = wanted;
    this.#modelName = wanted.model;
  }

  /** Allows the next message to spend this much more, in USD. */
  allowSpend(usd: number): void {
    this.#spend = usd;
  }

  /** True if the next message takes the place of the first one: it is in the log before its run begins. */
  get restarts(): boolean {
    return this.#restarts;
  }

  /** Makes the next message take the place of the first one, on a new branch. */
  restart(): void {
    this.#restarts = true;
  }

  /** Ends the conversation in this thread. The next message starts another one. */
  leave(): void {
    this.#lock?.release();
    this.#lock = undefined;
    this.#threadId = undefined;
    this.#grants = {};
    this.#restarts = false;
    this.#modelName = this.#model?.model;
  }

  async #begin(message: string | undefined, subscriber: Subscriber): Promise<ThreadResult> {
    const { rye, begin, limits } = this.#options;
    const given = compact({ ...limits, spend: this.#spend ?? limits?.spend });
    const request = { ...begin(message), limits: given, ...this.#model };
    const result = await rye.threads.execute({ ...request, ...subscriber });
    this.#spend = undefined;
    return result;
  }

  async #resume(
    threadId: string,
    message: string | undefined,
    subscriber: Subscriber,
  ): Promise<ThreadResult> {
    const { rye, resume } = this.#options;
    this.#lock?.assertHeld();
    const limits = compact({ ...this.#grants, spend: this.#spend });
    if (this.#restarts) await rye.trees.branch(threadId, compact({ at: 'root', message }));
    const request = compact({
      ...resume,
      threadId,
      message: this.#restarts ? undefined : message,
      limits,
    });
    this.#restarts = false;
    const result = await rye.recovery.resume({ ...request, ...subscriber });
    this.#spend = undefined;
    return result;
  }

  /** A subscriber must not throw, and no other process has a reason to talk in a new thread. */
  #lockNew(threadId: string): ConversationLock | undefined {
    try {
      return this.#options.lock(threadId);
    } catch {
      return undefined;
    }
  }

  readonly #seen = (event: RunEvent): void => {
    const started = payloadOf(event, 'thread_started');
    const named = started ?? payloadOf(event, 'run_started') ?? payloadOf(event, 'model_change');
    this.#modelName = named?.model ?? this.#modelName;
    if (started !== undefined && this.#threadId === undefined) {
      this.#threadId = event.thread_id;
      this.#grants = withoutSpend(started.limits);
      this.#lock = this.#lockNew(event.thread_id);
    }
    this.#options.onEvent(event);
  };
}

interface Subscriber {
  readonly signal: AbortSignal;
  readonly onEvent: (event: RunEvent) => void;
  readonly attendant?: ApprovalAttendant;
}
