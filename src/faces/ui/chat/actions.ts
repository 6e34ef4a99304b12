import type { Rye } from '../../../kernel/app/api/rye.ts';
import type { TreeEntry } from '../../../kernel/app/api/trees.ts';
import { RyeError } from '../../../kernel/core/errors.ts';
import { isRecord, type JsonObject, toText } from '../../../kernel/core/json.ts';
import { addSpend, formatCost, formatSpend, formatUsd } from '../../../kernel/core/usage.ts';
import { undoLines } from '../../cli/commands/threads-undo.ts';
import { formatTable } from '../../cli/output.ts';
import type { Io, Sink } from '../io.ts';
import type { LineStyle } from '../render/echo.ts';
import { payloadOf } from '../render/progress-line.ts';
import { drawSessionTree } from '../render/session-tree.ts';
import { type Colors, truncate, wrapText } from '../terminal-text.ts';
import { oneLine, type Shown, shown, trimmed, visible } from '../visible.ts';
import { helpLines, personText, remarkLines } from './chat-lines.ts';
import type { Conversation } from './conversation.ts';
import { currentAt, type ModelChoice, modelChoices } from './model-choice.ts';
import { SLASH_COMMANDS, type Slash, type SlashName } from './slash.ts';

/** Everything that a command of the conversation uses. */
export interface ChatDesk {
  readonly rye: Pick<Rye, 'threads' | 'trees' | 'models'>;
  readonly conversation: Conversation;
  readonly io: Pick<Io, 'stdout'>;
  readonly colors: Colors;
  /** The tools of a conversation that has not started. */
  readonly plannedTools: () => Promise<readonly string[]>;
  /** The model of a conversation that has not started. */
  readonly plannedModel: () => Promise<string>;
  /** Lets the person choose one of these; null: none. Absent: they are printed. */
  readonly chooseModel?: (
    choices: readonly ModelChoice[],
    at: number,
  ) => Promise<ModelChoice | null>;
  readonly print: (lines: readonly Shown[]) => void;
  readonly signal: AbortSignal;
}

interface ActionOutcome {
  readonly quit?: true;
  /** Text for the input field, such as the message that was undone. */
  readonly draft?: string;
}

type Action = (desk: ChatDesk, rest: string) => Promise<ActionOutcome | undefined>;

/** Runs a command of the conversation. Nothing of it reaches the model. */
export async function act(slash: Slash, desk: ChatDesk): Promise<ActionOutcome> {
  const { name, rest } = slash;
  if (desk.conversation.isRunning && needsIdle(slash)) {
    throw new RyeError('usage', `/${name} has to wait for the answer`, {
      hint: 'Stop the answer with Ctrl-C first.',
    });
  }
  return (await ACTIONS[name](desk, rest)) ?? {};
}

/** True for a command that can only run between two answers. */
export function needsIdle({ name, rest }: Slash): boolean {
  const needs = SLASH_COMMANDS.find((command) => command.name === name)?.needs;
  return needs === 'idle' || (name === 'tree' && rest !== '');
}

const ACTIONS: Readonly<Record<SlashName, Action>> = {
  help: async ({ print, colors, io }) => {
    print(helpLines(HELP, styleOf({ colors, io })));
    return await Promise.resolve(undefined);
  },
  quit: async () => await Promise.resolve({ quit: true } as const),
  new: async ({ conversation, print, colors, io }) => {
    conversation.leave();
    print(
      remarkLines(shown`the next message starts another conversation`, styleOf({ colors, io })),
    );
    return await Promise.resolve(undefined);
  },
  model,
  tools,
  cost,
  budget,
  tree,
  undo,
  compact,
};

const KEYS: readonly (readonly [string, string])[] = [
  ['Enter', 'send; while the model answers: queue a message'],
  ['\\ Enter, Alt-Enter, Ctrl-J', 'start another line; """ starts and ends a block of lines'],
  ['Ctrl-C', 'stop the answer; at an empty prompt twice: leave'],
  ['Up, Down, Ctrl-R', 'earlier messages; a line that starts with a space is not kept'],
  ['Ctrl-O', 'show a pasted text in full'],
  ['Tab', 'complete a command'],
  ['Ctrl-D', 'leave'],
];

