import { isRecord, type JsonObject, toText } from '../../core/json.ts';
import { defineCommand, defineGroup } from '../command.ts';
import { formatTable, printResult } from '../output.ts';
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
        ...(dates.length === 0 ? [] : ['', `Prices as of ${dates.join(', ')}.`]),
      ];
    });
  },
});

function rowOf(model: JsonObject): string[] {
  const { tiers, context_window: window, pricing } = model;
  const main = Array.isArray(tiers) ? tiers.filter((tier) => MAIN_TIERS.has(tier)) : [];
  const provider = textOf(model, 'provider');
  return [
    model['default_provider'] === true ? `${provider} (default)` : provider,
    textOf(model, 'model'),
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

export const models = defineGroup({
  examples: ['rye models list'],
  defaultCommand: 'list',
  commands: [list],
});
