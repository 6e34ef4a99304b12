import { isRecord, parseJson } from '../../core/json.ts';
import { bodyOf, textOf } from '../../startup/http-fetch.ts';
import { authorizedFetch, type HttpSetup, sseProvider, TakenIds, ToolNames } from '../adapter.ts';
import { CAPABILITIES, type ModelConfig, type ProviderConfig } from '../catalog.ts';
import { isDailyQuota } from '../failure.ts';
import { type ModelProvider, type ProviderKind, REMOTE_MODEL } from '../provider.ts';
import { wireRules } from '../wire-rules.ts';
import { DIALECT_TRAITS } from './dialect.ts';
import { buildRequest, type ModelTraits } from './request.ts';
import { chunkDecoder, usageOfRecord } from './stream.ts';

/**
 * Returns a `fetch` whose failed responses have their error where the SDK reads it: `{error: {message, type, code}}`. Servers
 * also put it in a list (Gemini), at the top (Mistral, vLLM), or send only a text (LM Studio).
 */
const fetchWithError =
  (plain: typeof fetch): typeof fetch =>
  async (input, init) => {
    const response = await plain(input, init);
    if (response.ok) return response;
    const { status } = response;
    const headers = new Headers(response.headers);
    const text = await response.text();
    const parsed = parseJson(text);
    const body = Array.isArray(parsed) ? parsed[0] : parsed;
    const error = isRecord(body) ? errorOf(body) : undefined;
    if (error === undefined) return new Response(text, { status, headers });
    if (isDailyQuota(error['details'])) error['type'] = 'quota_exceeded';
    const wait = retryDelay(error['details']);
    if (wait !== undefined && !headers.has('retry-after')) headers.set('retry-after', wait);
    return Response.json({ error }, { status, headers });
  };

/** Returns the error of a body in the usual form; undefined if it has none. */
function errorOf(body: Record<string, unknown>): Record<string, unknown> | undefined {
  const { error } = body;
  if (isRecord(error)) {
    const { status, type, code } = error;
    // Google names the kind of error in `status`, and repeats the HTTP status in `code`
    const isNamed = typeof type === 'string' || typeof code === 'string';
    return isNamed || typeof status !== 'string' ? error : { ...error, type: status };
  }
  const message = [error, body['message'], body['detail']].map(asText).find((one) => one !== '');
  return message === undefined ? undefined : { message, type: body['type'] };
}

/** A message is a text, or a list of the members that were refused. */
function asText(value: unknown): string {
  if (typeof value === 'string') return value;
  return isRecord(value) || Array.isArray(value) ? JSON.stringify(value) : '';
}

/** Returns the seconds that Google's `RetryInfo` asks to wait, such as `34.07` for the delay `34.07s`. */
function retryDelay(details: unknown): string | undefined {
  if (!Array.isArray(details)) return undefined;
  const delays = details.filter(isRecord).map(({ retryDelay: delay }) => delay);
  const delay = delays.find((one) => typeof one === 'string');
  return /^(\d+(?:\.\d+)?)s$/.exec(delay ?? '')?.[1];
}

export const OPENAI: ProviderKind = { traits: REMOTE_MODEL, open: openAiProvider };

/** Any server of OpenAI's chat completions through the `openai` SDK. The SDK is loaded by the first call. */
export function openAiProvider(setup: HttpSetup): ModelProvider {
  const { config } = setup;
  const wire = wireRules('chat', config.wire);
  const { settles } = DIALECT_TRAITS[config.dialect];
  return sseProvider(setup, {
    defaultURL: 'https://api.openai.com/v1',
    needsKey: false,
    decoder: (request) =>
      chunkDecoder({
        takenIds: new TakenIds(request.messages),
        names: new ToolNames(request.tools, wire),
        settles,
        textCalls:
          request.tools.length > 0 &&
          !traitsOf(config, request.model).capabilities.includes('tools'),
      }),
    settles,
    connect: async (endpoint) => {
      const { baseURL, apiKey, authToken } = endpoint;
      const sdk = await import('./sdk.ts');
      const key = apiKey ?? authToken;
      const { keyHeader } = config;
      const hasOwnHeader = keyHeader !== null && apiKey !== undefined;
      const api = new sdk.OpenAI({
        baseURL,
        // the SDK wants a key even for servers that need none; its header is then dropped below
        apiKey: key ?? 'none',
        // else the SDK reads these from the environment of the process
        adminAPIKey: null,
        organization: null,
        project: null,
        webhookSecret: null,
        defaultHeaders: {
          ...config.headers,
          ...(key === undefined || hasOwnHeader ? { Authorization: null } : {}),
          ...(hasOwnHeader ? { [keyHeader]: apiKey } : {}),
        },
        maxRetries: 0,
        logLevel: 'off',
        fetch: authorizedFetch(setup, endpoint, fetchWithError),
      });
      return {
        post: async (request, signal) => {
          const body = buildRequest(request, { ...traitsOf(config, request.model), wire });
          const path = (config.chatPath ?? '/chat/completions').replace(
            '{model}',
            encodeURIComponent(request.model),
          );
          return await api.post(path, { body, signal, stream: true }).asResponse();
        },
        settle: async (id, signal) => {
          const response = await api.get('/generation', { query: { id }, signal }).asResponse();
          const body = bodyOf(response);
          return body && usageOfRecord(parseJson(await textOf(body)));
        },
      };
    },
  });
}

function traitsOf(
  { name, dialect, models, otherModels }: ProviderConfig,
  id: string,
): Omit<ModelTraits, 'wire'> {
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
