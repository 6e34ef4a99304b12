import { isJsonObject, type JsonObject, parseJson } from '../core/json.ts';
import {
  type AssistantMessage,
  type Message,
  type ToolCallBlock,
  toolCallsOf,
} from '../core/message.ts';
import { bodyOf } from '../startup/http-fetch.ts';
import { signedFetch } from './aws-signature.ts';
import type { ProviderConfig } from './catalog.ts';
import { type Endpoint, endpointOf, missingVariables } from './endpoint.ts';
import { type FailureContext, failureOf, type StreamFault, streamFailure } from './failure.ts';
import {
  type ModelEvent,
  type ModelProvider,
  type ModelRequest,
  type ProviderFailure,
  type ProviderSetup,
} from './provider.ts';
import { answerLimits, type StallWatch, stallWatch, wholeEvents } from './stream-guards.ts';

/** The part of a {@link ProviderSetup} that a client of an HTTP API needs. */
export type HttpSetup = Pick<ProviderSetup, 'config' | 'env' | 'clock' | 'stallSeconds'>;

/** A vendor's client, ready to be called. */
export interface Client {
  /** Sends the request; resolves once the headers of the response have come. */
  post(request: ModelRequest, signal: AbortSignal): Promise<Response>;
  /** Parses server-sent events; reads only the body of `source`, and takes anything iterable for it. */
  parse(source: Response): AsyncIterable<{ readonly data: string }>;
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
  return {
    name: config.name,
    async *stream(request, signal) {
      const host = hostOf(endpoint.baseURL);
      const missing = setupMissing(config, setup, api);
      if (host === undefined || missing) {
        yield { type: 'error', failure: missing ?? addressInvalid(config) };
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
        client ??= api.connect(endpoint);
        const connected = await client;
        const response = await watch.wait(connected.post(request, watch.signal));
        phase = 'stream';
        const decoder = api.decoder(request);
        yield* answer({ client: connected, response, watch, request, decoder, context });
      } catch (error) {
        yield { type: 'error', failure: failureOf(error, context()) };
      } finally {
        watch.end();
      }
    },
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
  readonly client: Client;
  readonly response: Response;
  readonly watch: StallWatch;
  readonly request: ModelRequest;
  readonly decoder: StreamDecoder;
  readonly context: () => FailureContext;
}

async function* answer(options: Answer): AsyncGenerator<ModelEvent> {
  const { client, response, watch, request, decoder, context } = options;
  const contentType = response.headers.get('content-type') ?? 'text/event-stream';
  const body = bodyOf(response);
  if (!contentType.includes('text/event-stream') || body === undefined) {
    const message = `expected a stream of events and got ${contentType} from ${context().host}`;
    const failure = streamFailure({ type: 'unexpected_content_type', message }, context());
    yield { type: 'error', failure: { ...failure, phase: 'response', status: response.status } };
    return;
  }
  const bytes = wholeEvents(watch.bytes(body), answerLimits(request.max_tokens));
  let isMarked = false;
  for await (const { data } of client.parse({ body: bytes } as unknown as Response)) {
    // events that came in one piece must not be passed on after an abort
    if (watch.signal.aborted) break;
    if (data === '') continue;
    isMarked = data.startsWith('[DONE]');
    if (isMarked) break;
    const chunk = parseJson(data);
    const decoded = isJsonObject(chunk) ? decoder.push(chunk) : MALFORMED;
    if (decoded.done === true) watch.settle(body);
    yield* passedOn(decoded, context);
    if (decoded.done === true || decoded.error) return;
  }
  // the body of an aborted request may end as if it were complete
  if (watch.signal.aborted) throw new Error('aborted');
  watch.settle(body);
  yield* passedOn(decoder.end(isMarked), context);
}

const MALFORMED: Decoded = {
  events: [],
  error: { type: 'malformed_event', message: 'an event of the answer is not JSON' },
};

function* passedOn(
  { events, error }: Decoded,
  context: () => FailureContext,
): Generator<ModelEvent> {
  yield* events;
  if (error) yield { type: 'error', failure: streamFailure(error, context()) };
}

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

/** Messages never change, and a conversation sends all of them again with each turn. */
const idsOf = new WeakMap<AssistantMessage, readonly string[]>();

/** The call ids that the conversation already uses, so that a new answer cannot reuse one. */
export function usedCallIds(messages: readonly Message[]): Set<string> {
  const used = new Set<string>();
  for (const message of messages) {
    if (message.role !== 'assistant') continue;
    let ids = idsOf.get(message);
    if (ids === undefined) {
      ids = toolCallsOf(message).map(({ call_id }) => call_id);
      idsOf.set(message, ids);
    }
    for (const id of ids) used.add(id);
  }
  return used;
}

/** Takes a call id for an answer; one that is taken already gets a number, because results could not be told apart. */
export function distinctId(id: string, taken: Set<string>): string {
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
