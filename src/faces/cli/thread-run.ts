import type { ApprovalAttendant } from '../../kernel/app/api/approvals.ts';
import type { Rye } from '../../kernel/app/api/rye.ts';
import type { ResumeThreadRequest } from '../../kernel/app/api/threads.ts';
import { EXIT, type ExitCode, exitCodeOf, RyeError } from '../../kernel/core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../kernel/core/events.ts';
import type { ThreadResult } from '../../kernel/core/thread.ts';
import { canRedraw } from '../ui/io.ts';
import { runLine } from '../ui/render/progress-line.ts';
import {
  createAnswerRenderer,
  createJsonRenderer,
  createStreamJsonRenderer,
  createTextRenderer,
  type Renderer,
} from '../ui/render/text.ts';
import { oneLine, shown } from '../ui/visible.ts';
import { type Context, choice, flag } from './command.ts';
import type { OutputMode } from './failure.ts';
import { colorsOf } from './output.ts';
import { projectFolder } from './session.ts';

/** Options of the commands that run a thread and show it. */
export const OUTPUT_OPTIONS = {
  outputFormat: choice(
    'FORMAT',
    ['text', 'json', 'stream-json'],
    'Text, the result as JSON, or every event as a JSON line',
  ),
  print: flag('Print only the final result, without live output', { short: 'p' }),
} as const;

/** The option that lets `--limit` go above what is granted. */
export const RAISE_LIMITS = flag('Allow limits higher than in the directive; the log records it');

export function outputModeOf({ global }: Context, format: OutputMode | undefined): OutputMode {
  if (format === 'text' && global.json) {
    throw new RyeError('usage', '--json and --output-format text exclude each other', {
      hint: 'Remove one of them.',
    });
  }
  if (format === 'stream-json') return 'stream-json';
  return format === 'json' || global.json ? 'json' : 'text';
}

export interface ThreadOutput {
  readonly mode: OutputMode;
  /** False: print only the final result. */
  readonly isLive: boolean;
  /** True: stdout gets the answer alone, and stderr progress only if it is a terminal. */
  readonly isAnswer?: boolean;
}

interface ThreadSubscriber {
  readonly signal: AbortSignal;
  readonly onEvent: (event: LogEvent | UnknownEvent) => void;
  readonly attendant?: ApprovalAttendant;
}

/**
 * Runs a thread and shows its progress and its result. Listens to signals before `run` opens the project, so that an
 * early interrupt is a cancellation too.
 */
export async function showThread(
  context: Context,
  output: ThreadOutput,
  run: (subscriber: ThreadSubscriber) => Promise<ThreadResult>,
): Promise<ThreadResult> {
  const signal = context.io.cancellation();
  const renderer = await createRenderer(context, output);
  try {
    const result = await run({ signal, onEvent: renderer.event, ...attendantOf(renderer) });
    renderer.finish(result);
    return result;
  } finally {
    renderer.close();
  }
}

function attendantOf({ attendant }: Renderer): Pick<ThreadSubscriber, 'attendant'> {
  return attendant ? { attendant } : {};
}

/** Resumes a thread of an open project, for the commands that end in a resume. */
export async function resumeThread(
  context: Context,
  { recovery }: Rye,
  request: Omit<ResumeThreadRequest, 'signal' | 'onEvent'>,
): Promise<ExitCode> {
  const output: ThreadOutput = { mode: context.global.json ? 'json' : 'text', isLive: true };
  const result = await showThread(context, output, (subscriber) =>
    recovery.resume({ ...request, ...subscriber }),
  );
  return exitCodeOfResult(result);
}

export function exitCodeOfResult({ success, status, error }: ThreadResult): ExitCode {
  if (success) return EXIT.ok;
  if (status === 'cancelled') return EXIT.cancelled;
  if (status === 'suspended') return EXIT.waiting;
  return error === undefined ? EXIT.failed : exitCodeOf(error.code);
}

/** Prefix of notes that warn about the plan of a thread. */
const WARNING = 'warning: ';

export async function createRenderer(
  context: Context,
  { mode, isLive, isAnswer = false }: ThreadOutput,
): Promise<Renderer> {
  const { io, global } = context;
  if (mode === 'json') return withWarnings(createJsonRenderer(io), context);
  if (mode === 'stream-json') return createStreamJsonRenderer(io);
  const colors = colorsOf(io.stderr, context);
  if (isLive && !global.quiet && canRedraw(io.stderr, io.env)) {
    // only a terminal needs the Markdown parser
    const { createLiveRenderer } = await import('../ui/render/live.ts');
    const folder = projectFolder(context);
    return createLiveRenderer(io, {
      colors,
      isVerbose: global.verbose,
      folder,
      hasFrame: !isAnswer,
    });
  }
  if (isAnswer) {
    const hasProgress = io.stderr.isTty && !global.quiet;
    const renderer = createAnswerRenderer(io, colors, { hasProgress, hasCost: global.verbose });
    return hasProgress ? renderer : withWarnings(renderer, context);
  }
  const isQuiet = global.quiet || !isLive;
  const renderer = createTextRenderer(io, colors, isQuiet);
  return isQuiet ? withWarnings(renderer, context) : renderer;
}

/** Events that are shown without progress: a run that waits for minutes must not look like one that hangs. */
const SHOWN: ReadonlySet<string> = new Set(['note', 'retry_scheduled']);

/** Prints warnings about the plan, and waits, on stderr although the renderer shows no progress. */
function withWarnings(renderer: Renderer, { io, global }: Context): Renderer {
  if (global.quiet) return renderer;
  return {
    ...renderer,
    event: (event) => {
      const text = SHOWN.has(event.event_type) ? runLine(event)?.text : undefined;
      const isShown = event.event_type !== 'note' || text?.startsWith(WARNING) === true;
      if (text !== undefined && isShown) io.stderr.write(shown`rye: ${oneLine(text)}\n`);
      renderer.event(event);
    },
  };
}
