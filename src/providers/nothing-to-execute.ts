import { RyeError } from '../core/errors.ts';
import {
  byPreference,
  listed,
  type ModelChoices,
  type ModelWish,
  needsKey,
  variableOf,
} from './resolve-model.ts';

/**
 * Why a directive without steps can't run on `literal`: `literal_unsupported` if that provider was named, else
 * `provider_key_missing` with every variable that could be set.
 */
export function nothingToExecute(
  { wanted = 'general', provider }: ModelWish,
  choices: ModelChoices,
): RyeError {
  if (provider !== undefined) return withoutSteps(provider, choices);
  const providers = Object.values(choices.catalog);
  const variables = [...new Set(providers.filter(needsKey).map(variableOf))];
  const local = providers.filter((one) => !needsKey(one)).map(({ name }) => `--provider ${name}`);
  const message = `no provider has a key for ${JSON.stringify(wanted)}, and the directive has no <process> steps that run without one`;
  const ways = [
    ...(variables.length === 0
      ? []
      : [`Set ${listed(variables)} in the environment or in ~/.ai/.env`]),
    ...(local.length === 0 ? [] : [`pass ${listed(local)} for a server on this machine`]),
  ];
  return new RyeError('provider_key_missing', message, {
    hint: `${ways.join(', or ')}.`,
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
