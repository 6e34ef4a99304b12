import { parseJson } from '../../core/json.ts';
import { bodyOf, textOf } from '../../startup/http-fetch.ts';
import { authorizedFetch, type HttpSetup, sseProvider, TakenIds, ToolNames } from '../adapter.ts';
import { CAPABILITIES, type ModelConfig, type ProviderConfig } from '../catalog.ts';
import { type ModelProvider, type ProviderKind, REMOTE_MODEL } from '../provider.ts';
import { wireRules } from '../wire-rules.ts';
import { DIALECT_TRAITS } from './dialect.ts';
import { fetchWithError } from './errors.ts';
import { buildRequest, type ModelTraits } from './request.ts';
import { chunkDecoder, usageOfRecord } from './stream.ts';

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
