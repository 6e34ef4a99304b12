import { RyeError } from '../core/errors.ts';
import {
  byPreference,
  type ModelChoices,
  type ModelWish,
  needsKey,
  variableOf,
} from './resolve-model.ts';

/**
 * Why a directive without steps can't run on `literal`: `literal_unsupported` if that provider was named, else
 * `provider_key_missing` with the variable of the first provider in the order of preference.
 */
export function nothingToExecute(
  { wanted = 'general', provider }: ModelWish,
  choices: ModelChoices,
): RyeError {
  if (provider !== undefined) return withoutSteps(provider, choices);
  const providers = byPreference(Object.values(choices.catalog), choices);
  const variables = [...new Set(providers.filter(needsKey).map(variableOf))];
  const server = providers.find((one) => !needsKey(one));
  const [first] = variables;
  const ways = [
    first === undefined ? 'See rye models list' : `Set ${first} (others: rye models list)`,
    ...(server === undefined ? [] : [`use a local server: --provider ${server.name}`]),
  ];
  return new RyeError('provider_key_missing', 'No API key', {
    hint: ways.join(', or '),
    details: { wanted, providers: providers.map(({ name }) => name), variables },
  });
}

/** Why a directive that asks for `literal` can't run on it: what it lacks are steps, not a key. */
function withoutSteps(provider: string, { usable, catalog, order }: ModelChoices): RyeError {
  const known = Object.values(catalog).filter(({ name }) => usable.includes(name));
  const [first] = byPreference(known, { order });
  const model = first ? `pass --provider ${first.name}` : 'name another provider: rye models list';
  return new RyeError(
    'literal_unsupported',
    `the provider ${provider} executes <process> steps, and the directive has none`,
    {
      hint: `Write a <step> into its <process>, or, to let a model work on it, ${model}.`,
      details: { provider },
    },
  );
}
