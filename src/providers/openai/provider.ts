import { isJsonObject, isRecord, parseJson } from '../../core/json.ts';
import { bodyOf, httpFetch } from '../../startup/http-fetch.ts';
import { usedCallIds } from '../adapter.ts';
import { CAPABILITIES, type ModelConfig, type ProviderConfig } from '../catalog.ts';
import { type FailureContext, failureOf, type StreamFault, streamFailure } from '../failure.ts';
import {
  type ModelEvent,
  type ModelProvider,
  type ModelRequest,
  type ProviderKind,
  type ProviderSetup,
  REMOTE_MODEL,
} from '../provider.ts';
import { answerLimits, type StallWatch, stallWatch, wholeEvents } from '../stream-guards.ts';
import { longNames } from './messages.ts';
import { buildRequest, type ModelTraits } from './request.ts';
import type * as sdkModule from './sdk.ts';
import { type ChunkDecoder, chunkDecoder } from './stream.ts';

export type OpenAiOptions = Pick<ProviderSetup, 'config' | 'env' | 'clock' | 'stallSeconds'>;

export const OPENAI: ProviderKind = { traits: REMOTE_MODEL, open: openAiProvider };

type Sdk = typeof sdkModule;
type Client = InstanceType<Sdk['OpenAI']>;

/**
 * Any server of OpenAI's chat completions through the `openai` SDK, streaming, one attempt per call. The SDK is
 * loaded by the first call.
 */
export function openAiProvider(options: OpenAiOptions): ModelProvider {
  const { config, env, clock, stallSeconds } = options;
  const read = (name: string | null): string | undefined =>
    name === null ? undefined : env[name] || undefined;
  const baseURL = read(config.baseUrlEnv) ?? config.baseUrl ?? 'https://api.openai.com/v1';
  const key = read(config.apiKeyEnv) ?? read(config.authTokenEnv);
  let client: Promise<{ sdk: Sdk; api: Client }> | undefined;
  return {
    name: config.name,
    async *stream(request, signal) {
      const host = hostOf(baseURL);
      const needsKey = config.apiKeyEnv !== null || config.authTokenEnv !== null;
      if (host === undefined || (needsKey && key === undefined)) {
        yield {
          type: 'error',
          failure: host === undefined ? addressInvalid(config) : keyMissing(config),
        };
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
        secrets: [key ?? ''],
      });
      try {
        client ??= open(config, baseURL, key);
        const { sdk, api } = await client;
        const traits = traitsOf(config, request.model);
        const body = buildRequest(request, traits);
        const response = await watch.wait(
          api.post('/chat/completions', { body, signal: watch.signal, stream: true }).asResponse(),
        );
        phase = 'stream';
        const decoder = decoderFor(request, traits);
        yield* answer({ sdk, response, watch, request, decoder, context });
      } catch (error) {
        yield { type: 'error', failure: failureOf(error, context()) };
      } finally {
        watch.end();
      }
    },
  };
}

async function open(config: ProviderConfig, baseURL: string, key: string | undefined) {
  const sdk = await import('./sdk.ts');
  const api = new sdk.OpenAI({
    baseURL,
    // the SDK wants a key even for servers that need none; then its header is left out below
    apiKey: key ?? 'none',
    // what the SDK would take from the process's environment by itself
    adminAPIKey: null,
    organization: null,
    project: null,
    webhookSecret: null,
    defaultHeaders: { ...config.headers, ...(key === undefined ? { Authorization: null } : {}) },
    maxRetries: 0,
    logLevel: 'off',
    fetch: fetchWithError,
  });
  return { sdk, api };
}

/** The SDK reads only errors inside `error`; some servers have them elsewhere in the body. */
const fetchWithError: typeof fetch = async (input, init) => {
  const response = await httpFetch(input, init);
  if (response.ok) return response;
  const { status, headers } = response;
  const text = await response.text();
  const body = parseJson(text);
  if (!isRecord(body) || isRecord(body['error'])) return new Response(text, { status, headers });
  const message = [body['error'], body['message'], body['detail']].find(
    (one) => typeof one === 'string',
  );
  if (message === undefined) return new Response(text, { status, headers });
  return Response.json({ error: { message, type: body['type'] } }, { status, headers });
};

