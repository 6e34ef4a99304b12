import { isJsonObject, type JsonObject, parseJson } from '../core/json.ts';
import type { Message, ToolCallBlock } from '../core/message.ts';
import { bodyOf } from '../startup/http-fetch.ts';
import { signedFetch } from './aws-signature.ts';
import type { ProviderConfig } from './catalog.ts';
import { type Endpoint, endpointOf, missingVariables } from './endpoint.ts';
import { BatchedEvents, type Batches } from './event-batches.ts';
import { answerLimits, EventStream } from './event-stream.ts';
import { type FailureContext, failureOf, type StreamFault, streamFailure } from './failure.ts';
import {
  type ModelEvent,
  type ModelProvider,
  type ModelRequest,
  type ProviderFailure,
  type ProviderSetup,
} from './provider.ts';
import { type StallWatch, stallWatch } from './stream-guards.ts';

/** The part of a {@link ProviderSetup} that a client of an HTTP API needs. */
export type HttpSetup = Pick<ProviderSetup, 'config' | 'env' | 'clock' | 'stallSeconds'>;

/** A vendor's client, ready to be called. */
export interface Client {
  /** Sends the request; resolves once the headers of the response have come. */
  post(request: ModelRequest, signal: AbortSignal): Promise<Response>;
}

/** One chunk decoded: events to pass on, or the error that the server reports, or the end of the answer. */
export interface Decoded {
  readonly events: readonly ModelEvent[];
  readonly error?: StreamFault;
  readonly done?: boolean;
}

/** Turns the chunks of one streamed answer into model events, in order. */
export interface StreamDecoder {
  push(chunk: JsonObject): Decoded;
  /** Called when the body ends before a chunk was `done`; `isMarked` tells that its last event was `[DONE]`. */
  end(isMarked: boolean): Decoded;
}

/** The differences between two APIs that stream server-sent events. */
export interface SseApi {
  readonly defaultURL: string;
  /** True if the API is never called without a key; else only if the configuration names a variable for one. */
  readonly needsKey: boolean;
  /** Loads the vendor's client; called once, before the first request. */
  readonly connect: (endpoint: Endpoint) => Promise<Client>;
  readonly decoder: (request: ModelRequest) => StreamDecoder;
}

/** A provider whose API streams server-sent events: one attempt per call, watched for stalls and for its size. */
export function sseProvider(setup: HttpSetup, api: SseApi): ModelProvider {
  const { config, clock, stallSeconds } = setup;
  const endpoint = endpointOf(config, setup.env, api.defaultURL);
  const { aws } = endpoint;
  let client: Promise<Client> | undefined;
  const connect = async (): Promise<Client> => await (client ??= api.connect(endpoint));
  const ask = async function* (request: ModelRequest, signal: AbortSignal): Batches {
    const host = hostOf(endpoint.baseURL);
    const missing = setupMissing(config, setup, api);
    if (host === undefined || missing) {
      yield [{ type: 'error', failure: missing ?? addressInvalid(config) }];
      return;
    }
    const watch = stallWatch({ clock, stallMs: stallSeconds * 1000, signal });
    let phase: FailureContext['phase'] = 'connect';
    const context = (): FailureContext => ({
      phase,
      stalled: watch.stalled(),
      aborted: signal.aborted,
      stallSeconds,
      host,
      nowMs: clock.now(),
      secrets: [
        endpoint.apiKey ?? '',
        endpoint.authToken ?? '',
        aws?.secretAccessKey ?? '',
        aws?.sessionToken ?? '',
      ],
    });
    try {
      const connected = await connect();
      const response = await watch.wait(connected.post(request, watch.signal));
      phase = 'stream';
      yield* answer({ response, watch, request, decoder: api.decoder(request), context });
    } catch (error) {
      yield [{ type: 'error', failure: failureOf(error, context()) }];
    } finally {
      watch.end();
    }
  };
  return {
    name: config.name,
    stream: (request, signal) => new BatchedEvents(ask(request, signal), signal),
  };
}

/** Returns `inner`, or one that signs requests if AWS access keys are the only credentials. */
export function authorizedFetch(
  { config: { awsService }, clock }: HttpSetup,
  { aws }: Endpoint,
  inner: typeof fetch,
): typeof fetch {
  if (aws === undefined || awsService === null) return inner;
  return signedFetch(inner, { credentials: aws, service: awsService, now: () => clock.now() });
}

interface Answer {
  readonly response: Response;
  readonly watch: StallWatch;
  readonly request: ModelRequest;
  readonly decoder: StreamDecoder;
  readonly context: () => FailureContext;
}

