import { overReason } from '../../core/clock.ts';
import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import type { Exporting, LiveFile, Process, Stored } from '../ports.ts';
import type { ThreadRenderer } from '../renderer.ts';
import type { StartedThread } from './start.ts';

type AnyEvent = LogEvent | UnknownEvent;

/** A thread that ends sooner is written once, as its signed entry: no person reads that fast. */
const READ_ALONG_MS = 100;

/**
 * Follows a running thread in its knowledge entry, so that a person can read along: streamed text is appended as it
 * arrives, calls and results once they are in the log. The end of the thread replaces the file with the signed entry.
 * Best effort: stops after the first failed write.
 */
export class LiveExport {
  readonly #renderer: ThreadRenderer;
  /** Text that came before there was a file to write it to. */
  readonly #held: string[] = [];
  readonly #closing = new AbortController();
  #file: LiveFile | undefined;
  /** True while an answer's text is in the file before its message is in the log. */
  #isStreaming = false;
  #turn = 0;

  constructor(renderer: ThreadRenderer) {
    this.#renderer = renderer;
  }

  /** Aborts when the export is closed. */
  get closed(): AbortSignal {
    return this.#closing.signal;
  }

  /** Writes `head` and what was held to the file, and from then on everything as it comes. */
  begin(file: LiveFile, head: string): void {
    this.#file = file;
    if (this.closed.aborted) file.close();
    else this.#write([head, ...this.#held.splice(0)].join(''));
  }

  /** Appends what an event adds to the readable conversation. Never throws. */
  append(event: AnyEvent): void {
    if (!this.closed.aborted) this.#write(this.#textOf(event as LogEvent));
  }

  close(): void {
    if (this.closed.aborted) return;
    this.#closing.abort(overReason());
    this.#file?.close();
  }

  #write(text: string): void {
    if (text === '') return;
    if (!this.#file) {
      this.#held.push(text);
      return;
    }
    try {
      this.#file.append(text);
    } catch {
      this.close();
    }
  }

  #textOf(event: LogEvent): string {
    if (event.event_type === 'turn_started') this.#turn = event.payload.turn;
    if (event.event_type === 'message') return this.#messageText(event);
    if (event.event_type === 'token_delta') {
      const heading = this.#isStreaming ? '' : `\n## Turn ${this.#turn}\n\n`;
      this.#isStreaming = true;
      return heading + event.payload.text;
    }
    if (event.event_type !== 'retry_scheduled' || !this.#isStreaming) return '';
    this.#isStreaming = false;
    return '\n\n*This answer is retried.*\n';
  }

  #messageText(event: Extract<LogEvent, { readonly event_type: 'message' }>): string {
    const { message } = event.payload;
    const wasStreamed = this.#isStreaming && message.role === 'assistant';
    if (message.role === 'assistant') this.#isStreaming = false;
    if (!wasStreamed) return paragraphs(this.#renderer.entry(event));
    // its text is in the file already, under its heading
    const calls = message.content.filter(({ type }) => type === 'tool_call');
    const rest = {
      ...event,
      payload: { ...event.payload, message: { ...message, content: calls } },
    };
    return `\n${paragraphs(this.#renderer.entry(rest).slice(1))}`;
  }
}

function paragraphs(blocks: readonly string[]): string {
  return blocks.map((block) => `\n${block}\n`).join('');
}

/**
 * Follows a thread that begins a run, unless the place of its export is taken. A new thread gets its file after a moment.
 * That of a resumed one replaces the signed entry at once, and begins with the conversation of the earlier runs.
 */
export async function openLiveExport(
  env: Pick<Stored, 'files' | 'store'> & Pick<Process, 'clock'> & Exporting,
  started: Pick<StartedThread, 'plan' | 'document'>,
  isResumed: boolean,
): Promise<LiveExport> {
  const live = new LiveExport(env.renderer);
  if (!isResumed) {
    void beginLater(env, started, live);
    return live;
  }
  await begin(env, started, { live, isResumed });
  const { events } = await env.store.logs.readEntries(started.document.thread_id);
  for (const event of events) live.append(event);
  return live;
}

async function beginLater(
  env: Pick<Stored, 'files'> & Pick<Process, 'clock'> & Exporting,
  started: Pick<StartedThread, 'plan' | 'document'>,
  live: LiveExport,
): Promise<void> {
  await env.clock.sleep(READ_ALONG_MS, live.closed);
  if (live.closed.aborted) return;
  try {
    await begin(env, started, { live, isResumed: false });
  } catch {
    live.close();
  }
}

async function begin(
  env: Pick<Stored, 'files'> & Exporting,
  { plan, document }: Pick<StartedThread, 'plan' | 'document'>,
  { live, isResumed }: { readonly live: LiveExport; readonly isResumed: boolean },
): Promise<void> {
  const { thread_id: threadId } = document;
  const path = env.files.knowledgePath(plan.directive.id, threadId);
  const file = await env.files.openExport(path, isResumed);
  if (file === undefined) {
    live.close();
    return;
  }
  const { description } = plan.directive;
  const capabilitiesRef = `.ai/state/threads/${threadId}/capabilities.md`;
  live.begin(file, env.renderer.liveHead({ document, description, capabilitiesRef }));
}
