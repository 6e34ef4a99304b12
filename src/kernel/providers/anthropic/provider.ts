import { authorizedFetch, type HttpSetup, sseProvider, TakenIds, ToolNames } from '../adapter.ts';
import type { ProviderConfig } from '../catalog.ts';
import { type ModelProvider, type ProviderKind, REMOTE_MODEL } from '../provider.ts';
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
        post: async (request, signal) =>
          await api
            .post('/v1/messages', {
              // as text, because the SDK compares anything else with the kinds of body that the platform's fetch takes
              body: requestText(
                buildRequest(request, traitsOf(config, request.model), { name: config.name, wire }),
              ),
              headers: { 'content-type': 'application/json' },
              signal,
              stream: true,
            })
            .asResponse(),
      };
    },
  });
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