const HELP = [
  ...SLASH_COMMANDS.map(
    ({ name, argument = '', summary }) => [`/${name} ${argument}`.trimEnd(), summary] as const,
  ),
  ...KEYS,
];

async function model(desk: ChatDesk, rest: string) {
  const { conversation, print, colors, io } = desk;
  const [wanted, provider] = rest.split(/\s+/);
  const chosen =
    wanted === undefined || wanted === ''
      ? await modelChosen(desk)
      : { model: wanted, ...(provider ? { provider } : {}) };
  if (!chosen) return undefined;
  await conversation.useModel(chosen);
  print(
    remarkLines(shown`the next message uses ${oneLine(chosen.model)}`, styleOf({ colors, io })),
  );
  return undefined;
}

/** Returns the model that the person chooses; without a terminal, prints them with a mark at the one in use. */
async function modelChosen({ rye, conversation, io, print, chooseModel, plannedModel }: ChatDesk) {
  const choices = modelChoices(await rye.models());
  const at = currentAt(choices, conversation.modelName ?? (await plannedModel()));
  if (chooseModel) {
    const choice = await chooseModel(choices, at);
    return choice && { model: choice.model, provider: choice.provider };
  }
  const rows = choices.map(({ provider, model: id, tiers }, index) => [
    index === at ? '▸' : '',
    provider,
    id,
    tiers,
  ]);
  print(formatTable(['', 'PROVIDER', 'MODEL', 'TIERS'], rows, io.stdout));
  return null;
}

function textIn(row: JsonObject, member: string): string {
  return toText(row[member] ?? '-');
}

async function tools({ rye, conversation, plannedTools, print, io }: ChatDesk) {
  const { threadId } = conversation;
  const offered = threadId === undefined ? await plannedTools() : await toolsOf(rye, threadId);
  const lines = offered.length === 0 ? ['no tools'] : offered;
  print(lines.map((line) => truncate(oneLine(line.replaceAll(/\s+/g, ' ')), columnsOf(io.stdout))));
  return undefined;
}

async function toolsOf({ trees }: Pick<Rye, 'trees'>, threadId: string): Promise<string[]> {
  const path = await trees.path(threadId);
  const prompt = path.map((entry) => payloadOf(entry, 'system_prompt')).findLast(Boolean);
  return (prompt?.tools ?? []).map((tool) =>
    toolLine(textIn(tool, 'name'), textIn(tool, 'description')),
  );
}

/** Formats a tool as its name and the first sentence of its description. */
export function toolLine(name: string, description: string): string {
  const [first = ''] = description.split(/(?<=\.)\s/);
  return `${name}  ${first}`;
}

async function cost({ rye, conversation: { threadId }, print }: ChatDesk) {
  if (threadId === undefined) {
    print([shown`nothing has been spent`]);
    return undefined;
  }
  const { thread, document, children } = await rye.threads.show(threadId);
  const { limits } = document ?? {};
  // with their own children
  const ofChildren = children.map((child) => child.cost.total).reduce(addSpend, { spend: 0 });
  print([
    oneLine(`${threadId}: ${formatCost(thread.cost)}`),
    ...(children.length === 0 ? [] : [oneLine(`children: ${formatSpend(ofChildren)}`)]),
    ...(limits ? [oneLine(`budget of the conversation: ${formatUsd(limits.spend)}`)] : []),
  ]);
  return undefined;
}

async function budget({ conversation, print, colors, io }: ChatDesk, rest: string) {
  const usd = Number(rest.replace(/^\$/, ''));
  if (rest === '' || !Number.isFinite(usd) || usd <= 0) {
    throw new RyeError('usage', `/budget expects an amount in USD, got ${JSON.stringify(rest)}`, {
      hint: 'Write an amount, such as /budget 0.50',
    });
  }
  conversation.allowSpend(usd);
  print(
    remarkLines(
      oneLine(`the next message may spend up to ${formatUsd(usd)}`),
      styleOf({ colors, io }),
    ),
  );
  return await Promise.resolve(undefined);
}

