import type { ExecuteDirectiveRequest, Rye } from '../../../kernel/app/api/rye.ts';
import type { ThreadDetails } from '../../../kernel/app/api/threads.ts';
import type { AcceptedRisk } from '../../../kernel/core/capability.ts';
import { type ExitCode, RyeError } from '../../../kernel/core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../../kernel/core/events.ts';
import { compact, type JsonObject, toText } from '../../../kernel/core/json.ts';
import type { ThreadPlan } from '../../../kernel/core/plan.ts';
import type { ChatDesk } from '../../ui/chat/actions.ts';
import type { HeldKeys } from '../../ui/chat/held-keys.ts';
import { canPick, canRedraw } from '../../ui/io.ts';
import { payloadOf, progressLine } from '../../ui/render/progress-line.ts';
import { oneLine, type Shown, shown } from '../../ui/visible.ts';
import {
  type Context,
  defineCommand,
  flag,
  integer,
  list,
  number,
  optionalArgument,
  optionalText,
  text,
  type ValuesOf,
} from '../command.ts';
import { directiveNamed, readLimits, readValues } from '../input.ts';
import { lastSession, modelWanted, nothingToContinue } from '../last-thread.ts';
import { colorsOf, printLines } from '../output.ts';
import { READ_ONLY_TOOLS, readOnlyTools } from '../read-only-tools.ts';
import { withRye } from '../session.ts';

const DIRECTIVE = 'rye/core/chat';

/** Shipped directives that take a first message, with the input that takes it. */
const PROFILES = { plan: 'rye/core/plan', build: 'rye/core/build' } as const;
const MESSAGE_INPUTS: Readonly<Record<string, string>> = {
  [DIRECTIVE]: 'message',
  [PROFILES.plan]: 'task',
  [PROFILES.build]: 'task',
};

const OPTIONS = {
  continue: flag('Continue the last chat, or the last thread of DIRECTIVE'),
  last: flag('Continue the last thread; same as @'),
  thread: text('ID', 'Continue this thread'),
  resume: optionalText('ID', 'Same as --thread; without ID, pick a thread on the terminal'),
  plan: flag('Plan a change without changing anything; you approve the plan as a whole'),
  build: flag('Change the project; you approve each change, alone or with its plan'),
  tools: text(
    'NAMES',
    `Allow only these tools, separated by commas: ${READ_ONLY_TOOLS.join(', ')}`,
  ),
  input: list('NAME=VALUE', 'An input of DIRECTIVE; NAME=@FILE reads a file'),
  model: text('MODEL', 'Model ID or tier'),
  provider: text('PROVIDER', 'Provider of the model'),
  limit: list('NAME=N', 'A limit of each message, such as turns=10; spend is that of all messages'),
  maxTurns: integer('N', 'Same as --limit turns=N'),
  maxBudgetUsd: number('USD', 'Same as --limit spend=USD'),
  threadId: text('ID', 'ID for the new thread (must not exist yet)'),
  acknowledge: list(
    'RISK',
    'Allow a risk that policy would otherwise block: elevated, or elevated:rye/bash for that tool',
  ),
  allowUnsigned: flag("Run the project's own unsigned items; marks the thread as unverified"),
  allowUnpriced: flag('Allow models without a known price (disables the spend limit)'),
} as const;

type ChatOptions = ValuesOf<typeof OPTIONS>;

