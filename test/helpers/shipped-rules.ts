import { readdirSync, readFileSync } from 'node:fs';
import { parse } from 'yaml';
import { shippedKinds } from '../../src/kernel/app/models.ts';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import { parseCatalog } from '../../src/kernel/providers/catalog.ts';
import { type WireRules, wireRules } from '../../src/kernel/providers/wire-rules.ts';

const FOLDER = new URL('../../.ai/config/agent/providers/', import.meta.url);

/** The shipped provider files as they are written. */
export const SHIPPED: Readonly<Record<string, JsonObject>> = Object.fromEntries(
  readdirSync(FOLDER).map((file) => [
    file.replace('.yaml', ''),
    parse(readFileSync(new URL(file, FOLDER), 'utf8')) as JsonObject,
  ]),
);

/** The shipped providers as rye reads them. */
export const CATALOG = parseCatalog(
  Object.fromEntries(
    Object.entries(SHIPPED).map(([name, value]) => [name, { value, origins: new Map() }]),
  ),
  shippedKinds(),
);

/** The rules of a shipped provider; of chat completions for another name. */
export function shippedRules(name: string): WireRules {
  const { kind, wire } = CATALOG[name] ?? { kind: 'openai', wire: undefined };
  return wireRules(kind === 'anthropic' ? 'messages' : 'chat', wire);
}
