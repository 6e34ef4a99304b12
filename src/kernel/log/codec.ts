import { type CheckedSchema, findProblem } from '../core/check.ts';
import { RyeError } from '../core/errors.ts';
import type { LogEvent, LogHeader, UnknownEvent } from '../core/events.ts';
import { isRecord, type JsonValue, parseJson } from '../core/json.ts';
import schema from '../schemas/events.json' with { type: 'json' };

function isBlock(block: unknown): boolean {
  if (!isRecord(block)) return false;
  const { type } = block;
  if (type === 'text' || type === 'thinking') return typeof block['text'] === 'string';
  if (type === 'tool_call') {
    const { call_id, name, input } = block;
    return typeof call_id === 'string' && typeof name === 'string' && isRecord(input);
  }
  if (type !== 'image') return false;
  return typeof block['data'] === 'string' && typeof block['media_type'] === 'string';
}

function areBlocks(content: unknown): boolean {
  if (!Array.isArray(content)) return false;
  for (let at = 0; at < content.length; at += 1) if (!isBlock(content[at])) return false;
  return true;
}

/** The check of most lines of a large log, by hand for speed. It refuses what the declaration refuses. */
function messageProblem({ message: value }: Record<string, unknown>): string | undefined {
  if (!isRecord(value)) return 'its payload has no message';
  const { role, content, call_id } = value;
  if (role !== 'assistant' && role !== 'tool_result' && role !== 'user') {
    return `its message has the unknown role ${JSON.stringify(role)}`;
  }
  if (!areBlocks(content)) return "its message's content is not a list of known blocks";
  if (role === 'tool_result' && typeof call_id !== 'string') {
    return 'its tool result names no call_id';
  }
  return undefined;
}

const schemas: Readonly<Record<string, CheckedSchema>> = schema.properties;

/** Why the payload of a known type can't be folded, or undefined. Unknown types have nothing to check. */
export function payloadProblem(
  eventType: string,
  payload: Record<string, unknown>,
): string | undefined {
  if (eventType === 'message') return messageProblem(payload);
  const declared = Object.hasOwn(schemas, eventType) ? schemas[eventType] : undefined;
  return declared && findProblem(declared, payload)?.text;
}

/** The longest line of a log in bytes, line feed included. Bigger content goes to `artifacts/`. */
export const MAX_LINE_BYTES = 16 * 1024 * 1024;

/** One event as the log holds it: compact JSON with the members in the order of the format, and a line feed. */
export function encodeEvent(event: LogEvent | UnknownEvent): string {
  return `${eventJson(event)}\n`;
}

function eventJson(event: LogEvent | UnknownEvent): string {
  const { seq, timestamp, thread_id, event_type, payload, id, parent_id } = event;
  const place = id === undefined ? {} : { id, parent_id: parent_id ?? null };
  return JSON.stringify({ seq, timestamp, thread_id, event_type, payload, ...place });
}

const LINE_FEED = 10;

/**
 * The bytes of {@link encodeEvent}; undefined for more than {@link MAX_LINE_BYTES}. A line of megabytes is copied once, which
 * appending a line feed to the text would double.
 */
export function eventBytes(event: LogEvent | UnknownEvent): Buffer | undefined {
  const json = eventJson(event);
  const size = Buffer.byteLength(json) + 1;
  if (size > MAX_LINE_BYTES) return undefined;
  const bytes = Buffer.allocUnsafe(size);
  bytes.write(json);
  bytes[size - 1] = LINE_FEED;
  return bytes;
}

/** Line 1 of a log, line feed included. */
export function encodeHeader(header: LogHeader): string {
  const { event_type, version, thread_id, directive, created_at, continuation_of, branched_from } =
    header;
  return `${JSON.stringify({
    event_type,
    version,
    thread_id,
    directive,
    created_at,
    continuation_of,
    branched_from,
  })}\n`;
}

/** The error for an event over {@link MAX_LINE_BYTES}. */
export function tooLong(eventType: string): RyeError {
  return new RyeError(
    'log_write_failed',
    `a ${eventType} event is larger than a log line can be (${MAX_LINE_BYTES} bytes)`,
    { hint: 'Store big content as an artifact of the thread and log its path.' },
  );
}

/** The header in `line`, or why the file is not a log that this version can read. */
export function decodeHeader(
  line: string,
): { readonly header: LogHeader } | { readonly problem: string } {
  const value = parseJson(line);
  if (!isRecord(value)) return { problem: 'its first line is not a JSON object' };
  if (value['event_type'] !== 'thread') return { problem: 'its first line is not a thread header' };
  const problem = versionProblem(value['version']);
  if (problem !== undefined) return { problem };
  for (const member of ['thread_id', 'directive', 'created_at']) {
    if (typeof value[member] !== 'string') return { problem: `its header has no ${member}` };
  }
  return { header: value as unknown as LogHeader };
}

/** A piece of a line: an event, or bytes that are none. `start` counts UTF-16 units from the line's start. */
export type LinePiece =
  | { readonly start: number; readonly event: LogEvent | UnknownEvent }
  | { readonly start: number; readonly problem: string };

const RECORD_START = '{"seq":';
// more joints than this on one broken line is damage, not two records run together
const MAX_JOINTS = 8;

/**
 * Reads one line without its line feed. Usually one piece; a line on which records ran together, as a torn write
 * followed by an append leaves it, yields each record and the rest as problems.
 */
export function decodeLine(line: string): readonly LinePiece[] {
  const whole = decodeEvent(line);
  if (whole.event) return [{ start: 0, event: whole.event }];
  const joints = jointsOf(line);
  return joints.length === 0 ? [{ start: 0, problem: whole.problem }] : splitAt(line, joints);
}