export const chat = defineCommand({
  details:
    'Each message is a run of one durable thread, which --continue resumes, also after a crash. Without DIRECTIVE, the model can read the project and change nothing. With one, its run starts the conversation. Type /help for the commands. Without a terminal, each line of stdin is a message, and stdout gets the answers alone.',
  arguments: {
    directive: optionalArgument('ID of a directive to start with, or @ for the last thread', {
      name: 'directive',
      item: { type: 'directive' },
    }),
  },
  options: OPTIONS,
  examples: [
    'rye chat',
    'rye chat --build',
    'rye chat --continue',
    'rye chat team/review --input path=src',
    'echo "What does this project do?" | rye chat',
  ],
  run: async (call) => {
    const { args, options, io } = call;
    const isThread = args.directive?.startsWith('@') === true;
    const directiveId =
      profileOf(call) ??
      (isThread || args.directive === undefined ? undefined : directiveNamed(args.directive));
    const messageInput = messageInputOf(directiveId, options);
    const named = await threadNamed(call, isThread ? args.directive : undefined);
    const inputs = await readValues({ pairs: options.input, pairOption: '--input' }, call);
    assertFits(options, { isContinued: named !== undefined || options.continue, directiveId });
    const request = requestOf(call, directiveId);
    const signal = io.cancellation();
    const isOnTerminal = io.stdinIsTty && canRedraw(io.stdout, io.env) && !call.global.json;
    const { holdKeys } = await import('../../ui/chat/held-keys.ts');
    const keys = isOnTerminal ? await holdKeys(io) : undefined;
    const screen: Screen = { notify: (line) => io.stderr.write(shown`${line}\n`) };
    const chatWith = async (rye: Rye): Promise<ExitCode> => {
      const existing = await existingThread(rye, { named, options, directiveId });
      const plan = { rye, request, directiveId, messageInput, inputs, existing, keys, screen };
      return await converse(call, plan, signal);
    };
    try {
      return await withRye(call, chatWith, { notify: (line) => screen.notify(line) });
    } finally {
      keys?.close();
    }
  },
});

/** Returns the directive of `--plan` or `--build`. Throws if another one is named too. */
function profileOf({ args, options }: ChatCall): string | undefined {
  const wanted = [options.plan && PROFILES.plan, options.build && PROFILES.build].filter(
    (one) => one !== false,
  );
  if (wanted.length > 1 || (wanted.length > 0 && args.directive !== undefined)) {
    throw new RyeError('usage', 'a chat has one directive, and several are named', {
      hint: 'Use one of: --plan, --build, DIRECTIVE',
    });
  }
  return wanted[0];
}

/** With an input for the first message, a directive waits for that message. A person can also give the input. */
function messageInputOf(
  directiveId: string = DIRECTIVE,
  { input }: Pick<ChatOptions, 'input'>,
): string | undefined {
  const name = MESSAGE_INPUTS[directiveId];
  return input.some((pair) => pair.startsWith(`${name ?? ''}=`)) ? undefined : name;
}

/** Prints notices: on the screen of the chat as soon as there is one. */
interface Screen {
  notify: (line: Shown) => void;
}

interface ChatPlan {
  readonly rye: Rye;
  readonly request: ExecuteDirectiveRequest;
  readonly directiveId: string | undefined;
  /** The input that takes the first message; undefined: the directive runs before it. */
  readonly messageInput: string | undefined;
  readonly inputs: JsonObject;
  /** The thread to continue. */
  readonly existing: string | undefined;
  /** The keys of the terminal; undefined if there is none. */
  readonly keys: HeldKeys | undefined;
  readonly screen: Screen;
}

type ChatCall = Context & {
  readonly options: ChatOptions;
  readonly args: { readonly directive: string | undefined };
};

