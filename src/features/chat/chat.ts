import type {
  ApprovalAttendant,
  DecidedApproval,
  DecideRequest,
  ListedApproval,
} from '../../kernel/app/api/approvals.ts';
import type {
  Chat,
  ChatLine,
  ChatListener,
  ChatModel,
  ChatOutcome,
  ChatRequest,
  ChatSendOptions,
  ChatState,
  EmptyMessage,
} from '../../kernel/app/api/chat.ts';
import type { ExecuteDirectiveRequest, Rye } from '../../kernel/app/api/rye.ts';
import type { ThreadDetails } from '../../kernel/app/api/threads.ts';
import { personTextOf, type TreeEntry } from '../../kernel/app/api/trees.ts';
import { CHAT_COMMANDS, chatLineOf, needsIdle } from '../../kernel/app/chat-commands.ts';
import { lockChat } from '../../kernel/app/chat-lock.ts';
import type { Clock } from '../../kernel/core/clock.ts';
import { type ErrorInfo, RyeError, toRyeError } from '../../kernel/core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../kernel/core/events.ts';
import { threadIdCandidate } from '../../kernel/core/ids.ts';
import { compact, type JsonObject, toText } from '../../kernel/core/json.ts';
import { userText } from '../../kernel/core/message.ts';
import type { ThreadResult } from '../../kernel/core/thread.ts';
import type { Cost } from '../../kernel/core/usage.ts';
import { Conversation } from './conversation.ts';
import { ChatItems, payloadOf } from './items.ts';
import { MessageQueue } from './message-queue.ts';

const DIRECTIVE = 'rye/core/chat';

type ChatRye = Pick<
  Rye,
  'threads' | 'recovery' | 'deliveries' | 'trees' | 'models' | 'projectPath' | 'skills'
>;

/** Opens a conversation. Throws `thread_locked` for a thread that another process has. */
export async function openChat(
  rye: ChatRye,
  clock: Pick<Clock, 'now'>,
  request: ChatRequest = {},
): Promise<Chat> {
  const chat = new ChatSession(rye, clock, request);
  if (request.threadId !== undefined) await chat.open(request.threadId);
  return chat;
}

class ChatSession implements Chat {
  readonly commands = CHAT_COMMANDS;
  readonly parse = chatLineOf;
  readonly #rye: ChatRye;
  readonly #request: ChatRequest;
  readonly #clock: Pick<Clock, 'now'>;
  /** The ID that the thread will have, because skills wait for it. */
  #nextId: string | undefined;
  readonly #conversation: Conversation;
  readonly #queue: MessageQueue;
  readonly #items = new ChatItems();
  readonly #listeners = new Set<ChatListener>();
  /** Requests of the running answer, with the function that decides about each. */
  readonly #open = new Map<string, Waiting>();
  /** Requests whose decision is being signed. */
  readonly #deciding = new Set<string>();
  #emptyMessage: EmptyMessage = 'nothing';
  #spent: Cost | undefined;
  #budget: number | undefined;
  #error: ErrorInfo | undefined;
  #isTelling = false;
  #isClosed = false;

