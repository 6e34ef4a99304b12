import type { EventPayloads, LogEvent, UnknownEvent } from '../../core/events.ts';
import { oneLine, type Shown, shown } from '../visible.ts';
import { payloadOf, waitText } from './progress-line.ts';

/** The waits for a provider that does not answer, from the first to the next answer. */
export class RetryWait {
  #wait: EventPayloads['retry_scheduled'] | undefined;
  #dueMs = 0;
  #sinceMs = 0;
  #retries = 0;

  /** Takes an event of the thread. Returns a line about all waits once the provider answers again. */
  take(event: LogEvent | UnknownEvent, nowMs: number): Shown | undefined {
    const wait = payloadOf(event, 'retry_scheduled');
    if (wait) {
      if (this.#retries === 0) this.#sinceMs = nowMs;
      this.#retries += 1;
      this.#wait = wait;
      this.#dueMs = nowMs + wait.delay_ms;
      return undefined;
    }
    const { event_type: type } = event;
    if (type === 'request_started') this.#dueMs = 0;
    if (!ANSWERS.has(type) || this.#wait === undefined) return undefined;
    const { reason = 'no answer' } = this.#wait;
    const seconds = Math.round((nowMs - this.#sinceMs) / 1000);
    const retries = this.#retries === 1 ? '1 retry' : `${this.#retries} retries`;
    this.reset();
    return oneLine(`${reason} for ${seconds} s, ${retries}`);
  }

  /** Returns the countdown to the next attempt; undefined while none is waited for. */
  line(nowMs: number): Shown | undefined {
    if (this.#wait === undefined || this.#dueMs === 0) return undefined;
    return shown`${waitText(this.#wait, this.#dueMs - nowMs)} (Ctrl-C to stop)`;
  }

  reset(): void {
    this.#wait = undefined;
    this.#retries = 0;
  }
}

/** Events that only come with an answer. */
const ANSWERS: ReadonlySet<string> = new Set([
  'token_delta',
  'thinking_delta',
  'toolcall_delta',
  'tool_call_start',
  'cost',
]);