async function* answer(options: Answer): Batches {
  const { response, watch, request, decoder, context } = options;
  const contentType = response.headers.get('content-type') ?? 'text/event-stream';
  const body = bodyOf(response);
  if (!contentType.includes('text/event-stream') || body === undefined) {
    const message = `expected a stream of events and got ${contentType} from ${context().host}`;
    const failure = streamFailure({ type: 'unexpected_content_type', message }, context());
    yield [{ type: 'error', failure: { ...failure, phase: 'response', status: response.status } }];
    return;
  }
  const stream = new EventStream(answerLimits(request.max_tokens));
  const reader = body[Symbol.asyncIterator]();
  try {
    for (;;) {
      const { value: piece, done } = await watch.wait(reader.next());
      // the body of an aborted request may end as if it were complete
      if (watch.signal.aborted) throw new Error('aborted');
      const isLast = done === true;
      const chunks = isLast ? stream.end() : stream.push(piece);
      const { events, end } = decodeAll(chunks, decoder, { isLast, context });
      if (end === 'whole') watch.settle(body);
      const isDropped = yield events;
      if (isDropped) throw new Error('aborted');
      if (end) return;
      stream.check();
    }
  } finally {
    await reader.return?.();
  }
}

interface DecodedPiece {
  readonly events: readonly ModelEvent[];
  /** Present if the answer is over. The rest of a failed one is not read. */
  readonly end?: 'whole' | 'failed' | undefined;
}

/** Decodes the chunks that came in one piece. */
function decodeAll(
  chunks: readonly string[],
  decoder: StreamDecoder,
  { isLast, context }: { readonly isLast: boolean; readonly context: () => FailureContext },
): DecodedPiece {
  const events: ModelEvent[] = [];
  const take = ({ events: decoded, error, done }: Decoded): DecodedPiece['end'] => {
    events.push(...decoded);
    if (error) events.push({ type: 'error', failure: streamFailure(error, context()) });
    if (done === true) return 'whole';
    return error && 'failed';
  };
  for (const data of chunks) {
    if (data === '') continue;
    if (data.startsWith('[DONE]')) {
      take(decoder.end(true));
      return { events, end: 'whole' };
    }
    const chunk = parseJson(data);
    const end = take(isJsonObject(chunk) ? decoder.push(chunk) : MALFORMED);
    if (end) return { events, end };
  }
  if (!isLast) return { events };
  take(decoder.end(false));
  return { events, end: 'whole' };
}

const MALFORMED: Decoded = {
  events: [],
  error: { type: 'malformed_event', message: 'an event of the answer is not JSON' },
};

/** Returns the host of an HTTP URL without credentials; undefined for any other text. */
function hostOf(text: string): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isUsable = url !== undefined && /^https?:$/.test(url.protocol) && url.username === '';
  return isUsable ? url.host : undefined;
}

/** Does not repeat the address: it may hold a password. */
function addressInvalid({ name, baseUrlEnv }: ProviderConfig): ProviderFailure {
  const source = baseUrlEnv === null ? 'base_url' : `base_url or ${baseUrlEnv}`;
  const message = `the address of the provider ${name} (${source}) is not an http(s) URL without credentials`;
  return { phase: 'connect', type: 'ERR_INVALID_URL', message };
}

function setupMissing(
  config: ProviderConfig,
  { env }: HttpSetup,
  { needsKey }: SseApi,
): ProviderFailure | undefined {
  const { name, apiKeyEnv, authTokenEnv } = config;
  const missing = missingVariables(config, env);
  const isNameless = needsKey && apiKeyEnv === null && authTokenEnv === null;
  const [variable] = missing;
  if (variable === undefined && !isNameless) return undefined;
  const what =
    variable === undefined || variable === (apiKeyEnv ?? authTokenEnv) ? 'key' : 'address';
  const cure = variable === undefined ? 'api_key_env in its file' : missing.join(' and ');
  const message = `the provider ${name} has no ${what}: set ${cure}`;
  return { phase: 'connect', type: 'provider_key_missing', message };
}

/** The call ids of a conversation and of its new answer, which must not reuse one. Searched, not collected: most answers have one call. */
export class TakenIds {
  readonly #messages: readonly Message[];
  readonly #added = new Set<string>();

  constructor(messages: readonly Message[]) {
    this.#messages = messages;
  }

  has(id: string): boolean {
    if (this.#added.has(id)) return true;
    for (const message of this.#messages) {
      if (message.role !== 'assistant') continue;
      for (const block of message.content) {
        if (block.type === 'tool_call' && block.call_id === id) return true;
      }
    }
    return false;
  }

  add(id: string): void {
    this.#added.add(id);
  }
}

/** Ids that are taken. */
export type IdSet = Pick<TakenIds, 'has' | 'add'>;

/** Takes a call id for an answer; one that is taken already gets a number, because results could not be told apart. */
export function distinctId(id: string, taken: IdSet): string {
  const base = id === '' ? 'call' : id;
  let candidate = base;
  for (let attempt = 2; taken.has(candidate); attempt += 1) candidate = `${base}-${attempt}`;
  taken.add(candidate);
  return candidate;
}

/** A call with the streamed JSON of its arguments; `malformed` keeps a text that is no JSON object. */
export function callOfJson({
  callId,
  name,
  json,
}: {
  readonly callId: string;
  readonly name: string;
  readonly json: string;
}): ToolCallBlock {
  const call = { type: 'tool_call', call_id: callId, name } as const;
  const input = parseJson(json);
  return isJsonObject(input) ? { ...call, input } : { ...call, input: {}, malformed: json };
}
