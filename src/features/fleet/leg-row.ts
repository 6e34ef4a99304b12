import { RyeError } from '../../kernel/core/errors.ts';
import { isJsonObject, isRecord, type JsonObject } from '../../kernel/core/json.ts';
import type {
  Firing,
  LegSpec,
  QueueLimits,
  ScheduleSpec,
  WorkOptions,
} from '../../kernel/storage/fleet-queue.ts';

/** The version of the protocol between those who queue legs and those who run them. */
const LEG_VERSION = 1;
/** Bytes of a leg's payload as JSON, at most. */
const MAX_PAYLOAD_BYTES = 65_536;
/** The least urgent priority. */
const LAST_PRIORITY = 9;
/** The version and a few names beside the payload. */
const MAX_ROW_BYTES = MAX_PAYLOAD_BYTES + 4096;

type RowKey =
  | 'version'
  | 'leg_id'
  | 'thread_id'
  | 'queue'
  | 'priority'
  | 'not_before'
  | 'partition'
  | 'payload'
  | 'firing';

const MAX_ID_LENGTH = 200;
const PRINTABLE = /^[^\p{Cc}\p{Cs}]+$/u;
const QUEUE_NAME = /^[a-z0-9][a-z0-9._-]{0,63}$/;
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,3})?Z$/;

/** Returns the stored form of a leg. Throws `invalid_input` if the leg breaks a rule. */
export function rowOfLeg(leg: LegSpec): JsonObject {
  checkLeg(leg);
  return {
    version: LEG_VERSION,
    leg_id: leg.legId,
    thread_id: leg.threadId,
    queue: leg.queue,
    priority: leg.priority,
    not_before: leg.notBefore,
    partition: leg.partition,
    payload: leg.payload,
    ...(leg.firing ? { firing: { ...leg.firing } } : {}),
  };
}

/** Reads a stored leg, which another program may have written. Throws `invalid_input` for all that is no valid leg. */
export function legOfRow(stored: unknown): LegSpec {
  if (!isRecord(stored)) throw refused('a leg is not an object');
  const row: { readonly [Key in RowKey]?: unknown } = stored;
  if (row.version !== LEG_VERSION)
    throw refused(`a leg has version ${shown(row.version)}, this rye runs version ${LEG_VERSION}`);
  if (jsonBytes(row) > MAX_ROW_BYTES) throw refused(`a leg has more than ${MAX_ROW_BYTES} bytes`);
  const leg = {
    legId: row.leg_id,
    threadId: row.thread_id,
    queue: row.queue,
    priority: row.priority,
    notBefore: row.not_before ?? null,
    partition: row.partition ?? null,
    payload: row.payload,
    ...(row.firing === undefined ? {} : { firing: row.firing }),
  };
  checkLeg(leg);
  return leg;
}

function checkLeg(leg: { readonly [Key in keyof LegSpec]: unknown }): asserts leg is LegSpec {
  if (!isName(leg.legId)) throw refused(`invalid leg ID ${shown(leg.legId)}`);
  if (!isName(leg.threadId)) throw refused(`invalid thread ID ${shown(leg.threadId)}`);
  checkQueueName(leg.queue);
  const { priority } = leg;
  if (!Number.isInteger(priority) || Number(priority) < 0 || Number(priority) > LAST_PRIORITY)
    throw refused(`priority ${shown(priority)} is not a whole number from 0 to ${LAST_PRIORITY}`);
  if (leg.notBefore !== null && !isTime(leg.notBefore))
    throw refused(`invalid time ${shown(leg.notBefore)}`);
  if (leg.partition !== null && !isName(leg.partition))
    throw refused(`invalid partition ${shown(leg.partition)}`);
  checkPayload(leg.payload);
  if (leg.firing !== undefined && !isFiring(leg.firing)) throw refused('invalid firing of a leg');
}

/** Throws `invalid_input` unless the text names a queue. */
export function checkQueueName(name: unknown): asserts name is string {
  if (typeof name !== 'string' || !QUEUE_NAME.test(name))
    throw refused(
      `invalid queue name ${shown(name)}`,
      'Use up to 64 small letters, digits, dots, hyphens and underscores.',
    );
}

