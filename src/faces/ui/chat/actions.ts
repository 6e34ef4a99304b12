import type {
  Chat,
  ChatCommand,
  ChatLine,
  ChatModel,
  ChatOutcome,
} from '../../../kernel/app/api/chat.ts';
import type { ThreadDetails } from '../../../kernel/app/api/threads.ts';
import type { ManualCompaction } from '../../../kernel/app/api/trees.ts';
import { addSpend, formatCost, formatSpend, formatUsd } from '../../../kernel/core/usage.ts';
import { undoLines } from '../../cli/commands/threads-undo.ts';
import { formatTable } from '../../cli/output.ts';
import type { Io, Sink } from '../io.ts';
import type { LineStyle } from '../render/echo.ts';
import { drawSessionTree } from '../render/session-tree.ts';
import { type Colors, truncate, wrapText } from '../terminal-text.ts';
import { oneLine, type Shown, shown, trimmed, visible } from '../visible.ts';
import { helpLines, remarkLines } from './chat-lines.ts';
import { type ModelChoice, modelChoices } from './model-choice.ts';

/** Everything that a command of the conversation uses. */
export interface ChatDesk {
  readonly chat: Chat;
  readonly io: Pick<Io, 'stdout'>;
  readonly colors: Colors;
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

/** Runs a command of the conversation, and shows its effect. */
export async function act(line: ChatLine, desk: ChatDesk): Promise<ActionOutcome> {
  const { chat, signal, print, io, colors } = desk;
  const outcome = await chat.run(line, { signal });
  if (isSetting(outcome)) {
    remark(desk, oneLine(effectOf(outcome)));
    return {};
  }
  switch (outcome.command) {
    case 'quit':
      return { quit: true };
    case 'model': {
      const chosen = outcome.chosen ?? (await modelChosen(desk, outcome.models));
      if (chosen !== undefined) remark(desk, shown`the next message uses ${oneLine(chosen)}`);
      break;
    }
    case 'undo':
      if (outcome.undone.files.length > 0) print(undoLines(outcome.undone));
      remark(desk, shown`your last message was undone; /tree shows it`);
      return { draft: visible(outcome.draft) };
    case 'help':
      print(helpLines(helpOf(outcome.commands), styleOf({ colors, io })));
      break;
    case 'tools':
      showTools(desk, outcome.tools);
      break;
    case 'cost':
      print(costLines(outcome.details));
      break;
    case 'tree':
      if ('tree' in outcome) print(drawSessionTree(outcome.tree, io.stdout, colors));
      else
        remark(
          desk,
          oneLine(`the next message continues from ${outcome.at}; /tree shows the other branch`),
        );
      break;
    case 'compact':
      showCompaction(desk, outcome.outcome);
      break;
  }
  return {};
}

/** A command that only changes the next message. */
type Setting = Extract<ChatOutcome, { readonly command: 'new' | 'budget' | 'skill' }>;

function isSetting(outcome: ChatOutcome): outcome is Setting {
  const { command } = outcome;
  return command === 'new' || command === 'budget' || command === 'skill';
}

function effectOf(outcome: Setting): string {
  if (outcome.command === 'skill') {
    return `the model gets the skill ${outcome.skill} with the next message`;
  }
  return outcome.command === 'budget'
    ? `the next message may spend up to ${formatUsd(outcome.usd)}`
    : 'the next message starts another conversation';
}

const KEYS: readonly (readonly [string, string])[] = [
  ['Enter', 'send; while the model answers: queue a message'],
  ['\\ Enter, Alt-Enter, Ctrl-J', 'start another line; """ starts and ends a block of lines'],
  ['Ctrl-C', 'stop the answer; at an empty prompt twice: leave'],
  ['Up, Down, Ctrl-R', 'earlier messages; a line that starts with a space is not kept'],
  ['Ctrl-O', 'show a pasted text in full'],
  ['Tab', 'complete a command'],
  ['Ctrl-D', 'leave'],
];

function helpOf(commands: readonly ChatCommand[]): readonly (readonly [string, string])[] {
  const rows = commands.map(
    ({ name, argument = '', summary }) => [`/${name} ${argument}`.trimEnd(), summary] as const,
  );
  return [...rows, ...KEYS];
}

function remark({ print, colors, io }: ChatDesk, text: Shown): void {
  print(remarkLines(text, styleOf({ colors, io })));
}

/** Has the person choose a model; without a terminal, prints them with a mark at the one in use. */
async function modelChosen(
  { chat, io, print, chooseModel }: ChatDesk,
  models: readonly ChatModel[],
): Promise<string | undefined> {
  const at = models.findIndex(({ isCurrent }) => isCurrent);
  if (chooseModel) {
    const choice = await chooseModel(modelChoices(models), at);
    if (choice === null) return undefined;
    await chat.useModel({ model: choice.model, provider: choice.provider });
    return choice.model;
  }
  const rows = models.map(({ provider, model, tiers, isCurrent }) => [
    isCurrent ? '▸' : '',
    provider,
    model,
    tiers.join(' '),
  ]);
  print(formatTable(['', 'PROVIDER', 'MODEL', 'TIERS'], rows, io.stdout));
  return undefined;
}

type Tools = Extract<ChatOutcome, { readonly command: 'tools' }>['tools'];

/** Shows each tool as its name and the first sentence of its description. */
function showTools({ print, io }: ChatDesk, tools: Tools): void {
  const lines = tools.map(({ name, description }) => {
    const [first = ''] = description.split(/(?<=\.)\s/);
    return `${name}  ${first}`;
  });
  const shownLines = lines.length === 0 ? ['no tools'] : lines;
  print(
    shownLines.map((line) => truncate(oneLine(line.replaceAll(/\s+/g, ' ')), columnsOf(io.stdout))),
  );
}

function costLines(details: ThreadDetails | undefined): readonly Shown[] {
  if (details === undefined) return [shown`nothing has been spent`];
  const { thread, document, children } = details;
  const { limits } = document ?? {};
  // with their own children
  const ofChildren = children.map((child) => child.cost.total).reduce(addSpend, { spend: 0 });
  return [
    oneLine(`${thread.thread_id}: ${formatCost(thread.cost)}`),
    ...(children.length === 0 ? [] : [oneLine(`children: ${formatSpend(ofChildren)}`)]),
    ...(limits ? [oneLine(`budget of the conversation: ${formatUsd(limits.spend)}`)] : []),
  ];
}

function showCompaction(desk: ChatDesk, outcome: ManualCompaction): void {
  if (!outcome.compacted) {
    remark(desk, shown`not compacted: ${oneLine(outcome.reason)}`);
    return;
  }
  const { summary, tokens_before: before } = outcome;
  desk.print(wrapText(trimmed(visible(summary)), columnsOf(desk.io.stdout)));
  remark(desk, shown`the summary replaces ${before} tokens`);
}

function styleOf({ colors, io }: Pick<ChatDesk, 'colors' | 'io'>): LineStyle {
  return { colors, columns: columnsOf(io.stdout) };
}

function columnsOf({ isTty, columns }: Sink): number {
  return isTty ? columns : Number.POSITIVE_INFINITY;
}
