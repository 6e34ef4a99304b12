import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { RyeError } from '../../core/errors.ts';
import { isRecord, parseJson } from '../../core/json.ts';
import type { AssistantMessage, Message } from '../../core/message.ts';
import type {
  ModelEvent,
  ModelProvider,
  ModelRequest,
  ProviderFailure,
  ProviderKind,
} from '../provider.ts';

/** One recorded model call. */
export interface RecordedCall {
  readonly model: string;
  /** SHA-256 hex of the request's JSON, for people who compare runs; null where there was no request. */
  readonly requestSha256: string | null;
  readonly events: readonly ModelEvent[];
}

/** Model calls in the order in which they were made. */
export interface Recording {
  readonly calls: readonly RecordedCall[];
}

const EVENT_TYPES: ReadonlySet<unknown> = new Set([
  'start',
  'text_delta',
  'thinking_delta',
  'toolcall_start',
  'toolcall_delta',
  'toolcall_end',
  'usage',
  'finish',
  'error',
] satisfies ModelEvent['type'][]);

/** SHA-256 hex over the JSON of a request. */
function requestDigest(request: ModelRequest): string {
  return createHash('sha256').update(JSON.stringify(request)).digest('hex');
}

/**
 * Passes a provider's events through and hands each line of the recording to `sink` first: `{"record": "call",
 * "model", "request_sha256"}`, then `{"record": "event", "event"}` for each event. Lines have no line break.
 */
export function recordingProvider(
  inner: ModelProvider,
  sink: (line: string) => void | Promise<void>,
): ModelProvider {
  return {
    name: inner.name,
    async *stream(request, signal) {
      await sink(
        JSON.stringify({
          record: 'call',
          model: request.model,
          request_sha256: requestDigest(request),
        }),
      );
      for await (const event of inner.stream(request, signal)) {
        await sink(JSON.stringify({ record: 'event', event }));
        yield event;
      }
    },
  };
}

/**
 * Parses the lines of a recording. A torn last line, as a crash leaves one, is ignored; any other line that is not
 * a record is `invalid_input` with the path and line. A call that was never finished is played as far as it goes.
 */
export function parseRecording(text: string, path: string): Recording {
  const calls: { model: string; requestSha256: string | null; events: ModelEvent[] }[] = [];
  const lines = text.split('\n');
  for (const [index, line] of lines.entries()) {
    if (line.trim() === '') continue;
    const record = parseJson(line);
    const isTornTail = record === undefined && index === lines.length - 1;
    if (isTornTail) break;
    const call = calls.at(-1);
    if (isRecord(record) && record['record'] === 'call') {
      const { model, request_sha256: digest } = record;
      calls.push({
        model: typeof model === 'string' ? model : '',
        requestSha256: typeof digest === 'string' ? digest : null,
        events: [],
      });
    } else if (
      isRecord(record) &&
      record['record'] === 'event' &&
      isEvent(record['event']) &&
      call
    ) {
      call.events.push(record['event']);
    } else {
      throw new RyeError('invalid_input', 'this is not a line of a recording', {
        location: { path, line: index + 1 },
        hint: 'Record one with --record FILE.',
      });
    }
  }
  return { calls };
}

function isEvent(value: unknown): value is ModelEvent {
  return isRecord(value) && EVENT_TYPES.has(value['type']);
}

/** A recording of the answers in a thread's messages, one call per complete assistant message. */
export function recordingFromMessages(messages: readonly Message[]): Recording {
  const answers = messages.filter((message) => message.role === 'assistant');
  return {
    calls: answers.flatMap((message) => {
      const { stop_reason: reason, model } = message;
      // a partial answer was cut by something that will not happen again
      if (reason === 'aborted') return [];
      return [{ model, requestSha256: null, events: eventsOf(message, reason) }];
    }),
  };
}

function eventsOf(
  { content, model, usage }: AssistantMessage,
  reason: Exclude<AssistantMessage['stop_reason'], 'aborted'>,
): readonly ModelEvent[] {
  const deltas = content.flatMap((block): ModelEvent[] => {
    if (block.type === 'text') return [{ type: 'text_delta', text: block.text }];
    if (block.type === 'thinking')
      return block.text === '' ? [] : [{ type: 'thinking_delta', text: block.text }];
    const { call_id, name, input, malformed } = block;
    return [
      { type: 'toolcall_start', call_id, name },
      { type: 'toolcall_delta', call_id, json: malformed ?? JSON.stringify(input) },
      { type: 'toolcall_end', call_id },
    ];
  });
  return [
    { type: 'start', model },
    ...deltas,
    { type: 'usage', usage },
    { type: 'finish', reason, content },
  ];
}

const ABORTED: ProviderFailure = { phase: 'aborted', message: 'the model call was cancelled' };

/** The kind that plays the recording at `path`. One player serves the whole thread: a recording is played once, in order. */
export function replayKind(path: string | undefined): ProviderKind {
  let player: ModelProvider | undefined;
  return {
    traits: { embedded: true, replayable: false, needsTools: false },
    open: () => {
      if (path === undefined) {
        throw new RyeError('usage', 'the replay provider needs a recording', {
          hint: 'Give one with --replay FILE; `--record FILE` writes one.',
        });
      }
      player ??= replayProvider(parseRecording(readFileSync(path, 'utf8'), path));
      return player;
    },
  };
}

/**
 * Plays recorded calls in their order and ignores the requests; the first `skip` calls count as played. After the last
 * one every call fails with the type `replay_exhausted`. A call whose recording was cut ends as a broken stream.
 */
export function replayProvider(recording: Recording, { skip = 0 } = {}): ModelProvider {
  let next = skip;
  return {
    name: 'replay',
    async *stream(_request, signal) {
      const call = recording.calls[next];
      next += 1;
      for (const event of call === undefined ? [exhausted(recording)] : complete(call.events)) {
        if (signal.aborted) {
          yield { type: 'error', failure: ABORTED };
          return;
        }
        yield event;
      }
    },
  };
}

function exhausted({ calls }: Recording): ModelEvent {
  const message = `the recording has ${calls.length} model calls and another one was asked for`;
  return { type: 'error', failure: { phase: 'response', type: 'replay_exhausted', message } };
}

function complete(events: readonly ModelEvent[]): readonly ModelEvent[] {
  const last = events.at(-1)?.type;
  if (last === 'finish' || last === 'error') return events;
  const failure = {
    phase: 'stream',
    type: 'incomplete_stream',
    message: 'the recording of this call is cut',
  } as const;
  return [...events, { type: 'error', failure }];
}