interface Answer {
  readonly sdk: Sdk;
  readonly response: Response;
  readonly watch: StallWatch;
  readonly request: ModelRequest;
  readonly decoder: ChunkDecoder;
  readonly context: () => FailureContext;
}

async function* answer(parts: Answer): AsyncGenerator<ModelEvent> {
  const { sdk, response, watch, request, decoder, context } = parts;
  const contentType = response.headers.get('content-type') ?? 'text/event-stream';
  const body = bodyOf(response);
  if (!contentType.includes('text/event-stream') || body === undefined) {
    const message = `expected a stream of events and got ${contentType} from ${context().host}`;
    const failure = streamFailure({ type: 'unexpected_content_type', message }, context());
    yield { type: 'error', failure: { ...failure, phase: 'response', status: response.status } };
    return;
  }
  // the iterator reads nothing but the body, and takes anything iterable for it
  const bytes = wholeEvents(watch.bytes(body), answerLimits(request.max_tokens));
  const watched = { body: bytes } as unknown as Response;
  let isMarked = false;
  for await (const { data } of sdk.serverSentEvents(watched, new AbortController())) {
    // what came in one piece must not be finished after the abort
    if (watch.signal.aborted) break;
    if (data === '') continue;
    isMarked = data.startsWith('[DONE]');
    if (isMarked) break;
    const chunk = parseJson(data);
    const { events, error } = isJsonObject(chunk)
      ? decoder.push(chunk)
      : { events: [], error: MALFORMED };
    yield* events;
    if (error !== undefined) {
      yield { type: 'error', failure: streamFailure(error, context()) };
      return;
    }
  }
  // an aborted body may end like a finished one
  if (watch.signal.aborted) throw new Error('aborted');
  watch.settle(body);
  const { events, error } = decoder.end(isMarked);
  yield* events;
  if (error !== undefined) yield { type: 'error', failure: streamFailure(error, context()) };
}

const MALFORMED: StreamFault = {
  type: 'malformed_event',
  message: 'an event of the answer is not JSON',
};

function decoderFor(request: ModelRequest, traits: ModelTraits): ChunkDecoder {
  return chunkDecoder({
    takenIds: usedCallIds(request.messages),
    longNames: longNames(request),
    textCalls: request.tools.length > 0 && !traits.capabilities.includes('tools'),
  });
}

function traitsOf({ name, dialect, models, otherModels }: ProviderConfig, id: string): ModelTraits {
  const configured: ModelConfig | null | undefined = Object.hasOwn(models, id)
    ? models[id]
    : otherModels;
  const thinking = configured?.thinking;
  return {
    provider: name,
    dialect,
    capabilities: configured?.capabilities ?? CAPABILITIES,
    ...(thinking === undefined ? {} : { thinking }),
  };
}

function hostOf(text: string): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isUsable = url !== undefined && /^https?:$/.test(url.protocol) && url.username === '';
  return isUsable ? url.host : undefined;
}

/** Does not repeat the address: it may hold a password. */
function addressInvalid({ name, baseUrlEnv }: ProviderConfig) {
  const where = baseUrlEnv === null ? 'base_url' : `base_url or ${baseUrlEnv}`;
  const message = `the address of the provider ${name} (${where}) is not an http(s) URL without credentials`;
  return { phase: 'connect', type: 'ERR_INVALID_URL', message } as const;
}

function keyMissing({ name, apiKeyEnv, authTokenEnv }: ProviderConfig) {
  const message = `the provider ${name} has no key: set ${apiKeyEnv ?? authTokenEnv ?? ''}`;
  return { phase: 'connect', type: 'provider_key_missing', message } as const;
}