async function tree({ rye, conversation, print, io, colors }: ChatDesk, rest: string) {
  const threadId = startedOf(conversation);
  if (rest === '') {
    const view = await rye.trees.view(threadId, { session: true });
    print(drawSessionTree(view, io.stdout, colors));
    return undefined;
  }
  const at = rest === 'root' ? rest : (await rye.trees.entry(threadId, rest)).id;
  await rye.trees.branch(threadId, { at });
  print(
    remarkLines(
      oneLine(`the next message continues from ${at}; /tree shows the other branch`),
      styleOf({ colors, io }),
    ),
  );
  return undefined;
}

async function undo({ rye, conversation, print, colors, io }: ChatDesk, rest: string) {
  const force = rest.replace(/^--/, '') === 'force';
  if (rest !== '' && !force) {
    throw new RyeError('usage', `/undo has no argument ${JSON.stringify(rest)}`, {
      hint: 'To undo changes of files that were changed since, too: /undo force',
    });
  }
  const threadId = startedOf(conversation);
  const path = await rye.trees.path(threadId);
  const last = path.findLast((entry) => personText(entry) !== undefined);
  if (last === undefined) throw new RyeError('usage', 'no message to undo');
  const isOpening = !path.some((entry) => entry.seq < last.seq && isAnswer(entry));
  const at = isOpening ? 'root' : (last.parent_id ?? 'root');
  const undone = await rye.trees.undoFiles(threadId, { to: at, force }).catch(inChatWords);
  if (isOpening) conversation.restart();
  else await rye.trees.branch(threadId, { at });
  if (undone.files.length > 0) print(undoLines(undone));
  print(remarkLines(shown`your last message was undone; /tree shows it`, styleOf({ colors, io })));
  return {
    draft: visible(isOpening ? await openingOf(rye, threadId) : (personText(last) ?? '')),
  };
}

/** Throws the error of an undo with the command of the chat that overrides it, not the option of `rye threads undo`. */
function inChatWords(error: unknown): never {
  if (!(error instanceof RyeError) || error.code !== 'file_changed') throw error;
  throw new RyeError(error.code, error.message, { hint: 'To lose that change: /undo force' });
}

async function compact({ rye, conversation, print, colors, io, signal }: ChatDesk, rest: string) {
  const threadId = startedOf(conversation);
  const instructions = rest === '' ? {} : { instructions: rest };
  const outcome = await rye.trees.compact(threadId, { ...instructions, signal });
  if (!outcome.compacted) {
    print(remarkLines(shown`not compacted: ${oneLine(outcome.reason)}`, styleOf({ colors, io })));
    return undefined;
  }
  const { summary, tokens_before: before } = outcome;
  print([
    ...wrapText(trimmed(visible(summary)), columnsOf(io.stdout)),
    ...remarkLines(shown`the summary replaces ${before} tokens`, styleOf({ colors, io })),
  ]);
  return undefined;
}

/** Returns the first message as it was typed; '' for a directive that starts without one. */
async function openingOf({ threads }: Pick<Rye, 'threads'>, threadId: string): Promise<string> {
  const message = (await threads.show(threadId)).document?.inputs['message'];
  return typeof message === 'string' ? message : '';
}

function startedOf({ threadId }: Conversation): string {
  if (threadId !== undefined) return threadId;
  throw new RyeError('usage', 'the conversation has not started yet', {
    hint: 'Send a message first.',
  });
}

function isAnswer(entry: TreeEntry): boolean {
  const payload: unknown = entry.payload;
  const message = isRecord(payload) ? payload['message'] : undefined;
  return isRecord(message) && message['role'] === 'assistant';
}

function styleOf({ colors, io }: Pick<ChatDesk, 'colors' | 'io'>): LineStyle {
  return { colors, columns: columnsOf(io.stdout) };
}

function columnsOf({ isTty, columns }: Sink): number {
  return isTty ? columns : Number.POSITIVE_INFINITY;
}
