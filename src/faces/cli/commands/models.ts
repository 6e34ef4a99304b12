import { EXIT } from '../../../kernel/core/errors.ts';
import { compact, isRecord, type JsonObject, toText } from '../../../kernel/core/json.ts';
import type { Io, Sink } from '../../ui/io.ts';
import { joined, oneLine, type Shown, shown } from '../../ui/visible.ts';
import { argument, type Context, choice, defineCommand, defineGroup, flag } from '../command.ts';
import { displayPath, fitPath, formatTable, printResult, wrapped } from '../output.ts';
import { withRye } from '../session.ts';

const WIDE = ['PROVIDER', 'MODEL', 'TIERS', 'WINDOW', 'USD PER MILLION IN/OUT', 'READY'];
const NARROW = ['MODEL', 'TIERS', 'WINDOW', 'USD IN/OUT'];
const MAIN_TIERS: ReadonlySet<unknown> = new Set(['fast', 'general', 'high', 'max']);

const list = defineCommand({
  name: 'list',
  summary: 'List models with provider, tier, context window and price',
  examples: ['rye models list --json'],
  run: async (call) => {
    const { models, warnings } = await withRye(call, async (rye) => ({
      models: await rye.models(),
      warnings: (await rye.prices()).warnings,
    }));
    warn(call, warnings);
    return printResult(call, { models, total: models.length, warnings }, () => {
      const { stdout } = call.io;
      const dates = [...new Set(models.map(({ prices_as_of: date }) => date))]
        .filter((date) => typeof date === 'string')
        .toSorted();
      return [
        ...(stdout.isTty
          ? [
              ...providersOf(models).flatMap((rows) => section(rows, stdout)),
              ...chosenLines(models).flatMap((line) => wrapped(line, stdout)),
            ]
          : [
              ...formatTable(WIDE, models.map(wideRow), stdout),
              shown``,
              joined(chosenLines(models), ' '),
            ]),
        ...(dates.length === 0
          ? []
          : [
              shown``,
              ...wrapped(
                shown`Prices as of ${oneLine(dates.join(', '))}, USD per million tokens.`,
                stdout,
              ),
            ]),
      ];
    });
  },
});

/** States the model of directives that name none, and how to change it. */
function chosenLines(models: readonly JsonObject[]): readonly Shown[] {
  const chosen = models.find((model) => model['chosen'] === true);
  if (chosen === undefined) {
    return [shown`No model is chosen.`, shown`Choose one with: rye models use MODEL`];
  }
  const name = `${textOf(chosen, 'provider')}/${textOf(chosen, 'model')}`;
  return [
    shown`Default: ${oneLine(name)} (${oneLine(textOf(chosen, 'chosen_because'))}).`,
    shown`Change it with: rye models use MODEL`,
  ];
}

/** Groups the models by provider, in order. */
function providersOf(models: readonly JsonObject[]): readonly (readonly JsonObject[])[] {
  const groups = new Map<string, JsonObject[]>();
  for (const model of models) {
    const provider = textOf(model, 'provider');
    groups.set(provider, [...(groups.get(provider) ?? []), model]);
  }
  return [...groups.values()];
}

/** A provider with its models below it. Each has its own columns, so that a line fits into 60 characters. */
function section(models: readonly JsonObject[], sink: Sink): readonly Shown[] {
  const [first = {}] = models;
  const table = formatTable(NARROW, models.map(narrowRow), {
    ...sink,
    columns: Math.max(1, sink.columns - 2),
  });
  return [
    ...wrapped(oneLine(`${textOf(first, 'provider')}: ${readiness(first)}`), sink),
    ...table.map((line) => shown`  ${line}`),
    shown``,
  ];
}

function wideRow(model: JsonObject): string[] {
  const [id = '', ...others] = cells(model);
  return [
    textOf(model, 'provider'),
    model['chosen'] === true ? `${id} (default)` : id,
    ...others,
    usdText(model, ' / ', inCents),
    readiness(model),
  ];
}

function inCents(price: number): string {
  return price.toFixed(2);
}

function narrowRow(model: JsonObject): string[] {
  return [...cells(model), usdText(model, '/', String)];
}

function cells(model: JsonObject): string[] {
  const { tiers, context_window: window } = model;
  const main = Array.isArray(tiers) ? tiers.filter((tier) => MAIN_TIERS.has(tier)) : [];
  return [textOf(model, 'model'), main.length === 0 ? '-' : main.join(' '), tokens(window)];
}

