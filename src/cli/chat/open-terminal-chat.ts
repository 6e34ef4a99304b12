import type { Rye } from '../../app/api/rye.ts';
import type { ThreadDetails } from '../../app/api/threads.ts';
import { taskOf } from '../../app/api/trees.ts';
import type { Message } from '../../core/message.ts';
import type { Context } from '../command.ts';
import { createLiveView } from '../render/live-view.ts';
import { renderMarkdown } from '../render/markdown.ts';
import type { ChatDesk } from './actions.ts';
import { echoLines, lastExchange } from './chat-lines.ts';
import { NO_HISTORY, openHistory } from './history.ts';
import { TerminalChat } from './terminal.ts';

interface Opening {
  readonly rye: Rye;
  /** The thread that is continued. */
  readonly opened: ThreadDetails | undefined;
  readonly startsAlone: boolean;
}

/** Prepares a conversation on the terminal: the view, the history and the text above the first prompt. */
export async function openTerminalChat(
  context: Context,
  desk: ChatDesk,
  { rye, opened, startsAlone }: Opening,
): Promise<TerminalChat> {
  const { io, global } = context;
  const { colors } = desk;
  const view = createLiveView({
    io,
    sink: io.stdout,
    colors,
    isVerbose: global.verbose,
    hasHeader: false,
  });
  const keepsHistory = (await rye.config('agent.chat.history'))[0]?.value !== false;
  return new TerminalChat({
    desk: { ...desk, print: view.print },
    io,
    view,
    history: keepsHistory ? openHistory(rye.userSpacePath) : NO_HISTORY,
    intro: await introOf(rye, opened, { colors, columns: io.stdout.columns }),
    startsAlone,
    isInterrupted: opened !== undefined && opened.thread.status !== 'completed',
    spent: opened?.thread.cost,
    hurry: () => void hurry(),
  });
}

async function introOf(
  { trees }: Pick<Rye, 'trees'>,
  opened: ThreadDetails | undefined,
  style: { readonly colors: ChatDesk['colors']; readonly columns: number },
): Promise<readonly string[]> {
  const { colors } = style;
  if (opened === undefined)
    return [colors.dim('rye chat: /help lists the commands, Ctrl-D leaves')];
  const { thread_id: id, cost } = opened.thread;
  const { messages } = await trees.context(id);
  const { question, answer } = lastExchange(messages.map(withoutMarkup));
  return [
    colors.dim(`continuing ${id}, ${cost.turns} turns`),
    ...(question === undefined ? [] : ['', ...echoLines(question, colors)]),
    ...(answer === undefined ? [] : ['', ...renderMarkdown(answer, style)]),
  ];
}

/** The first message has the markup of its directive. */
function withoutMarkup(message: Message): Message {
  const task = taskOf(message)?.task;
  if (task === undefined || message.role !== 'user') return message;
  return { ...message, content: [{ type: 'text', text: task }] };
}

async function hurry(): Promise<void> {
  const { hurryGroups } = await import('../../app/thread-list.ts');
  hurryGroups();
}
