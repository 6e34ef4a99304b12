// Writes src/kernel/providers/prices.json from the package that maintains model prices.
import { readFileSync, writeFileSync } from 'node:fs';
import { findProvider } from '@pydantic/genai-prices';

const PACKAGE = '@pydantic/genai-prices';
/** The package states no date for its data, so this is the day on which each version was published. */
const PUBLISHED = { '0.1.8': '2026-09-23' };
const LISTS = ['anthropic', 'openai', 'google', 'aws', 'mistral', 'groq', 'openrouter'];
const TARGET = new URL('../src/kernel/providers/prices.json', import.meta.url);

/** Returns the text of the table: for each list and model, USD per million tokens and, if known, the tokens of a prompt. */
export function modelPrices() {
  const { version } = JSON.parse(
    readFileSync(new URL(`../node_modules/${PACKAGE}/package.json`, import.meta.url), 'utf8'),
  );
  const asOf = PUBLISHED[version];
  if (asOf === undefined) throw new Error(`add the date of ${PACKAGE} ${version} to PUBLISHED`);
  const lists = LISTS.map((id) => {
    const models = findProvider({ providerId: id }).models.filter(({ deprecated }) => !deprecated);
    const rows = models
      .flatMap((model) => rowOf(model, asOf))
      .toSorted(([a], [b]) => (a < b ? -1 : 1));
    return [id, Object.fromEntries(rows)];
  });
  const table = { source: `${PACKAGE} ${version}`, as_of: asOf, lists: Object.fromEntries(lists) };
  // one line for each list: the file is data, and its changes are read as such
  const text = lists.map(([id]) => `    ${JSON.stringify(id)}: ${JSON.stringify(table.lists[id])}`);
  return `{\n  "source": ${JSON.stringify(table.source)},\n  "as_of": ${JSON.stringify(asOf)},\n  "lists": {\n${text.join(',\n')}\n  }\n}\n`;
}

/** A model of text with both prices; above its first step a prompt costs more, so the window ends there. */
function rowOf({ id, context_window: window, prices }, asOf) {
  const current = Array.isArray(prices)
    ? prices.findLast(({ constraint }) => !constraint || constraint.start_date <= asOf)?.prices
    : prices;
  if (!current) return [];
  const members = ['input_mtok', 'output_mtok', 'cache_read_mtok', 'cache_write_mtok'];
  const usd = members.map((member) => baseOf(current[member]));
  if (!(usd[0] > 0) || usd[1] === null) return [];
  const steps = members.flatMap((member) =>
    (current[member]?.tiers ?? []).map(({ start }) => start),
  );
  const limit = Math.min(window ?? Infinity, ...steps);
  return [[id, [...usd, Number.isFinite(limit) ? limit : null]]];
}

function baseOf(price) {
  if (price === undefined) return null;
  return typeof price === 'number' ? price : price.base;
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  writeFileSync(TARGET, modelPrices());
}
