import type { ExecuteDirectiveRequest, Rye } from '../../../kernel/app/api/rye.ts';
import type { ThreadDetails } from '../../../kernel/app/api/threads.ts';
import type { ThreadPlan } from '../../../kernel/core/plan.ts';
import type { Context } from '../../cli/command.ts';
import { count } from '../../cli/output.ts';
import { echoLines, type LineStyle } from '../render/echo.ts';
import { createLiveView } from '../render/live-view.ts';
import { renderMarkdown } from '../render/markdown.ts';
import { oneLine, shown } from '../visible.ts';
import type { ChatDesk } from './actions.ts';
import { lastExchange, remarkLines } from './chat-lines.ts';
import type { HeldKeys } from './held-keys.ts';
import { NO_HISTORY, openHistory } from './history.ts';
import { headLine, placeOf, rightsOf } from './status-line.ts';
import { TerminalChat } from './terminal.ts';

interface Opening {
  readonly rye: Rye;
  readonly keys: HeldKeys;
  /** The plan of the first message of a new conversation. */
  readonly planned: ThreadPlan | undefined;
  /** The thread that is continued. */
  readonly opened: ThreadDetails | undefined;
  readonly startsAlone: boolean;
  /** The request of the first message of a new conversation, with any text. */
  readonly first: ExecuteDirectiveRequest | undefined;
}

const NO_FACTS = { model: undefined, capabilities: [], limits: { spend: undefined } };

/** Prepares a conversation on the terminal: the view, the history and the text above the first prompt. */
export async function openTerminalChat(
  context: Context,
  desk: ChatDesk,
  { rye, keys, planned, opened, startsAlone, first }: Opening,
): Promise<TerminalChat> {
  const { io, global } = context;
  const { colors } = desk;
  const view = createLiveView({
    io,
    sink: io.stdout,
    colors,
    isVerbose: global.verbose,
    hasHeader: false,
    countsFromRun: true,
  });
  const style = { colors, columns: io.stdout.columns };
  const { model, capabilities, limits } = planned
    ? { ...planned, model: planned.model.id }
    : (opened?.document ?? NO_FACTS);
  const setting = {
    model,
    place: placeOf(rye.projectPath, io.env['HOME']),
    rights: rightsOf(capabilities),
    budget: limits.spend,
  };
  const keepsHistory = (await rye.config('agent.chat.history'))[0]?.value !== false;
  return new TerminalChat({
    desk: { ...desk, print: view.print },
    io,
    view,
    history: keepsHistory ? openHistory(rye.userSpacePath) : NO_HISTORY,
    intro: [headLine(setting, style), ...(await introOf(rye, opened, style))],
    setting,
    keys,
    startsAlone,
    spent: opened?.thread.cost,
    warmUp: () => void rye.threads.warmUp(first),
    hurry: () => void hurry(),
  });
}

async function introOf(
  { trees }: Pick<Rye, 'trees'>,
  opened: ThreadDetails | undefined,
  style: LineStyle,
): Promise<readonly string[]> {
  if (opened === undefined) return [];
  const { thread_id: id, cost } = opened.thread;
  const { question, answer, isCut } = lastExchange(await trees.path(id));
  return [
    ...remarkLines(shown`continuing ${oneLine(id)}, ${count(cost.turns, 'turn')}`, style),
    ...(question === undefined ? [] : ['', ...echoLines(shortened(question), style)]),
    ...(answer === '' ? [] : ['', ...answerLines(answer, style)]),
    ...(isCut ? remarkLines(shown`  (interrupted)`, style) : []),
  ];
}

const MAX_LINES = 10;

/** A question may hold a whole file: only its beginning reminds the person. */
function shortened(text: string): string {
  const lines = text.trimEnd().split('\n');
  const rest = lines.length - MAX_LINES;
  return rest <= 1 ? text : [...lines.slice(0, MAX_LINES), `… ${rest} more lines`].join('\n');
}

function answerLines(answer: string, { colors, columns }: LineStyle): readonly string[] {
  return renderMarkdown(answer, { colors, columns: columns - 3 }).map((line) => `  ${line}`);
}

async function hurry(): Promise<void> {
  const { hurryGroups } = await import('../../../kernel/app/thread-list.ts');
  hurryGroups();
}
