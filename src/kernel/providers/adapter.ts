import { isJsonObject, type JsonObject, parseJson } from '../core/json.ts';
import type { Message, ToolCallBlock } from '../core/message.ts';
import { proxySecrets } from '../core/proxy-secrets.ts';
import type { Usage } from '../core/usage.ts';
import { bodyOf, httpFetch } from '../startup/http-fetch.ts';
import { ownInput, wellFormedJson, wireName } from './acceptable.ts';
import { signedFetch } from './aws-signature.ts';
import type { ProviderConfig } from './catalog.ts';
import { type Endpoint, endpointOf, missingVariables, usedVariables } from './endpoint.ts';
import { BatchedEvents, type Batches } from './event-batches.ts';
import { answerLimits, BodyForm, EventStream } from './event-stream.ts';
import { type FailureContext, failureOf, type StreamFault, streamFailure } from './failure.ts';
import type {
  ModelEvent,
  ModelProvider,
  ModelRequest,
  ProviderFailure,
  ProviderSetup,
} from './provider.ts';
import { type StallWatch, stallWatch } from './stream-guards.ts';
import type { WireRules } from './wire-rules.ts';

/** The part of a {@link ProviderSetup} that a client of an HTTP API needs. */
export type HttpSetup = Pick<
  ProviderSetup,
  'config' | 'env' | 'clock' | 'stallSeconds' | 'firstByteSeconds' | 'connectSeconds'
>;

/** A vendor's client, ready to be called. */
export interface Client {
  /** Sends the request; resolves once the headers of the response have come. */
  post(request: ModelRequest, signal: AbortSignal): Promise<Response>;
  /** Returns the count of an earlier answer; only for an API that tells it. */
  settle?(answerId: string, signal: AbortSignal): Promise<Usage | undefined>;
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
  /** Decodes an answer that came whole, as one JSON document. */
  whole(document: JsonObject): Decoded;
}

/** The differences between two APIs that stream server-sent events. */
export interface SseApi {
  readonly defaultURL: string;
  /** True if the API is never called without a key; else only if the configuration names a variable for one. */
  readonly needsKey: boolean;
  /** Loads the vendor's client; called once, before the first request. */
  readonly connect: (endpoint: Endpoint) => Promise<Client>;
  readonly decoder: (request: ModelRequest) => StreamDecoder;
  /** True if the client can {@link Client.settle} an answer. */
  readonly settles?: boolean;
}