function usdText(
  { pricing }: JsonObject,
  separator: string,
  format: (price: number) => string,
): string {
  if (!isRecord(pricing)) return 'unknown';
  return [pricing['input'], pricing['output']]
    .map((price) => (typeof price === 'number' ? format(price) : '?'))
    .join(separator);
}

/** Returns what a provider needs before it can be called: a server without a key must be named or have an address. */
function readiness(model: JsonObject): string {
  if (model['usable'] === true) return 'yes';
  const needs = Array.isArray(model['needs']) ? model['needs'] : [];
  return needs.length === 0
    ? `--provider ${textOf(model, 'provider')}`
    : `set ${needs.map(toText).join(' and ')}`;
}

function textOf(model: JsonObject, member: string): string {
  return toText(model[member] ?? '-');
}

function tokens(total: unknown): string {
  if (typeof total !== 'number') return '-';
  return total >= 1_000_000
    ? `${Math.round(total / 10_000) / 100}M`
    : `${Math.round(total / 1000)}k`;
}

const PRICE_HEADINGS = [
  'PROVIDER',
  'MODEL',
  'IN',
  'OUT',
  'READ',
  'WRITE',
  'AS OF',
  'AGE',
  'SOURCE',
];
const SHORT_PRICE_HEADINGS = ['MODEL', 'IN', 'OUT', 'AS OF', 'AGE'];

const listPrices = defineCommand({
  name: 'prices',
  summary: 'List prices in USD per million tokens with date, age and source',
  options: { all: flag('Include the models of the shipped table that no file lists') },
  examples: ['rye models prices', 'rye models prices --all --json'],
  run: async (call) => {
    const { stdout } = call.io;
    const { prices, warnings } = await withRye(call, (rye) => rye.prices(compact(call.options)));
    warn(call, warnings);
    return printResult(call, { prices, total: prices.length, warnings }, () =>
      stdout.isTty
        ? providersOf(prices).flatMap((rows) => priceSection(rows, call.io))
        : formatTable(
            PRICE_HEADINGS,
            prices.map((price) => PRICE_MEMBERS.map((member) => priceCell(price, member))),
            stdout,
          ),
    );
  },
});

const SHORT_PRICE_MEMBERS = ['model', 'input', 'output', 'as_of', 'age_days'];
const PRICE_MEMBERS = [
  'provider',
  'model',
  'input',
  'output',
  'cache_read',
  'cache_write',
  'as_of',
  'age_days',
  'source',
];

function priceSection(prices: readonly JsonObject[], io: Io): readonly Shown[] {
  const sink = io.stdout;
  const rows = prices.map((price) => SHORT_PRICE_MEMBERS.map((member) => priceCell(price, member)));
  const table = formatTable(SHORT_PRICE_HEADINGS, rows, {
    ...sink,
    columns: Math.max(1, sink.columns - 2),
  });
  const sources = [...new Set(prices.map(({ source }) => fileOf(toText(source ?? '-'))))];
  return [
    oneLine(`${textOf(prices[0] ?? {}, 'provider')}:`),
    ...table.map((line) => shown`  ${line}`),
    ...sources.map((source) => shown`  from ${fitPath(displayPath(source, io), sink, 7)}`),
    shown``,
  ];
}

function priceCell(price: JsonObject, member: string): string {
  const text = textOf(price, member);
  if (member === 'age_days' && text !== '-') {
    return `${text} d${price['is_stale'] === true ? ' (old)' : ''}`;
  }
  return text;
}

/** Returns a source without its line. */
function fileOf(source: string): string {
  return source.replace(/:\d+$/, '');
}

function warn({ io, global }: Context, warnings: readonly string[]): void {
  if (global.quiet) return;
  for (const warning of warnings) io.stderr.write(shown`rye: warning: ${oneLine(warning)}\n`);
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
      shown`default ${oneLine(model === null ? provider : `${provider}/${model}`)} in ${displayPath(path, call.io)}`,
    ]);
    if (!usable && !call.global.json && !call.global.quiet) {
      call.io.stderr.write(
        shown`hint: The provider ${oneLine(provider)} has no key. See: rye models list\n`,
      );
    }
    return EXIT.ok;
  },
});

export const models = defineGroup({
  examples: ['rye models list', 'rye models use claude-sonnet-5-5'],
  defaultCommand: 'list',
  commands: [list, listPrices, use],
});
