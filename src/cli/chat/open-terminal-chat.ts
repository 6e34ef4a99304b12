import type { Rye } from '../../app/api/rye.ts';
import type { ThreadDetails } from '../../app/api/threads.ts';
import { deliveryOf, taskOf } from '../../app/api/trees.ts';
import { type Message, textOf } from '../../core/message.ts';
import type { Context } from '../command.ts';
import { count } from '../output.ts';
import { createLiveView } from '../render/live-view.ts';
import { renderMarkdown } from '../render/markdown.ts';
import type { ChatDesk } from './actions.ts';
import { echoLines, type LineStyle, lastExchange, remarkLines } from './chat-lines.ts';
import { NO_HISTORY, openHistory } from './history.ts';
import { type EmptyMessage, TerminalChat } from './terminal.ts';

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
    countsFromRun: true,
  });
  const keepsHistory = (await rye.config('agent.chat.history'))[0]?.value !== false;
  return new TerminalChat({
    desk: { ...desk, print: view.print },
    io,
    view,
    history: keepsHistory ? openHistory(rye.userSpacePath) : NO_HISTORY,
    intro: await introOf(rye, opened, { colors, columns: io.stdout.columns }),
    startsAlone,
    next: opened === undefined ? 'nothing' : emptyMessageIn(opened),
    spent: opened?.thread.cost,
    hurry: () => void hurry(),
  });
}

function emptyMessageIn({ thread }: ThreadDetails): EmptyMessage {
  if (thread.status === 'completed') return 'nothing';
  return thread.error?.code === 'approval_pending' ? 'decides' : 'continues';
}

async function introOf(
  { trees }: Pick<Rye, 'trees'>,
  opened: ThreadDetails | undefined,
  style: LineStyle,
): Promise<readonly string[]> {
  if (opened === undefined)
    return remarkLines('rye chat: /help lists the commands, Ctrl-D leaves', style);
  const { thread_id: id, cost } = opened.thread;
  const { messages } = await trees.context(id);
  const { question, answer } = lastExchange(messages.map(withoutMarkup));
  return [
    ...remarkLines(`continuing ${id}, ${count(cost.turns, 'turn')}`, style),
    ...(question === undefined ? [] : ['', ...echoLines(question, style)]),
    ...(answer === undefined ? [] : ['', ...answerLines(answer, style)]),
  ];
}

function answerLines(answer: string, { colors, columns }: LineStyle): readonly string[] {
  return renderMarkdown(answer, { colors, columns: columns - 3 }).map((line) => `  ${line}`);
}

/** The first message has the markup of its directive, and one that was sent during an answer has an envelope. */
function withoutMarkup(message: Message): Message {
  if (message.role !== 'user') return message;
  const text = taskOf(message)?.task ?? deliveryOf(textOf(message.content))?.text;
  return text === undefined ? message : { ...message, content: [{ type: 'text', text }] };
}

async function hurry(): Promise<void> {
  const { hurryGroups } = await import('../../app/thread-list.ts');
  hurryGroups();
}
