import { isRecord, parseJson } from '../../core/json.ts';
import { httpFetch } from '../../startup/http-fetch.ts';
import { type HttpSetup, sseProvider, usedCallIds } from '../adapter.ts';
import { CAPABILITIES, type ModelConfig, type ProviderConfig } from '../catalog.ts';
import { type ModelProvider, type ProviderKind, REMOTE_MODEL } from '../provider.ts';
import { longNames } from './messages.ts';
import { buildRequest, type ModelTraits } from './request.ts';
import { chunkDecoder } from './stream.ts';

export const OPENAI: ProviderKind = { traits: REMOTE_MODEL, open: openAiProvider };

/** Any server of OpenAI's chat completions through the `openai` SDK. The SDK is loaded by the first call. */
export function openAiProvider(setup: HttpSetup): ModelProvider {
  const { config } = setup;
  return sseProvider(setup, {
    defaultURL: 'https://api.openai.com/v1',
    needsKey: false,
    decoder: (request) =>
      chunkDecoder({
        takenIds: usedCallIds(request.messages),
        longNames: longNames(request),
        textCalls:
          request.tools.length > 0 &&
          !traitsOf(config, request.model).capabilities.includes('tools'),
      }),
    connect: async ({ baseURL, apiKey, authToken }) => {
      const sdk = await import('./sdk.ts');
      const key = apiKey ?? authToken;
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
          ...(key === undefined ? { Authorization: null } : {}),
        },
        maxRetries: 0,
        logLevel: 'off',
        fetch: fetchWithError,
      });
      return {
        post: async (request, signal) => {
          const body = buildRequest(request, traitsOf(config, request.model));
          return await api.post('/chat/completions', { body, signal, stream: true }).asResponse();
        },
        parse: (source) => sdk.serverSentEvents(source, new AbortController()),
      };
    },
  });
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
