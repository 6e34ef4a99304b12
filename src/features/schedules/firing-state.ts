import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { LastFiring } from '../../kernel/app/api/schedules.ts';
import type { Workspace } from '../../kernel/app/workspace.ts';
import { isoTime } from '../../kernel/core/clock.ts';
import type { ErrorInfo } from '../../kernel/core/errors.ts';
import { isRecord, parseJson } from '../../kernel/core/json.ts';
import { nullable, objectOf, oneOf, optional, type Shape, TEXT } from '../../kernel/core/shape.ts';
import { isActive, type ThreadRecord } from '../../kernel/core/thread.ts';
import { makeFolders } from '../../kernel/disk/folders.ts';
import { writeWhole } from '../../kernel/disk/whole-file.ts';
import { firingPrefix } from '../../kernel/schedules/schedule.ts';
import { schedulesFolder } from './schedule-locks.ts';

/** A firing as it is recorded. */
export type RecordedFiring = Omit<LastFiring, 'status'>;

/** The progress of the loop with a schedule. The loop alone writes this file. */
export interface LoopState {
  readonly format: 1;
  /** Times up to this one are done (ISO 8601, UTC). */
  readonly handled_until: string;
  readonly last: RecordedFiring | null;
  /** Times up to this one may have fired while the clock was ahead: they fire again under other IDs. */
  readonly ahead_until?: string;
}

/** The last firing that a person asked for. */
interface AskedState {
  readonly format: 1;
  readonly last: RecordedFiring;
}

const ERROR = objectOf<Pick<ErrorInfo, 'code' | 'message'>>({ code: TEXT, message: TEXT });
const FIRING = objectOf<RecordedFiring>({
  at: nullable(TEXT),
  fired_at: TEXT,
  thread_id: nullable(TEXT),
  error: nullable(ERROR),
});
const LOOP = objectOf<LoopState>({
  format: oneOf([1]),
  handled_until: TEXT,
  last: nullable(FIRING),
  ahead_until: optional(TEXT),
});
const ASKED = objectOf<AskedState>({ format: oneOf([1]), last: FIRING });

/** Keeps when each schedule of a project last fired, below `.ai/state/schedules/NAME/`. */
export class FiringStates {
  readonly #workspace: Workspace;

  constructor(workspace: Workspace) {
    this.#workspace = workspace;
  }

  /**
   * Returns the loop's state; undefined before its first. Treats an unreadable file as just written: skipping one firing
   * is better than repeating it.
   */
  loop(name: string): LoopState | undefined {
    const path = this.#path(name, 'loop');
    if (!existsSync(path)) return undefined;
    const state = this.#read(path, LOOP);
    if (state !== undefined && !Number.isNaN(Date.parse(state.handled_until))) return state;
    this.#workspace.notice(`${path} cannot be read: times before now are dropped`);
    return { format: 1, handled_until: isoTime(this.#workspace.clock.now()), last: null };
  }

  record(name: string, state: LoopState): void {
    this.#write(name, 'loop', state);
  }

  recordAsked(name: string, last: RecordedFiring): void {
    this.#write(name, 'asked', { format: 1, last } satisfies AskedState);
  }

  /** Returns the newest firing of a schedule with the status of its thread. */
  async last(name: string): Promise<LastFiring | null> {
    const asked = this.#read(this.#path(name, 'asked'), ASKED)?.last;
    const timed = this.#read(this.#path(name, 'loop'), LOOP)?.last ?? undefined;
    const [last] = [asked, timed]
      .filter((one) => one !== undefined)
      .toSorted((one, two) => (one.fired_at < two.fired_at ? 1 : -1));
    if (last === undefined) return null;
    return { ...last, status: await this.#statusOf(last.thread_id) };
  }

  /** Returns a session of the schedule, started by the loop or a person, that has not ended. */
  async living(name: string): Promise<ThreadRecord | undefined> {
    const { registry } = this.#workspace.store;
    const prefix = firingPrefix(name);
    const open = await Promise.all([
      registry.list({ active: true }),
      registry.list({ status: 'suspended' }),
    ]);
    for (const record of open.flat()) {
      if (record.parent_id !== null || this.#isCrashed(record)) continue;
      // the ID of a successor has another prefix
      const first =
        record.continuation_of === null ? record : (await registry.chain(record.thread_id))[0];
      if (first?.thread_id.startsWith(prefix) === true) return record;
    }
    return undefined;
  }

  forget(name: string): void {
    rmSync(join(schedulesFolder(this.#workspace.options.projectPath), name), {
      recursive: true,
      force: true,
    });
  }

  /** Returns the status at the end of a thread's chain. */
  async #statusOf(threadId: string | null): Promise<LastFiring['status']> {
    if (threadId === null || !this.#workspace.isRegistryMade) return null;
    const { registry } = this.#workspace.store;
    if ((await registry.get(threadId)) === undefined) return null;
    const record = (await registry.chain(threadId)).at(-1);
    if (record === undefined) return null;
    return this.#isCrashed(record) ? 'crashed' : record.status;
  }

  #isCrashed(record: ThreadRecord): boolean {
    const { owners } = this.#workspace.store;
    const owner = owners.ofRecord(record);
    return isActive(record.status) && owner !== undefined && owners.state(owner) === 'gone';
  }

  #path(name: string, kind: 'loop' | 'asked'): string {
    return join(schedulesFolder(this.#workspace.options.projectPath), name, `${kind}.json`);
  }

  #read<T>(path: string, shape: Shape<T>): T | undefined {
    if (!existsSync(path)) return undefined;
    const value = parseJson(readFileSync(path, 'utf8'));
    return isRecord(value) && shape.fits(value) ? value : undefined;
  }

  #write(name: string, kind: 'loop' | 'asked', state: LoopState | AskedState): void {
    const path = this.#path(name, kind);
    makeFolders(join(path, '..'), 0o700);
    writeWhole(path, `${JSON.stringify(state)}\n`, { mode: 0o600 });
  }
}