async function converse(call: ChatCall, plan: ChatPlan, signal: AbortSignal): Promise<ExitCode> {
  const { io, options } = call;
  const { rye, request, directiveId, messageInput, inputs, existing, keys } = plan;
  const limits = readLimits(options.limit, options.maxTurns, options.maxBudgetUsd);
  const begin = firstRequest(plan);
  // the plan does not depend on the text of the message
  const planned = await planOf(plan, { ...begin, ...compact({ limits }) });
  const front: { event: (event: LogEvent | UnknownEvent) => void } = {
    event: warningPrinter(call),
  };
  const { directiveId: _id, inputs: _inputs, limits: _limits, ...start } = request;
  const chatting = await rye.chat(
    compact({
      directiveId,
      messageInput,
      inputs,
      threadId: existing,
      start,
      resume: compact({
        secrets: secretsOf(inputs, planned),
        allowUnsigned: options.allowUnsigned || undefined,
      }),
      limits,
      hasHistory: false,
      onEvent: (event: LogEvent | UnknownEvent) => front.event(event),
    }),
  );
  const desk: ChatDesk = {
    chat: chatting,
    io,
    colors: colorsOf(io.stdout, call),
    // with --json, stdout gets the document alone
    print: (lines) => {
      if (call.global.json) for (const line of lines) io.stderr.write(shown`${line}\n`);
      else printLines(io, lines);
    },
    signal: keys ? AbortSignal.any([signal, keys.signal]) : signal,
  };
  try {
    const opened = existing === undefined ? undefined : await rye.threads.show(existing);
    const wanted = opened && modelWanted(options, opened);
    if (wanted) await chatting.useModel(wanted);
    const startsAlone = chatting.beginsAlone;
    if (keys) {
      const { openTerminalChat } = await import('../../ui/chat/open-terminal-chat.ts');
      const terminal = await openTerminalChat(call, desk, {
        rye,
        keys,
        planned,
        opened,
        startsAlone,
        first: existing === undefined && !startsAlone ? begin : undefined,
      });
      front.event = terminal.event;
      plan.screen.notify = terminal.notify;
      const exitCode = await terminal.run();
      if (chatting.state.threadId !== undefined)
        io.stderr.write(shown`resume: ${oneLine(resumeCommand(plan, opened))}\n`);
      return exitCode;
    }
    const { chatFromPipe } = await import('../../ui/chat/piped.ts');
    return await chatFromPipe(call, desk, { startsAlone });
  } finally {
    chatting.close();
  }
}

/** Returns the request of the first message, with any text. */
function firstRequest({ request, inputs, messageInput }: ChatPlan): ExecuteDirectiveRequest {
  const message = messageInput === undefined ? {} : { [messageInput]: '?' };
  return { ...request, inputs: { ...inputs, ...message } };
}

/** Returns the command that continues the conversation. */
function resumeCommand({ directiveId }: ChatPlan, opened: ThreadDetails | undefined): string {
  const directive = opened?.thread.directive ?? directiveId ?? DIRECTIVE;
  return directive === DIRECTIVE ? 'rye chat --continue' : `rye chat ${directive} --continue`;
}

/**
 * Returns the plan of the first message of a new conversation. At a terminal, throws if no model could answer: a message
 * must not be typed first. Without one, the first message is refused, if there is one.
 */
async function planOf(
  { rye, existing, keys }: Pick<ChatPlan, 'rye' | 'existing' | 'keys'>,
  first: ExecuteDirectiveRequest,
): Promise<ThreadPlan | undefined> {
  const needsModel = keys !== undefined;
  if (existing === undefined) return await rye.threads.plan(first, { needsModel });
  if (needsModel) await rye.threads.assertModel(existing);
  return undefined;
}

/** Returns the values of secret inputs, which every run needs again. */
function secretsOf(
  inputs: JsonObject,
  planned: ThreadPlan | undefined,
): Readonly<Record<string, string>> {
  const given = Object.keys(inputs);
  const names = planned ? planned.secret_inputs.filter((name) => given.includes(name)) : given;
  return Object.fromEntries(names.map((name) => [name, toText(inputs[name] ?? null)]));
}

/** Prints warnings about the plan, and waits for the provider, on stderr. */
function warningPrinter({ io, global }: Context): (event: LogEvent | UnknownEvent) => void {
  return (event) => {
    if (global.quiet) return;
    const isWait = payloadOf(event, 'retry_scheduled') !== undefined;
    const isWarning = payloadOf(event, 'note')?.text.startsWith('warning: ') === true;
    const line = isWait || isWarning ? progressLine(event) : undefined;
    if (line) io.stderr.write(shown`rye: ${line.text}\n`);
  };
}