/** Throws `invalid_input` unless all options are in range. */
export function checkWork({ workerId, queues, slots }: WorkOptions): void {
  if (!isName(workerId)) throw refused(`invalid worker ID ${shown(workerId)}`);
  if (queues.length === 0) throw refused('a worker has no queue', 'Name one with --queue.');
  for (const queue of queues) checkQueueName(queue);
  if (!Number.isInteger(slots) || slots < 1)
    throw refused(`a worker cannot have ${shown(slots)} slots`);
}

/** Throws `invalid_input` unless all limits are in range. */
export function checkLimits({ global, partition, rate }: QueueLimits): void {
  if (global !== null && !(Number.isInteger(global) && global >= 0))
    throw refused(`invalid limit of a queue: ${shown(global)}`);
  if (partition !== null && !(Number.isInteger(partition) && partition >= 1))
    throw refused(`invalid limit of a partition: ${shown(partition)}`);
  if (partition !== null && global !== null && partition > global)
    throw refused(`the limit of a partition (${partition}) is above that of its queue (${global})`);
  if (rate !== null && !(Number.isInteger(rate.legs) && rate.legs >= 1 && rate.seconds > 0))
    throw refused(`invalid rate of a queue: ${shown(rate)}`);
}

/** Throws `invalid_input` unless the schedule can be kept. Its cron expression is left to the engine. */
export function checkSchedule({ name, queue, payload, timezone }: ScheduleSpec): void {
  if (!isName(name)) throw refused(`invalid schedule name ${shown(name)}`);
  checkQueueName(queue);
  checkPayload(payload);
  if (!isTimezone(timezone))
    throw refused(`unknown time zone ${shown(timezone)}`, 'Use a name such as Europe/Berlin.');
}

/** Throws `invalid_input` unless the text is a time in UTC; returns it in milliseconds since the epoch. */
export function timeOf(text: string): number {
  if (!isTime(text)) throw refused(`invalid time ${shown(text)}`);
  return Date.parse(text);
}

/** Returns the leg of a schedule's firing. */
export function legOfFiring(spec: Omit<ScheduleSpec, 'cron' | 'missed'>, at: string): LegSpec {
  return {
    legId: `${spec.name}@${at}`,
    threadId: `schedule/${spec.name}`,
    queue: spec.queue,
    priority: 0,
    notBefore: null,
    partition: null,
    payload: spec.payload,
    firing: { schedule: spec.name, at },
  };
}

function checkPayload(payload: unknown): void {
  if (!isJsonObject(payload)) throw refused('the payload of a leg is not an object');
  if (jsonBytes(payload) > MAX_PAYLOAD_BYTES)
    throw refused(
      `the payload of a leg has more than ${MAX_PAYLOAD_BYTES} bytes`,
      'Store large values elsewhere and name them in the payload.',
    );
}

/** Returns the size as JSON; infinite for values that JSON cannot carry. */
function jsonBytes(value: unknown): number {
  try {
    return Buffer.byteLength(JSON.stringify(value));
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}

function isFiring(value: unknown): value is Firing {
  if (!isRecord(value)) return false;
  const { schedule, at }: { readonly schedule?: unknown; readonly at?: unknown } = value;
  return isName(schedule) && isTime(at);
}

function isName(value: unknown): value is string {
  return typeof value === 'string' && value.length <= MAX_ID_LENGTH && PRINTABLE.test(value);
}

function isTime(value: unknown): value is string {
  return typeof value === 'string' && TIME.test(value) && !Number.isNaN(Date.parse(value));
}

function isTimezone(value: string): boolean {
  try {
    new Intl.DateTimeFormat('en', { timeZone: value }).format();
    return true;
  } catch {
    return false;
  }
}

function shown(value: unknown): string {
  return (JSON.stringify(value) ?? 'undefined').slice(0, 100);
}

function refused(message: string, hint?: string): RyeError {
  return new RyeError('invalid_input', message, { hint });
}
