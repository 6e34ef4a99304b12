import type { JsonObject } from '../../core/json.ts';
import { authorizedFetch, type HttpSetup, sseProvider, TakenIds, ToolNames } from '../adapter.ts';
import type { ProviderConfig } from '../catalog.ts';
import {
  type ModelProvider,
  type ModelRequest,
  type ProviderKind,
  REMOTE_MODEL,
} from '../provider.ts';
import { wireRules } from '../wire-rules.ts';
import { buildRequest, type ModelTraits, requestText, traitsOfId } from './request.ts';
import { streamDecoder } from './stream.ts';

export const ANTHROPIC: ProviderKind = { traits: REMOTE_MODEL, open: anthropicProvider };

/** Claude through `@anthropic-ai/sdk`. The SDK is loaded by the first call. */
export function anthropicProvider(setup: HttpSetup): ModelProvider {
  const { config } = setup;
  const wire = wireRules('messages', config.wire);
  return sseProvider(setup, {
    defaultURL: 'https://api.anthropic.com',
    needsKey: true,
    decoder: (request) =>
      streamDecoder(new TakenIds(request.messages), new ToolNames(request.tools, wire)),
    connect: async (endpoint) => {
      const { baseURL, apiKey = null, authToken = null, aws } = endpoint;
      const sdk = await import('./sdk.ts');
      const api = new sdk.BaseAnthropic({
        baseURL,
        // the key wins: the SDK takes exactly one credential
        ...(apiKey === null ? { authToken } : { apiKey }),
        defaultHeaders: {
          ...config.headers,
          ...(aws === undefined ? {} : { Authorization: null, 'X-Api-Key': null }),
        },
        maxRetries: 0,
        logLevel: 'off',
        fetch: authorizedFetch(setup, endpoint),
      });
      return {
        // not messages.create(): that writes warnings about models to the terminal
        post: async (request, signal) => {
          const { headers, ...members } = extrasOf(config, request);
          const receiver = { name: config.name, wire };
          const body = buildRequest(request, traitsOf(config, request.model), receiver);
          return await api
            .post('/v1/messages', {
              // as text, because the SDK compares anything else with the kinds of body that the platform's fetch takes
              body: requestText({ ...body, ...members }),
              headers: { 'content-type': 'application/json', ...headers },
              signal,
              stream: true,
            })
            .asResponse();
        },
      };
    },
  });
}

const BETA_HEADER = 'anthropic-beta';
/** The API takes the member of that name with this beta only. */
const CONTEXT_MANAGEMENT = 'context-management-2025-06-27';

/** Returns the header and the member that a request has beside the usual ones. */
function extrasOf(
  config: Pick<ProviderConfig, 'headers' | 'betas' | 'contextManagement'>,
  request: Pick<ModelRequest, 'betas' | 'context_management'>,
): { readonly headers: Record<string, string>; readonly context_management?: JsonObject } {
  const management = request.context_management ?? config.contextManagement;
  const configured = Object.entries(config.headers).find(
    ([name]) => name.toLowerCase() === BETA_HEADER,
  );
  const betas = new Set([
    ...(configured?.[1].split(',').map((beta) => beta.trim()) ?? []),
    ...(config.betas ?? []),
    ...(request.betas ?? []),
    ...(management === undefined ? [] : [CONTEXT_MANAGEMENT]),
  ]);
  return {
    headers: betas.size === 0 ? {} : { [BETA_HEADER]: [...betas].join(',') },
    ...(management === undefined ? {} : { context_management: management }),
  };
}

/** Returns the traits that the configuration gives the model, else those that its id implies. */
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