  constructor(rye: ChatRye, clock: Pick<Clock, 'now'>, request: ChatRequest) {
    this.#rye = rye;
    this.#clock = clock;
    this.#request = request;
    const { directiveId, messageInput, resume, limits } = request;
    this.#conversation = new Conversation({
      rye,
      begin: this.#begin,
      beginsAlone: directiveId !== undefined && messageInput === undefined,
      lock: (threadId) => lockChat(rye.projectPath, threadId),
      onEvent: this.#seen,
      ...compact({ resume, limits }),
    });
    this.#queue = new MessageQueue(this.#conversation);
  }

  get beginsAlone(): boolean {
    return this.#conversation.beginsAlone;
  }

  get state(): ChatState {
    const { threadId, modelName: model, isRunning } = this.#conversation;
    return {
      ...compact({ threadId, model, spent: this.#spent, budget: this.#budget, error: this.#error }),
      isRunning,
      emptyMessage: this.#emptyMessage,
      items: this.#items.all,
      queued: this.#queue.texts,
      approvals: [...this.#open.values()].flatMap(({ approval }) =>
        this.#deciding.has(approval.id) ? [] : [approval],
      ),
    };
  }

  readonly subscribe = (listener: ChatListener): (() => void) => {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  };

  /** Continues a thread. */
  async open(threadId: string): Promise<void> {
    const details = await this.#conversation.open(threadId);
    await this.#readItems(threadId);
    this.#queue.fill(await this.#conversation.queued());
    this.#spent = details.thread.cost;
    this.#budget = details.document?.limits.spend;
    this.#emptyMessage = emptyMessageIn(details, this.#queue.texts.length > 0);
    this.#tell();
  }

  readonly send = async (
    text?: string,
    options: ChatSendOptions = {},
  ): Promise<ThreadResult | undefined> => {
    this.#assertOpen();
    if (this.#conversation.isRunning) {
      if (text !== undefined && text !== '') await this.#changing(() => this.#queue.add(text));
      return undefined;
    }
    const isNothing = text === undefined && !this.beginsAlone && this.#emptyMessage === 'nothing';
    if (isNothing || text === '') {
      throw new RyeError('usage', 'there is no message to send', { hint: 'Write a message.' });
    }
    if (text !== undefined && this.beginsAlone) {
      const first = await this.#answer(undefined, options);
      if (!first.success) return first;
    }
    let result = await this.#answer(text, options);
    while (result.success && !this.#isClosed && (await this.#conversation.waiting()) > 0)
      result = await this.#answer(undefined, options);
    return result;
  };

  readonly decide = async (
    id: string,
    decision: Omit<DecideRequest, 'id'>,
  ): Promise<DecidedApproval> => {
    const waiting = this.#deciding.has(id) ? undefined : this.#open.get(id);
    if (!waiting) {
      throw new RyeError('approval_not_found', `${id} does not wait in this chat`, {
        hint: 'Its state has the requests that wait.',
      });
    }
    this.#deciding.add(id);
    this.#tell();
    return await this.#changing(async () => {
      try {
        const decided = await waiting.decide(decision);
        if (decided.missing === 0) this.#open.delete(id);
        return decided;
      } finally {
        this.#deciding.delete(id);
      }
    });
  };

  readonly interrupt = (reason?: string): void => this.#conversation.interrupt(reason);

  readonly takeBack = async (): Promise<readonly string[]> =>
    await this.#changing(async () => await this.#queue.takeBack());

  readonly left: Chat['left'] = async () => await this.#queue.left();

  readonly useModel: Chat['useModel'] = async (wanted) =>
    await this.#changing(async () => await this.#conversation.useModel(wanted));

  readonly close = (): void => {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#conversation.interrupt('interrupted because the chat ended');
    this.#conversation.leave();
    this.#listeners.clear();
  };

  readonly run: Chat['run'] = async (command, options = {}) => {
    this.#assertOpen();
    const { name } = command;
    if (this.#conversation.isRunning && needsIdle(command)) {
      throw new RyeError('usage', `/${name} has to wait for the answer`, {
        hint: 'Stop the answer with Ctrl-C first.',
      });
    }
    return await this.#changing(async () => await this.#do(command, options));
  };

  async #do(
    { name, rest }: ChatLine,
    options: { readonly signal?: AbortSignal },
  ): Promise<ChatOutcome> {
    switch (name) {
      case 'help':
        return { command: name, commands: CHAT_COMMANDS };
      case 'quit':
        return { command: name };
      case 'new':
        return this.#startOver();
      case 'model':
        return await this.#model(rest);
      case 'tools':
        return { command: name, tools: await this.#tools() };
      case 'cost': {
        const { threadId } = this.#conversation;
        const details = threadId === undefined ? undefined : await this.#rye.threads.show(threadId);
        return compact({ command: name, details });
      }
      case 'budget':
        return this.#allow(rest);
      case 'tree':
        return await this.#tree(rest);
      case 'undo':
        return await this.#undo(rest);
      case 'compact': {
        const instructions = rest === '' ? undefined : rest;
        const threadId = this.#started();
        const outcome = await this.#rye.trees.compact(
          threadId,
          compact({ instructions, signal: options.signal }),
        );
        return { command: name, outcome };
      }
      case 'skill':
        return await this.#skill(rest);
    }
  }

  /** Activates a skill in the thread. */
  async #skill(skill: string): Promise<ChatOutcome> {
    if (skill === '' || /\s/.test(skill)) {
      throw new RyeError('usage', '/skill expects the name of a skill', {
        hint: 'List them with: rye list skill',
      });
    }
    const { threadId } = this.#conversation;
    if (threadId !== undefined) await this.#rye.skills.activate(threadId, skill);
    else {
      const { directiveId = DIRECTIVE, start } = this.#request;
      const plan = await this.#planned();
      this.#nextId ??= start?.threadId ?? threadIdCandidate(directiveId, this.#clock.now(), 1);
      await this.#rye.skills.activate(this.#nextId, skill, { plan });
    }
    return { command: 'skill', skill };
  }

  #startOver(): ChatOutcome {
    this.#conversation.leave();
    this.#nextId = undefined;
    this.#queue.clear();
    this.#items.clear();
    this.#spent = undefined;
    this.#budget = undefined;
    this.#error = undefined;
    this.#emptyMessage = 'nothing';
    return { command: 'new' };
  }

  async #model(rest: string): Promise<ChatOutcome> {
    const [model = '', provider] = rest.split(/\s+/);
    if (model === '') return { command: 'model', models: await this.#models() };
    await this.#conversation.useModel({ model, ...(provider ? { provider } : {}) });
    return { command: 'model', chosen: model, models: [] };
  }

  /** The models that can be used; the one in use is known by its ID or one of its tiers. */
  async #models(): Promise<readonly ChatModel[]> {
    const usable = (await this.#rye.models()).filter((row) => row['usable'] === true);
    const rows = usable.map((row) => ({
      provider: textIn(row, 'provider'),
      model: textIn(row, 'model'),
      tiers: Array.isArray(row['tiers']) ? row['tiers'].map((tier) => toText(tier)) : [],
    }));
    const wanted = this.#conversation.modelName ?? (await this.#planned()).model.id;
    const named = rows.findIndex(({ model }) => model === wanted);
    const at = named === -1 ? rows.findIndex(({ tiers }) => tiers.includes(wanted)) : named;
    return rows.map((row, index) => ({ ...row, isCurrent: index === at }));
  }

  async #tools() {
    const { threadId } = this.#conversation;
    if (threadId === undefined) {
      const { tools } = await this.#planned();
      return tools.map(({ id, description }) => ({ name: id, description }));
    }
    const path = await this.#rye.trees.path(threadId);
    const prompt = path.map((entry) => payloadOf(entry, 'system_prompt')).findLast(Boolean);
    return (prompt?.tools ?? []).map((tool) => ({
      name: textIn(tool, 'name'),
      description: textIn(tool, 'description'),
    }));
  }

  #allow(rest: string): ChatOutcome {
    const usd = Number(rest.replace(/^\$/, ''));
    if (rest === '' || !Number.isFinite(usd) || usd <= 0) {
      throw new RyeError('usage', `/budget expects an amount in USD, got ${JSON.stringify(rest)}`, {
        hint: 'Write an amount, such as /budget 0.50',
      });
    }
    this.#conversation.allowSpend(usd);
    return { command: 'budget', usd };
  }

  async #tree(rest: string): Promise<ChatOutcome> {
    const threadId = this.#started();
    const { trees } = this.#rye;
    if (rest === '')
      return { command: 'tree', tree: await trees.view(threadId, { session: true }) };
    const at = rest === 'root' ? rest : (await trees.entry(threadId, rest)).id;
    await trees.branch(threadId, { at });
    await this.#readItems(threadId);
    return { command: 'tree', at };
  }

  async #undo(rest: string): Promise<ChatOutcome> {
    const force = rest.replace(/^--/, '') === 'force';
    if (rest !== '' && !force) {
      throw new RyeError('usage', `/undo has no argument ${JSON.stringify(rest)}`, {
        hint: 'To undo changes of files that were changed since, too: /undo force',
      });
    }
    const threadId = this.#started();
    const { trees, threads } = this.#rye;
    const path = await trees.path(threadId);
    const last = path.findLast((entry) => personTextOf(entry) !== undefined);
    if (last === undefined) throw new RyeError('usage', 'no message to undo');
    const isOpening = !path.some((entry) => entry.seq < last.seq && isAnswer(entry));
    const at = isOpening ? 'root' : (last.parent_id ?? 'root');
    const undone = await trees.undoFiles(threadId, { to: at, force }).catch(inChatWords);
    if (isOpening) {
      this.#conversation.restart();
      this.#items.clear();
    } else {
      await trees.branch(threadId, { at });
      await this.#readItems(threadId);
    }
    const { messageInput = 'message' } = this.#request;
    const opening = isOpening ? (await threads.show(threadId)).document?.inputs[messageInput] : '';
    const draft = isOpening ? toText(opening ?? '') : (personTextOf(last) ?? '');
    return { command: 'undo', draft, undone };
  }

  async #readItems(threadId: string): Promise<void> {
    this.#items.clear();
    if (this.#request.hasHistory === false) return;
    for (const entry of await this.#rye.trees.path(threadId)) this.#items.take(entry);
  }

  #started(): string {
    const { threadId } = this.#conversation;
    if (threadId !== undefined) return threadId;
    throw new RyeError('usage', 'the conversation has not started yet', {
      hint: 'Send a message first.',
    });
  }

  async #planned() {
    // the plan does not depend on the text of the message
    return await this.#rye.threads.plan(this.#begin('?'));
  }

  readonly #begin = (message: string | undefined): ExecuteDirectiveRequest => {
    const { directiveId = DIRECTIVE, inputs = {}, start } = this.#request;
    const own = this.#request.directiveId === undefined ? 'message' : undefined;
    const { messageInput = own } = this.#request;
    const given = messageInput === undefined ? {} : compact({ [messageInput]: message });
    const id = compact({ threadId: this.#nextId });
    return { ...start, ...id, directiveId, inputs: { ...inputs, ...given } };
  };

  async #answer(
    text: string | undefined,
    { attendant = this.#attendant, onResult }: ChatSendOptions,
  ): Promise<ThreadResult> {
    this.#emptyMessage = 'nothing';
    this.#error = undefined;
    if (this.#conversation.restarts && text !== undefined)
      this.#items.take({ event_type: 'message', payload: { message: userText(text) } });
    try {
      const running = this.#conversation.send(text, attendant());
      this.#tell();
      const result = await running;
      this.#spent = result.cost;
      this.#emptyMessage = nextOf(result);
      this.#error = result.error;
      onResult?.(result);
      return result;
    } finally {
      this.#open.clear();
      this.#tell();
    }
  }

  /** Lets {@link decide} decide about the requests of a run. */
  readonly #attendant = (): ApprovalAttendant => ({
    onRequest: (approval, decide) => {
      this.#open.set(approval.id, { approval, decide });
      this.#tell();
    },
    isThere: (id) => !this.#isClosed && this.#open.has(id),
  });

  readonly #seen = (event: LogEvent | UnknownEvent): void => {
    const started = payloadOf(event, 'thread_started') ?? payloadOf(event, 'run_started');
    const spend = started?.limits['spend'];
    if (typeof spend === 'number') this.#budget = spend;
    this.#items.take(event);
    const decided = payloadOf(
      { ...event, event_type: event.event_type.replace(/^child\./, '') },
      'approval_decided',
    );
    if (decided) this.#open.delete(decided.approval_id);
    const id = payloadOf(event, 'custom_message')?.details?.['delivery_id'];
    if (typeof id === 'string') this.#queue.delivered(id);
    if (event.event_type === 'turn_started') void this.#sendEarly();
    this.#request.onEvent?.(event);
    this.#tell();
  };

  /** Sends what was typed before the thread had started. What the thread refuses stays with {@link left}. */
  async #sendEarly(): Promise<void> {
    try {
      await this.#queue.sendEarly();
    } catch (error) {
      this.#error = toRyeError(error).toJSON();
    }
    this.#tell();
  }

  async #changing<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } finally {
      this.#tell();
    }
  }

  /** Tells the listeners after this turn of the event loop, once for all changes in it. */
  #tell(): void {
    if (this.#isTelling || this.#listeners.size === 0) return;
    this.#isTelling = true;
    setImmediate(() => {
      this.#isTelling = false;
      const changed = this.#items.takeChanged();
      for (const listener of this.#listeners) listener(this.state, changed);
    });
  }

  #assertOpen(): void {
    if (this.#isClosed)
      throw new RyeError('usage', 'the chat is closed', { hint: 'Open another one.' });
  }
}

interface Waiting {
  readonly approval: ListedApproval;
  readonly decide: Parameters<ApprovalAttendant['onRequest']>[1];
}

/** Returns what an empty message does after a run. */
function nextOf({ success, waiting_for: waitingFor }: ThreadResult): EmptyMessage {
  if (success) return 'nothing';
  return waitingFor === undefined ? 'continues' : 'decides';
}

/** Returns what an empty message does in a thread that is continued. */
function emptyMessageIn({ thread }: ThreadDetails, hasQueued: boolean): EmptyMessage {
  if (thread.error?.code === 'approval_pending') return 'decides';
  if (hasQueued) return 'sends';
  return thread.status === 'completed' ? 'nothing' : 'continues';
}

/** Throws the error of an undo with the command of the chat that overrides it, not the option of `rye threads undo`. */
function inChatWords(error: unknown): never {
  if (!(error instanceof RyeError) || error.code !== 'file_changed') throw error;
  throw new RyeError(error.code, error.message, { hint: 'To lose that change: /undo force' });
}

function isAnswer(entry: TreeEntry): boolean {
  return payloadOf(entry, 'message')?.message?.role === 'assistant';
}

function textIn(row: JsonObject, member: string): string {
  return toText(row[member] ?? '-');
}
