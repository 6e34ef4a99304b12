import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import type { Exporting, LiveFile, Stored } from '../ports.ts';
import type { ThreadRenderer } from '../renderer.ts';
import type { StartedThread } from './start.ts';

type AnyEvent = LogEvent | UnknownEvent;

/**
 * Follows a running thread in its knowledge entry, so that a person can read along: streamed text is appended as it
 * arrives, calls and results once they are in the log. The end of the thread replaces the file with the signed entry.
 * Best effort: stops after the first failed write.
 */
export class LiveExport {
  readonly #file: LiveFile;
  readonly #renderer: ThreadRenderer;
  /** True while an answer's text is in the file before its message is in the log. */
  #isStreaming = false;
  #turn = 0;
  #isOpen = true;

  constructor(file: LiveFile, renderer: ThreadRenderer) {
    this.#file = file;
    this.#renderer = renderer;
  }

  /** Appends what an event adds to the readable conversation. Never throws. */
  append(event: AnyEvent): void {
    this.write(this.#textOf(event as LogEvent));
  }

  write(text: string): void {
    if (text === '' || !this.#isOpen) return;
    try {
      this.#file.append(text);
    } catch {
      this.close();
    }
  }

  close(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#file.close();
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
 * Opens the export of a thread that begins a run; undefined if its place is taken. The conversation of
 * earlier runs takes the place of their signed entry.
 */
export async function openLiveExport(
  env: Pick<Stored, 'files' | 'store'> & Exporting,
  { plan, document }: Pick<StartedThread, 'plan' | 'document'>,
  isResumed: boolean,
): Promise<LiveExport | undefined> {
  const { thread_id: threadId } = document;
  const path = env.files.knowledgePath(plan.directive.id, threadId);
  const file = await env.files.openExport(path, isResumed);
  if (file === undefined) return undefined;
  const live = new LiveExport(file, env.renderer);
  const { description } = plan.directive;
  const capabilitiesRef = `.ai/state/threads/${threadId}/capabilities.md`;
  live.write(env.renderer.liveHead({ document, description, capabilitiesRef }));
  if (!isResumed) return live;
  for (const event of (await env.store.logs.readEntries(threadId)).events) live.append(event);
  return live;
}
