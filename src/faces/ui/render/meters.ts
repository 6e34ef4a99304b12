import type { LogEvent, UnknownEvent } from '../../../kernel/core/events.ts';
import type { JsonObject } from '../../../kernel/core/json.ts';
import {
  type Cost,
  formatSeconds,
  formatSpend,
  formatTokens,
  formatUsd,
  NO_COST,
  toMicroUsd,
  totalTokens,
  toUsd,
} from '../../../kernel/core/usage.ts';
import { payloadOf } from './progress-line.ts';

const SPINNER = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'] as const;
const FRAME_MS = 120;
const CENT = 0.01;

/** The consumption of a running thread against its limits. */
export class Meters {
  #turn = 0;
  #cost: Cost = NO_COST;
  /** USD of each child, as far as it is known; a limit covers them too. */
  readonly #children = new Map<string, number>();
  #limits: JsonObject = {};
  #context: { readonly used: number; readonly window: number } | undefined;
  #startedAt: number;
  readonly #countsFromRun: boolean;
  /** Turns of earlier runs; undefined until the first turn of this one. */
  #earlier: number | undefined = 0;

  /** `countsFromRun`: the turns of earlier runs do not count. */
  constructor(now: number, countsFromRun = false) {
    this.#startedAt = now;
    this.#countsFromRun = countsFromRun;
  }

  update(event: LogEvent | UnknownEvent, now: number): void {
    const run = payloadOf(event, 'run_started');
    const started = run ?? payloadOf(event, 'thread_started');
    if (started) {
      this.#startedAt = now;
      this.#limits = started.limits;
    }
    if (run && this.#countsFromRun) this.#earlier = undefined;
    const turn = payloadOf(event, 'turn_started');
    if (turn) this.#count(turn.turn);
    this.#cost = payloadOf(event, 'cost')?.total ?? this.#cost;
    const other = payloadOf(event, 'request_started');
    const request = turn?.request ?? (other?.purpose === 'judgment' ? undefined : other?.request);
    if (request?.context_window !== undefined) {
      this.#context = { used: request.input_tokens, window: request.context_window };
    }
  }

  /** Takes the cost of a child in this process, or of one that has ended elsewhere. */
  updateChild(threadId: string, spend: number): void {
    this.#children.set(threadId, spend);
  }

  #spend(): number {
    const children = [...this.#children.values()].map(toMicroUsd);
    return toUsd(children.reduce((sum, one) => sum + one, toMicroUsd(this.#cost.spend)));
  }

  #count(turn: number): void {
    this.#turn = turn;
    this.#earlier ??= turn - 1;
  }

  /** Formats `context 6%`; undefined before the first request. */
  context(): string | undefined {
    if (!this.#context) return undefined;
    const { used, window } = this.#context;
    return `context ${Math.ceil((100 * used) / window)}%`;
  }

  /** Formats `⠙ turn 2 of 100 · 12.3k tokens · context 6% · $0.02 of $0.50 · 14s`. */
  line(now: number): string {
    const elapsed = Math.max(0, Math.floor((now - this.#startedAt) / 1000));
    const spinner = SPINNER[Math.floor(now / FRAME_MS) % SPINNER.length] ?? '';
    const { turns, spend } = this.#limits;
    const context = this.context();
    const earlier = this.#earlier ?? this.#turn;
    const parts = [
      `turn ${this.#turn - earlier}${ofLimit(turns, (limit) => String(limit - earlier))}`,
      `${formatSpend({ ...this.#cost, spend: this.#spend() }, shortUsd)}${ofLimit(spend, shortUsd)}`,
      elapsed < 60 ? `${elapsed}s` : formatSeconds(elapsed),
      ...(context === undefined ? [] : [context]),
      `${formatTokens(totalTokens(this.#cost))} tokens`,
    ];
    return `${spinner} ${parts.join(' · ')}`;
  }
}

function ofLimit(limit: unknown, format: (value: number) => string): string {
  return typeof limit === 'number' ? ` of ${format(limit)}` : '';
}

/** Formats dollars with cents, and smaller amounts with the digits that matter. */
export function shortUsd(usd: number): string {
  return usd === 0 || usd >= CENT ? `$${usd.toFixed(2)}` : formatUsd(usd);
}

/** Shortens `claude-sonnet-5-5-20260401` to `sonnet-5.5`. */
export function shortModel(model: string): string {
  const name = model.slice(model.lastIndexOf('/') + 1).replace(/-\d{8}$/, '');
  return name.replace(/^claude-/, '').replace(/-(\d+)-(\d+)$/, '-$1.$2');
}