/** Returns the thread that the command line names; a person picks it for `--resume` alone. */
async function threadNamed(
  call: ChatCall,
  recent: string | undefined,
): Promise<string | undefined> {
  const { last, thread, resume, continue: isContinued } = call.options;
  const named = [recent, last ? '@' : undefined, thread, resume].filter((one) => one !== undefined);
  if (named.length + (isContinued ? 1 : 0) > 1) {
    throw new RyeError('usage', 'several threads to continue are named', {
      hint: 'Use one of: --continue, --last, @, --thread ID',
    });
  }
  const [one] = named;
  if (one !== true) return one;
  const { pickThread } = await import('../pick-thread.ts');
  const picked = canPick(call) ? await pickThread(call) : undefined;
  if (picked !== undefined) return picked;
  throw new RyeError('usage', '--resume needs the ID of a thread', {
    hint: 'List the threads with: rye threads list',
  });
}

/** Refuses options of a start for a thread that is continued, and options of one directive for another. */
function assertFits(
  options: ChatOptions,
  {
    isContinued,
    directiveId,
  }: { readonly isContinued: boolean; readonly directiveId: string | undefined },
): void {
  const ofStart = {
    '--tools': options.tools !== undefined,
    '--thread-id': options.threadId !== undefined,
    '--acknowledge': options.acknowledge.length > 0,
    '--allow-unpriced': options.allowUnpriced,
  };
  const [misplaced] = Object.entries(ofStart).find(([, isUsed]) => isUsed) ?? [];
  if (isContinued && misplaced !== undefined) {
    throw new RyeError('usage', `${misplaced} applies to a new chat, not to one that continues`, {
      hint: 'Remove the option, or start another chat: rye chat',
    });
  }
  if (directiveId !== undefined && options.tools !== undefined) {
    throw new RyeError('usage', `--tools cannot be combined with a directive`, {
      hint: `The directive's <permissions> list its tools: rye fetch directive ${directiveId}`,
    });
  }
  if (directiveId === undefined && !isContinued && options.input.length > 0) {
    throw new RyeError('usage', '--input needs a directive', {
      hint: 'Name it: rye chat DIRECTIVE --input NAME=VALUE',
    });
  }
}

function requestOf({ io, options }: ChatCall, directiveId = DIRECTIVE): ExecuteDirectiveRequest {
  const { model, provider, threadId, allowUnsigned, allowUnpriced, tools } = options;
  return compact({
    directiveId,
    onlyTools: directiveId === DIRECTIVE ? readOnlyTools(tools, 'rye chat') : undefined,
    model,
    provider,
    threadId,
    // prepare refuses an unknown risk
    acknowledge: options.acknowledge as readonly AcceptedRisk[],
    allowUnsigned,
    allowUnpriced,
    parentThreadId: io.env['RYE_PARENT_THREAD_ID'] || undefined,
  });
}

/** Returns the ID of a named thread. Throws if it is not one of the directive that is named too. */
async function threadOf(
  { threads }: Rye,
  named: string,
  directiveId: string | undefined,
): Promise<string> {
  const threadId = await threads.resolveId(named);
  if (directiveId === undefined) return threadId;
  const { directive } = (await threads.show(threadId)).thread;
  if (directive === directiveId) return threadId;
  throw new RyeError('usage', `thread ${threadId} is of ${directive}, not of ${directiveId}`, {
    hint: `Name only one of them. To continue the last thread of the directive: rye chat ${directiveId} --continue`,
  });
}

async function existingThread(
  rye: Rye,
  {
    named,
    options,
    directiveId,
  }: {
    readonly named: string | undefined;
    readonly options: ChatOptions;
    readonly directiveId: string | undefined;
  },
): Promise<string | undefined> {
  if (named !== undefined) return await threadOf(rye, named, directiveId);
  if (!options.continue) return undefined;
  const last = await lastSession(rye, directiveId ?? DIRECTIVE);
  if (last !== undefined) return last;
  const start = directiveId === undefined ? 'rye chat' : `rye chat ${directiveId}`;
  throw nothingToContinue(start, directiveId ?? DIRECTIVE);
}