/** A provider whose API streams server-sent events: one attempt per call, watched for stalls and for its size. */
export function sseProvider(setup: HttpSetup, api: SseApi): ModelProvider {
  const { config, clock, stallSeconds, firstByteSeconds = stallSeconds } = setup;
  const endpoint = endpointOf(config, setup.env, api.defaultURL);
  const { aws } = endpoint;
  let client: Promise<Client> | undefined;
  const connect = async (): Promise<Client> => {
    client ??= api.connect(endpoint);
    try {
      return await client;
    } catch (error) {
      client = undefined;
      throw error;
    }
  };
  const ask = async function* (request: ModelRequest, signal: AbortSignal): Batches {
    const host = hostOf(endpoint.baseURL);
    const unusable = setupMissing(config, setup, api) ?? keyMalformed(config, setup, endpoint);
    if (host === undefined || unusable) {
      yield [{ type: 'error', failure: unusable ?? addressInvalid(config) }];
      return;
    }
    const watch = stallWatch({ clock, firstByteSeconds, idleSeconds: stallSeconds, signal });
    let phase: FailureContext['phase'] = 'connect';
    const context = (): FailureContext => ({
      phase,
      stalled: watch.stalled(),
      aborted: signal.aborted,
      host,
      nowMs: clock.now(),
      secrets: [
        endpoint.apiKey ?? '',
        endpoint.authToken ?? '',
        aws?.secretAccessKey ?? '',
        aws?.sessionToken ?? '',
        ...proxySecrets(setup.env),
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
    ...(api.settles
      ? { settle: async (id, signal) => await (await connect()).settle?.(id, signal) }
      : {}),
  };
}

const CONNECT_SECONDS = 10;

/** Returns the `fetch` of a client, `inner` on top of it, which signs requests if AWS access keys are the only credentials. */
export function authorizedFetch(
  { config: { awsService }, clock, env, connectSeconds = CONNECT_SECONDS }: HttpSetup,
  { aws }: Endpoint,
  wrap: (plain: typeof fetch) => typeof fetch = (plain) => plain,
): typeof fetch {
  const connectMs = connectSeconds * 1000;
  const inner = wrap(async (address, init) => await httpFetch(address, init, { connectMs, env }));
  const outer =
    aws === undefined || awsService === null
      ? inner
      : signedFetch(inner, { credentials: aws, service: awsService, now: () => clock.now() });
  return async (address, init) => {
    const body = init?.body;
    return await outer(
      address,
      typeof body === 'string' ? { ...init, body: wellFormedJson(body) } : init,
    );
  };
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
  const unexpected = (): readonly ModelEvent[] => {
    const message = `expected a stream of events and got ${contentType} from ${context().host}`;
    const failure = streamFailure({ type: 'unexpected_content_type', message }, context());
    return [{ type: 'error', failure: { ...failure, phase: 'response', status: response.status } }];
  };
  if (body === undefined) {
    yield unexpected();
    return;
  }
  const form = new BodyForm(/^text\/event-stream\b/i.test(contentType.trim()));
  const stream = new EventStream(answerLimits(request.max_tokens));
  const reader = body[Symbol.asyncIterator]();
  try {
    for (;;) {
      const { value: piece, done } = await watch.wait(reader.next());
      // the body of an aborted request may end as if it were complete
      if (watch.signal.aborted) throw new Error('aborted');
      watch.begin();
      const isLast = done === true;
      if (!isLast) form.take(piece);
      if (form.kind === 'other') {
        yield unexpected();
        return;
      }
      const chunks = isLast ? stream.end() : stream.push(piece);
      const { events, end } =
        isLast && form.kind === 'document'
          ? wholeAnswer(form.text(), decoder, context)
          : decodeAll(chunks, decoder, { isLast, context });
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

/** Decodes an answer that came as one JSON document instead of a stream. */
function wholeAnswer(
  text: string,
  decoder: StreamDecoder,
  context: () => FailureContext,
): DecodedPiece {
  const document = parseJson(text);
  const { events, error } = isJsonObject(document) ? decoder.whole(document) : MALFORMED;
  const failed: ModelEvent[] = error
    ? [{ type: 'error', failure: streamFailure(error, context()) }]
    : [];
  return { events: [...events, ...failed], end: 'whole' };
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

/** A header carries no other characters, and no vendor has them in its keys. Copied placeholders do. */
const NOT_IN_A_KEY = /[^!-~]/;

function keyMalformed(
  config: ProviderConfig,
  { env }: HttpSetup,
  { apiKey, authToken }: Endpoint,
): ProviderFailure | undefined {
  if (!NOT_IN_A_KEY.test(apiKey ?? authToken ?? '')) return undefined;
  const { key = 'its variable' } = usedVariables(config, env);
  const message = `the key in ${key} is not a key: it has a space, a line feed or a character outside ASCII`;
  return { phase: 'connect', type: 'provider_key_malformed', message };
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

/** The tools of a request by their names on the wire. */
export class ToolNames {
  readonly #names: ReadonlyMap<string, string>;
  readonly #tools: ModelRequest['tools'];
  readonly #rules: WireRules;

  constructor(tools: ModelRequest['tools'], rules: WireRules) {
    this.#names = new Map(tools.map(({ name }) => [wireName(name, rules), name]));
    this.#tools = tools;
    this.#rules = rules;
  }

  /** A call with the names of properties that its tool has. */
  own(call: ToolCallBlock): ToolCallBlock {
    const tool = this.#tools.find(({ name }) => name === call.name);
    return tool ? { ...call, input: ownInput(call.input, tool.input_schema, this.#rules) } : call;
  }

  /** The full name of a tool. Models put a namespace before it, such as `functions.`; what no tool has stays as it is. */
  full(name: string): string {
    const own = name.trim();
    return this.#names.get(own) ?? this.#names.get(own.split(/[./:\s]/).at(-1) ?? '') ?? name;
  }
}
