import { join } from 'node:path';
import { RyeError } from '../core/errors.ts';
import { type JsonObject, toText } from '../core/json.ts';
import { readTextInside, writeInside } from '../disk/inside.ts';
import { verifyFile } from '../items/verified-fs.ts';
import { isTierName } from '../providers/catalog.ts';
import { byPreference, type ModelChoices, resolveModel } from '../providers/resolve-model.ts';
import { countsAsUnsigned, faultError } from '../trust/policy.ts';
import { signText } from '../trust/signature.ts';
import { assertOutsideTools } from './ancestry.ts';
import type { ModelUse } from './api/rye.ts';
import { modelRows, modelsOf } from './models.ts';
import { ensureKey } from './signing-key.ts';
import type { Workspace } from './workspace.ts';

const SETTINGS = 'agent/agent';

/** One row for each model of each provider in the order of preference; one of them is chosen for directives that name none. */
export async function listModels(workspace: Workspace) {
  const models = modelsOf(workspace);
  const choices = await models.choices();
  const { prices } = await models.prices();
  const dates = new Map(prices.map((price) => [nameOf(price), price['as_of'] ?? null]));
  const chosen = chosenModel(choices);
  const because = await reasonOf(workspace, choices);
  const names = byPreference(Object.values(choices.catalog), choices).map(({ name }) => name);
  const rank = (row: JsonObject): number => names.findIndex((name) => name === row['provider']);
  return modelRows(choices)
    .toSorted((a, b) => rank(a) - rank(b))
    .map((row) => {
      const isChosen = chosen?.provider === row['provider'] && chosen?.id === row['model'];
      const date = dates.get(nameOf(row)) ?? row['prices_as_of'] ?? null;
      return {
        ...row,
        prices_as_of: date,
        chosen: isChosen,
        chosen_because: isChosen ? because : null,
      };
    });
}

function nameOf({ provider = null, model = null }: JsonObject): string {
  return `${toText(provider)}/${toText(model)}`;
}

/** The model of a directive that names none; undefined if it would be refused, or needs no row because it is embedded. */
function chosenModel(choices: ModelChoices) {
  try {
    return resolveModel({}, choices);
  } catch (error) {
    if (error instanceof RyeError) return undefined;
    throw error;
  }
}

async function reasonOf(workspace: Workspace, choices: ModelChoices): Promise<string> {
  const { origins } = await (await workspace.config()).load(SETTINGS);
  const { defaultModel, defaultProvider, usable } = choices;
  if (defaultModel !== undefined) return `provider.model in ${origins.get('provider.model') ?? ''}`;
  if (defaultProvider !== undefined) {
    return `provider.default in ${origins.get('provider.default') ?? ''}`;
  }
  return usable.length > 1
    ? `first of provider.order with a key (${origins.get('provider.order.0') ?? 'default'})`
    : 'the only provider with a key';
}

/**
 * Writes the model or provider for directives that name none to the signed `agent/agent.yaml` of the user or the project, and
 * keeps the rest of the file. Throws `model_not_found`, `usage` for a tier, and the fault of a file whose signature does
 * not hold: signing would vouch for the rest of it.
 */
export async function useModel(
  workspace: Workspace,
  name: string,
  { space = 'user' }: { readonly space?: ModelUse['space'] },
): Promise<ModelUse> {
  assertOutsideTools(workspace.options.env, 'sign');
  const choices = await modelsOf(workspace).choices();
  const { provider, model } = choiceOf(name, choices);
  const { projectPath, userSpacePath } = workspace.options;
  const root = space === 'project' ? projectPath : userSpacePath;
  const path = join(root, '.ai', 'config', `${SETTINGS}.yaml`);
  assertUnchanged(workspace, space);
  const text = await withChoice(readTextInside(root, path) ?? '', {
    default: provider,
    model,
  });
  await ensureKey(workspace);
  const signed = signText({
    text,
    style: 'yaml',
    subject: { kind: 'config', id: SETTINGS },
    key: workspace.keyring.signer(),
    now: workspace.clock.now(),
  });
  writeInside(root, path, signed);
  if (space === 'project') {
    const { pinSigned } = await import('./guards.ts');
    await pinSigned(workspace, [{ type: 'config', id: SETTINGS }]);
  }
  const isUsable = choices.usable.includes(provider) || !Object.hasOwn(choices.catalog, provider);
  return { space, path, provider, model, usable: isUsable };
}

/** The provider, and the model unless the name is that of a provider. */
function choiceOf(name: string, choices: ModelChoices): Pick<ModelUse, 'provider' | 'model'> {
  const { catalog, kinds } = choices;
  const isEmbedded = Object.hasOwn(kinds, name) && kinds[name]?.traits.embedded === true;
  if (isEmbedded || Object.hasOwn(catalog, name)) return { provider: name, model: null };
  if (isTierName(name)) {
    throw new RyeError('usage', `${JSON.stringify(name)} is a tier, which each provider maps`, {
      hint: 'Name a provider or a model of: rye models list.',
    });
  }
  // a model may be chosen before its key is set
  const owners = Object.values(catalog).filter(
    (one) => Object.hasOwn(one.models, name) || name.startsWith(`${one.name}/`),
  );
  const usable = [...choices.usable, ...owners.map((one) => one.name)];
  const { provider, id } = resolveModel({ wanted: name }, { ...choices, usable });
  return { provider, model: id };
}

function assertUnchanged({ verification }: Workspace, space: ModelUse['space']): void {
  const found = verification.spaces.find('config', SETTINGS, { space });
  if (found === undefined) return;
  const verdict = verifyFile(found, verification);
  if (verdict.ok || (space === 'user' && countsAsUnsigned(verdict.code))) return;
  throw faultError(found, verdict);
}

/** Returns the text of a settings file with these members of `provider`; its comments and other members stay. */
async function withChoice(text: string, choice: JsonObject): Promise<string> {
  const { parseDocument } = await import('yaml');
  const document = parseDocument(text);
  const [problem] = document.errors;
  if (problem) {
    throw new RyeError('config_invalid', `${SETTINGS}.yaml: ${problem.message}`, {
      hint: 'Correct the file first.',
      cause: problem,
    });
  }
  for (const [member, value] of Object.entries(choice)) {
    document.setIn(['provider', member], value);
  }
  return document.toString();
}
