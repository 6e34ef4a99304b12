import { isJsonObject, parseJson } from '../../core/json.ts';
import { bodyOf, httpFetch } from '../../startup/http-fetch.ts';
import { usedCallIds } from '../adapter.ts';
import type { ProviderConfig } from '../catalog.ts';
import { type FailureContext, failureOf, streamFailure } from '../failure.ts';
import {
  type ModelEvent,
  type ModelProvider,
  type ModelRequest,
  type ProviderKind,
  type ProviderSetup,
  REMOTE_MODEL,
} from '../provider.ts';
import { answerLimits, type StallWatch, stallWatch, wholeEvents } from '../stream-guards.ts';
import { buildRequest, type ModelTraits, traitsOfId } from './request.ts';
import type * as sdkModule from './sdk.ts';
import { type StreamDecoder, streamDecoder } from './stream.ts';

export type AnthropicOptions = Pick<ProviderSetup, 'config' | 'env' | 'clock' | 'stallSeconds'>;

export const ANTHROPIC: ProviderKind = { traits: REMOTE_MODEL, open: anthropicProvider };

interface Credentials {
  readonly baseURL: string;
  readonly apiKey: string | undefined;
  readonly authToken: string | undefined;
}

type Sdk = typeof sdkModule;

/** Claude through `@anthropic-ai/sdk`, streaming, one attempt per call. The SDK is loaded by the first call. */
export function anthropicProvider(options: AnthropicOptions): ModelProvider {
  const credentials = credentialsOf(options);
  let client: Promise<{ sdk: Sdk; api: InstanceType<Sdk['BaseAnthropic']> }> | undefined;
  const open = async () => {
    const sdk = await import('./sdk.ts');
    const { apiKey = null, authToken = null, baseURL } = credentials;
    const api = new sdk.BaseAnthropic({
      baseURL,
      // the key wins: the SDK takes exactly one credential
      ...(apiKey === null ? { authToken } : { apiKey }),
      defaultHeaders: options.config.headers,
      maxRetries: 0,
      logLevel: 'off',
      fetch: httpFetch,
    });
    return { sdk, api };
  };
  return {
    name: options.config.name,
    async *stream(request, signal) {
      const { config, stallSeconds, clock } = options;
      const address = addressOf(credentials.baseURL);
      const isMissing = credentials.apiKey === undefined && credentials.authToken === undefined;
      if (address === undefined || isMissing) {
        yield { type: 'error', failure: isMissing ? keyMissing(config) : addressInvalid(config) };
        return;
      }
      const watch = stallWatch({ clock, stallMs: stallSeconds * 1000, signal });
      let phase: FailureContext['phase'] = 'connect';
      const context = (): FailureContext => ({
        phase,
        stalled: watch.stalled(),
        aborted: signal.aborted,
        stallSeconds,
        host: address.host,
        nowMs: clock.now(),
        secrets: [credentials.apiKey ?? '', credentials.authToken ?? ''],
      });
      try {
        client ??= open();
        const { sdk, api } = await client;
        const body = buildRequest(request, traitsOf(config, request.model), config.name);
        // not messages.create(): that writes warnings about models to the terminal
        const response = await watch.wait(
          api
            .post('/v1/messages', {
              // as text, because the SDK holds anything else against the kinds of body that the platform's fetch takes
              body: JSON.stringify(body),
              headers: { 'content-type': 'application/json' },
              signal: watch.signal,
              stream: true,
            })
            .asResponse(),
        );
        phase = 'stream';
        yield* answer({ sdk, response, watch, request, context });
      } catch (error) {
        yield { type: 'error', failure: failureOf(error, context()) };
      } finally {
        watch.end();
      }
    },
  };
}

interface Answer {
  readonly sdk: Sdk;
  readonly response: Response;
  readonly watch: StallWatch;
  readonly request: ModelRequest;
  readonly context: () => FailureContext;
}

async function* answer({
  sdk,
  response,
  watch,
  request,
  context,
}: Answer): AsyncGenerator<ModelEvent> {
  const contentType = response.headers.get('content-type') ?? 'text/event-stream';
  const body = bodyOf(response);
  if (!contentType.includes('text/event-stream') || body === undefined) {
    const message = `expected a stream of events and got ${contentType} from ${context().host}`;
    const failure = streamFailure({ type: 'unexpected_content_type', message }, context());
    yield { type: 'error', failure: { ...failure, phase: 'response', status: response.status } };
    return;
  }
  const decoder = streamDecoder(usedCallIds(request.messages));
  // rawEvents reads nothing but the body, and takes anything iterable for it
  const bytes = wholeEvents(watch.bytes(body), answerLimits(request.max_tokens));
  const watched = { body: bytes } as unknown as Response;
  for await (const { data } of sdk.Stream.rawEvents(watched)) {
    // what came in one piece must not be finished after the abort
    if (watch.signal.aborted) break;
    const decoded = decode(decoder, data);
    if (decoded.done === true) watch.settle(body);
    yield* decoded.events;
    if (decoded.done === true) return;
    if (decoded.error !== undefined) {
      yield { type: 'error', failure: streamFailure(decoded.error, context()) };
      return;
    }
  }
  // an aborted body may end like a finished one
  if (watch.signal.aborted) throw new Error('aborted');
  const message = `the answer of ${context().host} ended before its last event`;
  yield {
    type: 'error',
    failure: streamFailure({ type: 'incomplete_stream', message }, context()),
  };
}

function decode(decoder: StreamDecoder, data: string): ReturnType<StreamDecoder['push']> {
  if (data === '') return { events: [] };
  const value = parseJson(data);
  if (isJsonObject(value)) return decoder.push(value);
  return {
    events: [],
    error: { type: 'malformed_event', message: 'an event of the answer is not JSON' },
  };
}

function credentialsOf({ config, env }: AnthropicOptions): Credentials {
  const read = (name: string | null): string | undefined =>
    name === null ? undefined : env[name] || undefined;
  return {
    baseURL: read(config.baseUrlEnv) ?? config.baseUrl ?? 'https://api.anthropic.com',
    apiKey: read(config.apiKeyEnv),
    authToken: read(config.authTokenEnv),
  };
}

function addressOf(text: string): URL | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  return url !== undefined && /^https?:$/.test(url.protocol) && url.username === ''
    ? url
    : undefined;
}

/** Does not repeat the address: it may hold a password. */
function addressInvalid({ name, baseUrlEnv }: ProviderConfig) {
  const where = baseUrlEnv === null ? 'base_url' : `base_url or ${baseUrlEnv}`;
  const message = `the address of the provider ${name} (${where}) is not an http(s) URL without credentials`;
  return { phase: 'connect', type: 'ERR_INVALID_URL', message } as const;
}

function keyMissing({ name, apiKeyEnv, authTokenEnv }: ProviderConfig) {
  const message = `the provider ${name} has no key: set ${apiKeyEnv ?? authTokenEnv ?? 'api_key_env in its file'}`;
  return { phase: 'connect', type: 'provider_key_missing', message } as const;
}

/** What the configuration says of the model, else what its id tells. */
function traitsOf({ models }: ProviderConfig, model: string): ModelTraits {
  const configured = Object.hasOwn(models, model) ? models[model] : undefined;
  const byId = traitsOfId(model);
  if (configured === undefined) return byId;
  return {
    thinking: configured.thinking ?? byId.thinking,
    forcedTools: configured.capabilities.includes('forced_tools') && byId.forcedTools,
    structuredOutput:
      configured.capabilities.includes('structured_output') && byId.structuredOutput,
  };
}