function jointsOf(line: string): readonly number[] {
  const joints: number[] = [];
  let at = line.indexOf(RECORD_START, 1);
  while (at !== -1 && joints.length < MAX_JOINTS) {
    joints.push(at);
    at = line.indexOf(RECORD_START, at + 1);
  }
  return joints;
}

function splitAt(line: string, joints: readonly number[]): readonly LinePiece[] {
  const pieces: LinePiece[] = [];
  let start = 0;
  for (const end of [...joints, line.length]) {
    const { event } = decodeEvent(line.slice(start, end));
    if (event) {
      pieces.push({ start, event });
      start = end;
    }
  }
  if (start === line.length) return pieces;
  // the start may be a torn record before a whole one
  const rest = joints.find((joint) => joint > start && decodeEvent(line.slice(joint)).event);
  pieces.push({ start, problem: 'it is not a JSON object' });
  const tail = rest === undefined ? undefined : decodeEvent(line.slice(rest)).event;
  if (rest !== undefined && tail) pieces.push({ start: rest, event: tail });
  return pieces;
}

type Decoded =
  | { readonly event: LogEvent | UnknownEvent; readonly problem?: never }
  | { readonly event?: never; readonly problem: string };

function decodeEvent(text: string): Decoded {
  const value = parseJson(text);
  if (value === undefined) return { problem: 'it is not a JSON object' };
  const problem = envelopeProblem(value);
  if (problem !== undefined) return { problem };
  return { event: value as unknown as LogEvent | UnknownEvent };
}

function envelopeProblem(value: JsonValue): string | undefined {
  if (!isRecord(value)) return 'it is not a JSON object';
  const { seq, timestamp, thread_id, event_type, payload, id, parent_id } = value;
  if (!Number.isSafeInteger(seq) || (seq as number) < 1) return 'its seq is not a positive integer';
  if (typeof timestamp !== 'string') return 'it has no timestamp';
  if (typeof thread_id !== 'string') return 'it has no thread_id';
  if (typeof event_type !== 'string') return 'it has no event_type';
  if (!isRecord(payload)) return 'its payload is not an object';
  if (id !== undefined && typeof id !== 'string') return 'its id is not a string';
  if (parent_id !== undefined && parent_id !== null && typeof parent_id !== 'string') {
    return 'its parent_id is neither a string nor null';
  }
  return payloadProblem(event_type, payload);
}

/** The version of the log format that is written. */
export const LOG_VERSION = 1;

type Event = LogEvent | UnknownEvent;

/**
 * Turns an event of one version into one of the next. It leaves an event as it is that has the newer form already, since
 * a log that an older rye began is appended to in today's form.
 */
export type LogStep = (event: Event) => Event;

/** The step at index 0 leads from version 1 to version 2. A version that is released once is never taken out. */
const STEPS: readonly LogStep[] = [];

/** Why a header's version cannot be read, or undefined. A newer one is never guessed at, and never appended to. */
export function versionProblem(version: unknown): string | undefined {
  if (typeof version !== 'number' || !Number.isSafeInteger(version) || version < 1) {
    return `its format version ${JSON.stringify(version)} is not known`;
  }
  return version <= LOG_VERSION
    ? undefined
    : `its format version ${version} is not known; a newer rye wrote it`;
}

/**
 * Returns the upgrade of a version's events to today's form, in memory: a file is never rewritten. Undefined if nothing has
 * changed since.
 */
export function upgradeFrom(
  version: number,
  steps: readonly LogStep[] = STEPS,
): LogStep | undefined {
  const due = steps.slice(version - 1);
  if (due.length === 0) return undefined;
  return (event) => due.reduce((upgraded, step) => step(upgraded), event);
}

/** Kinds of defects in a log that is still readable. */
export type LogProblemKind =
  | 'torn_tail'
  | 'fused'
  | 'malformed'
  | 'too_long'
  | 'gap'
  | 'orphan'
  | 'cycle'
  | 'duplicate_id';

/** One defect of a log; `offset` is the byte offset of the line. */
export interface LogProblem {
  readonly kind: LogProblemKind;
  readonly offset: number;
  readonly message: string;
}

/** True for defects that leave no sensible tree; the others were repaired in memory and are warnings. */
export function isFatalProblem(problem: LogProblem): boolean {
  return problem.kind === 'cycle' || problem.kind === 'duplicate_id';
}

/** True if `bytes` contains `needle` at offset `at`. */
export function matchesAt(bytes: Buffer, needle: Buffer, at: number): boolean {
  if (at + needle.length > bytes.length) return false;
  for (let index = 0; index < needle.length; index += 1) {
    if (bytes[at + index] !== needle[index]) return false;
  }
  return true;
}

const SEQ_PREFIX = Buffer.from('{"seq":');

/** The seq of the line at `start` and where its digits end, if the line starts as the encoder writes it. */
export function seqAt(
  bytes: Buffer,
  start: number,
): { readonly seq: number; readonly end: number } | undefined {
  if (!matchesAt(bytes, SEQ_PREFIX, start)) return undefined;
  let seq = 0;
  let end = start + SEQ_PREFIX.length;
  for (let byte = bytes[end] ?? 0; byte >= 0x30 && byte <= 0x39; byte = bytes[end] ?? 0) {
    seq = seq * 10 + byte - 0x30;
    end += 1;
  }
  return seq === 0 ? undefined : { seq, end };
}

/** Bytes between the digits of the seq and the event type, as the encoder lays out the lines of a thread. */
export function typeDistance(threadId: string): number {
  const between = `,"timestamp":"2026-01-01T00:00:00.000Z","thread_id":${JSON.stringify(threadId)},`;
  return Buffer.byteLength(between);
}
