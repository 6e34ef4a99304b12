import type { EventDraft } from '../../core/events.ts';
import { type JsonObject, type JsonValue, jsonEquals } from '../../core/json.ts';
import {
  type RecordedRun,
  type RecordedStep,
  type RunStep,
  stepOf,
} from '../../log/recorded-run.ts';
import { TOOLS_CHANGED_ENTRY } from '../ports.ts';

/** The first place at which a replay is not what was recorded. */
export interface ReplayDifference {
  /** Counts the compared steps from 0. */
  readonly step: number;
  /** Entry of the recorded step; null where the recording has no such step. */
  readonly entry_id: string | null;
  readonly seq: number | null;
  /** Dotted path of the member that differs, or `kind`. */
  readonly path: string;
  readonly recorded: JsonValue;
  readonly replayed: JsonValue;
}

/** Follows a replay along the recorded steps and stops at the first difference, or where the recording breaks off. */
export class ReplayComparison {
  readonly #steps: readonly RecordedStep[];
  readonly #hasEnd: boolean;
  readonly #fed = new Set<number>();
  #next = 0;
  #difference: ReplayDifference | undefined;

  constructor({ steps, hasEnd }: Pick<RecordedRun, 'steps' | 'hasEnd'>) {
    this.#steps = steps;
    this.#hasEnd = hasEnd;
  }

  get difference(): ReplayDifference | undefined {
    return this.#difference;
  }

  /** Steps that were the same. */
  get matched(): number {
    return this.#next;
  }

  get expected(): RecordedStep | undefined {
    return this.#steps[this.#next];
  }

  /** Nothing is left to compare with. */
  get isOver(): boolean {
    return this.#difference !== undefined || (!this.#hasEnd && this.expected === undefined);
  }

  /** Entry of the last step that was the same; null where none has one yet. */
  get lastEntryId(): string | null {
    return this.#steps[this.#next - 1]?.entryId ?? null;
  }

  /** Takes what the replay writes; false when the comparison is over. */
  observe(drafts: readonly EventDraft[]): boolean {
    for (const draft of drafts) {
      const step = stepOf(draft);
      if (step) this.compare(step);
    }
    return !this.isOver;
  }

  compare(step: RunStep): void {
    if (this.isOver) return;
    const { expected } = this;
    const found = expected === undefined ? undefined : differenceOf(expected, step);
    if (expected && !found) {
      this.#next += 1;
      return;
    }
    this.#difference = {
      step: this.#next,
      entry_id: expected?.entryId ?? null,
      seq: expected?.seq ?? null,
      path: found?.path ?? 'kind',
      recorded: found ? found.recorded : null,
      replayed: found ? found.replayed : asJson(step),
    };
  }

  /** The steps up to the next answer that came from outside and are not yet given to the replay. */
  takeDeliveries(): readonly EventDraft[] {
    const drafts: EventDraft[] = [];
    for (let index = this.#next; index < this.#steps.length; index += 1) {
      const step = this.#steps[index];
      if (!step || step.kind === 'answer' || step.kind === 'end') break;
      if (!isDelivery(step) || step.draft === null || this.#fed.has(index)) continue;
      this.#fed.add(index);
      drafts.push(step.draft);
    }
    return drafts;
  }

  /** The replay is over: every recorded step must have been taken. */
  finish(): void {
    const { expected } = this;
    if (this.#difference || !expected) return;
    this.#difference = {
      step: this.#next,
      entry_id: expected.entryId,
      seq: expected.seq,
      path: 'kind',
      recorded: asJson(expected),
      replayed: null,
    };
  }
}

const DELIVERY = new RegExp(`^(?:delivery|steer|follow|child|${TOOLS_CHANGED_ENTRY}$)`);

function isDelivery({ kind, value }: RecordedStep): boolean {
  const type = value['custom_type'];
  return (
    kind === 'user' || (kind === 'injected' && typeof type === 'string' && DELIVERY.test(type))
  );
}

function asJson({ kind, value }: RunStep): JsonObject {
  return { kind, ...value };
}

interface Difference {
  readonly path: string;
  readonly recorded: JsonValue;
  readonly replayed: JsonValue;
}

function differenceOf(recorded: RunStep, replayed: RunStep): Difference | undefined {
  if (recorded.kind !== replayed.kind) {
    return { path: 'kind', recorded: asJson(recorded), replayed: asJson(replayed) };
  }
  return firstDifference(recorded.value, replayed.value, recorded.kind);
}

/** Goes down into objects and lists of one length, so that the difference shown is a small one. */
function firstDifference(left: JsonValue, right: JsonValue, path: string): Difference | undefined {
  if (jsonEquals(left, right)) return undefined;
  const keys = commonKeys(left, right);
  for (const key of keys ?? []) {
    const below = firstDifference(memberOf(left, key), memberOf(right, key), `${path}.${key}`);
    if (below) return below;
  }
  return { path, recorded: left, replayed: right };
}

function commonKeys(left: JsonValue, right: JsonValue): readonly string[] | undefined {
  if (typeof left !== 'object' || typeof right !== 'object' || !left || !right) return undefined;
  if (Array.isArray(left) !== Array.isArray(right)) return undefined;
  if (Array.isArray(left) && Array.isArray(right) && left.length !== right.length) return undefined;
  return [...new Set([...Object.keys(left), ...Object.keys(right)])];
}

function memberOf(value: JsonValue, key: string): JsonValue {
  return (value as Readonly<Record<string, JsonValue | undefined>>)[key] ?? null;
}
