import { EXIT } from '../../core/errors.ts';
import { compact, isRecord, type JsonObject, toText } from '../../core/json.ts';
import { argument, choice, defineCommand, defineGroup } from '../command.ts';
import { displayPath, formatTable, printResult } from '../output.ts';
import { withRye } from '../session.ts';

const HEADINGS = ['PROVIDER', 'MODEL', 'TIERS', 'WINDOW', 'USD PER MILLION IN/OUT', 'READY'];
const MAIN_TIERS: ReadonlySet<unknown> = new Set(['fast', 'general', 'high', 'max']);

const list = defineCommand({
  name: 'list',
  summary: 'List models with provider, tier, context window and price',
  examples: ['rye models list --json'],
  run: async (call) => {
    const models = await withRye(call, (rye) => rye.models());
    return printResult(call, { models, total: models.length }, () => {
      const dates = [...new Set(models.map(({ prices_as_of: date }) => date))]
        .filter((date) => typeof date === 'string')
        .toSorted();
      return [
        ...formatTable(HEADINGS, models.map(rowOf), call.io.stdout),
        '',
        defaultLine(models),
        ...(dates.length === 0 ? [] : ['', `Prices as of ${dates.join(', ')}.`]),
      ];
    });
  },
});

/** States the model of directives that name none, and how to change it. */
function defaultLine(models: readonly JsonObject[]): string {
  const chosen = models.find((model) => model['chosen'] === true);
  if (chosen === undefined) return 'No model is chosen. Choose one with: rye models use MODEL';
  const name = `${textOf(chosen, 'provider')}/${textOf(chosen, 'model')}`;
  return `Default: ${name} (${textOf(chosen, 'chosen_because')}). Change it with: rye models use MODEL`;
}

function rowOf(model: JsonObject): string[] {
  const { tiers, context_window: window, pricing } = model;
  const main = Array.isArray(tiers) ? tiers.filter((tier) => MAIN_TIERS.has(tier)) : [];
  const provider = textOf(model, 'provider');
  return [
    provider,
    `${textOf(model, 'model')}${model['chosen'] === true ? ' (default)' : ''}`,
    main.length === 0 ? '-' : main.join(' '),
    tokens(window),
    isRecord(pricing) ? `${usd(pricing['input'])} / ${usd(pricing['output'])}` : 'unknown',
    readiness(model),
  ];
}

/** Returns what a model needs before it can run: a server without a key must be named or have an address. */
function readiness(model: JsonObject): string {
  if (model['usable'] === true) return 'yes';
  const variable = model['key_variable'];
  return typeof variable === 'string'
    ? `set ${variable}`
    : `--provider ${textOf(model, 'provider')}`;
}

function textOf(model: JsonObject, member: string): string {
  return toText(model[member] ?? '-');
}

function tokens(total: unknown): string {
  if (typeof total !== 'number') return '-';
  return total >= 1_000_000 ? `${total / 1_000_000}M` : `${Math.round(total / 1000)}k`;
}

function usd(price: unknown): string {
  return typeof price === 'number' ? price.toFixed(2) : '?';
}

const use = defineCommand({
  name: 'use',
  summary: 'Set the model for directives that name none',
  arguments: { name: argument('A model, provider/model, or a provider') },
  options: { space: choice('SPACE', ['user', 'project'], 'Where to set it (default: user)') },
  examples: ['rye models use claude-sonnet-5-5', 'rye models use openai --space project'],
  run: async (call) => {
    const { name } = call.args;
    const chosen = await withRye(call, (rye) => rye.useModel(name, compact(call.options)));
    const { provider, model, path, usable } = chosen;
    printResult(call, chosen, () => [
      `default ${model === null ? provider : `${provider}/${model}`} in ${displayPath(path, call.io)}`,
    ]);
    if (!usable && !call.global.json && !call.global.quiet) {
      call.io.stderr.write(`hint: The provider ${provider} has no key. See: rye models list\n`);
    }
    return EXIT.ok;
  },
});

export const models = defineGroup({
  examples: ['rye models list', 'rye models use claude-sonnet-5-5'],
  defaultCommand: 'list',
  commands: [list, use],
});
