import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { parse } from 'yaml';
import { main } from '../../../src/faces/cli/main.ts';
import { modelRows, shippedKinds } from '../../../src/kernel/app/models.ts';
import { type JsonObject, toText } from '../../../src/kernel/core/json.ts';
import { parseCatalog } from '../../../src/kernel/providers/catalog.ts';
import { createFakeIo } from '../../helpers/fake-io.ts';

const FOLDER = new URL('../../../.ai/config/agent/providers/', import.meta.url);

function shippedRows(usable: readonly string[]): readonly JsonObject[] {
  const files = readdirSync(FOLDER).map((file) => {
    const value = parse(readFileSync(new URL(file, FOLDER), 'utf8')) as JsonObject;
    return [file.replace('.yaml', ''), { value, origins: new Map<string, string>() }] as const;
  });
  const catalog = parseCatalog(Object.fromEntries(files), shippedKinds());
  const missing = { azure: ['AZURE_OPENAI_API_KEY', 'AZURE_OPENAI_ENDPOINT'] };
  return modelRows({ catalog, kinds: shippedKinds(), usable, missing });
}

test('models list fits into a terminal of 60 columns, with every provider, id and need in full', async () => {
  const rows = shippedRows(['mistral']);
  const io = createFakeIo({
    stdoutIsTty: true,
    columns: 60,
    rye: {
      models: () => Promise.resolve(rows),
      prices: () => Promise.resolve({ prices: [], warnings: [] }),
    },
  });
  expect(await main(['models', 'list', '--no-color'], io)).toBe(0);
  const lines = io.out().split('\n');
  expect(lines.filter((line) => line.length > 60)).toEqual([]);
  expect(io.out()).not.toContain('…');
  for (const { model } of rows) expect(io.out()).toContain(`  ${toText(model ?? null)}  `);
  expect(lines[0]).toBe('mistral: yes');
  expect(lines).toContain('azure: set AZURE_OPENAI_API_KEY and AZURE_OPENAI_ENDPOINT');
  expect(lines).toContain('ollama: --provider ollama');
});
