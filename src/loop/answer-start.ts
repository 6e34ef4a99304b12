import { type Clock, isoTime } from '../core/clock.ts';
import type { EventDraft } from '../core/events.ts';
import type { Usage } from '../core/usage.ts';
import type { ModelEvent } from '../providers/provider.ts';

/** Answers that are over by then are not announced: most of their calls can't be cut. */
const SLOW_MS = 250;

/** Announces an answer that takes its time, with what would tell its cost if the process died before its end. */
export class AnswerStart {
  readonly #clock: Pick<Clock, 'now' | 'monotonic'>;
  readonly #turn: number;
  readonly #sinceMs: number;
  #responseId: string | undefined;
  #counted: { readonly at: string; readonly usage: Usage } | undefined;
  #hasText = false;
  #isOver = false;

  constructor(clock: Pick<Clock, 'now' | 'monotonic'>, turn: number) {
    this.#clock = clock;
    this.#turn = turn;
    this.#sinceMs = clock.monotonic();
  }

  /** Returns the announcement, once, with the first event of a slow answer that leaves something to tell. */
  take(event: ModelEvent): EventDraft | undefined {
    if (this.#isOver) return undefined;
    this.#note(event);
    if (this.#isOver) return undefined;
    if (this.#responseId === undefined && this.#counted === undefined) return undefined;
    if (this.#clock.monotonic() - this.#sinceMs < SLOW_MS) return undefined;
    this.#isOver = true;
    const id = this.#responseId === undefined ? {} : { response_id: this.#responseId };
    return {
      event_type: 'answer_started',
      payload: { turn: this.#turn, ...id, ...this.#counted },
    };
  }

  #note(event: ModelEvent): void {
    switch (event.type) {
      case 'start':
        this.#responseId = event.id;
        return;
      case 'usage':
        // a count in the middle would hide what came before it
        if (!this.#hasText) {
          this.#counted ??= { at: isoTime(this.#clock.now()), usage: event.usage };
        }
        return;
      case 'finish':
      case 'error':
        this.#isOver = true;
        return;
      case 'text_delta':
      case 'thinking_delta':
      case 'toolcall_start':
      case 'toolcall_delta':
      case 'toolcall_end':
        this.#hasText = true;
    }
  }
}
