import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const KEYS = { ANTHROPIC_API_KEY: 'sk-ant-1', GEMINI_API_KEY: 'g-1' };
const FOLDER = '.ai/config/agent';

function configure(folder: string, file: string, text: string): void {
  mkdirSync(path.join(folder, FOLDER, 'providers'), { recursive: true });
  writeFileSync(path.join(folder, FOLDER, file), text);
}

async function pricesOf(here: Workspace, ...args: readonly string[]) {
  const document = await here.json(['models', 'prices', ...args], { env: KEYS });
  return document as unknown as {
    readonly prices: readonly Record<string, unknown>[];
    readonly warnings: readonly string[];
  };
}

async function planned(here: Workspace, model: string): Promise<Record<string, unknown>> {
  const args = ['run', 'rye/core/ask', '--input', 'question=Why?', '--dry-run', '--model', model];
  const document = await here.json(args, { env: KEYS });
  return document['plan'] as Record<string, unknown>;
}

it('models prices lists each price with its date, its age and the file that states it', async () => {
  const here = await workspace();
  const { prices } = await pricesOf(here);
  expect(prices.find(({ model }) => model === 'gemini-3.8-flash')).toMatchObject({
    provider: 'gemini',
    input: 0.75,
    output: 3.75,
    cache_read: 0.075,
    cache_write: null,
    as_of: '2026-11-10',
    age_days: expect.any(Number) as number,
    source: expect.stringMatching(/providers\/gemini\.yaml:\d+$/) as string,
  });
  const all = await pricesOf(here, '--all');
  expect(all.prices.length).toBeGreaterThan(prices.length + 300);
  expect(all.prices.find(({ model }) => model === 'gemini-2.5-flash')).toMatchObject({
    input: 0.3,
    output: 2.5,
    source: expect.stringMatching(/^@pydantic\/genai-prices /) as string,
  });
});

it('a price of the user wins over all others, and has the date of its file', async () => {
  const here = await workspace();
  const prices =
    'as_of: "2026-11-20"\nprices:\n  gemini/gemini-3.8-flash: { input: 7, output: 9 }\n';
  configure(here.home, 'prices.yaml', prices);
  expect((await planned(here, 'gemini-3.8-flash'))['model']).toMatchObject({
    pricing: { input: 7, output: 9 },
  });
  const list = await pricesOf(here);
  expect(list.prices.find(({ model }) => model === 'gemini-3.8-flash')).toMatchObject({
    input: 7,
    as_of: '2026-11-20',
    source: path.join(here.home, FOLDER, 'prices.yaml:3'),
  });
  const { models } = await here.json(['models', 'list'], { env: KEYS });
  const rows = models as readonly Record<string, unknown>[];
  expect(rows.find(({ model }) => model === 'gemini-3.8-flash')).toMatchObject({
    pricing: { input: 7 },
    prices_as_of: '2026-11-20',
  });
});

it.each([
  ['prices: { nobody/x: { input: 1, output: 1 } }\n', 'prices.nobody/x names no provider'],
  ['prices: { gemini/gemini-3.8-flash: { input: -1, output: 1 } }\n', 'input is -1'],
  ['price: {}\n', 'price is unknown'],
])('a list of prices that is wrong is refused with its line: %s', async (text, message) => {
  const here = await workspace();
  configure(here.home, 'prices.yaml', text);
  const refused = await here.rye(['models', 'prices'], { env: KEYS });
  expect(refused.stderr).toContain('[config_invalid]');
  expect(refused.stderr).toContain(message);
  expect(refused.stderr).toContain('prices.yaml:1');
});

it('a model that only the table has is run with its price, without --allow-unpriced', async () => {
  const here = await workspace();
  const plan = await planned(here, 'gemini-2.5-flash');
  expect(plan['model']).toMatchObject({ pricing: { input: 0.3, output: 2.5, cache_read: 0.03 } });
});

it('prices older than 60 days are a warning, once, in the document and on stderr', async () => {
  const here = await workspace();
  configure(here.home, 'providers/anthropic.yaml', 'prices_as_of: "2026-01-01"\n');
  const plan = await planned(here, 'claude-opus-5-5');
  const old = (warnings: unknown) =>
    (warnings as readonly string[]).filter((warning) =>
      warning.includes('prices of anthropic are'),
    );
  expect(old(plan['warnings'])).toHaveLength(1);
  for (const command of ['prices', 'list']) {
    const { warnings } = await here.json(['models', command], { env: KEYS });
    expect(old(warnings)).toHaveLength(1);
    const { stderr } = await here.rye(['models', command], { env: KEYS });
    expect(
      stderr.match(/warning: prices of anthropic are \d+ days old \(2026-01-01\)/g),
    ).toHaveLength(1);
  }
  expect(old((await planned(here, 'gemini-3.8-flash'))['warnings'])).toEqual([]);
});
