import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';

const SOURCES = path.resolve(import.meta.dirname, '../../src');
/** A family's total that is put together by hand, or a sum of totals outside of the one function. */
const OWN_SUM =
  /\btotal: \w*(?:add|sum)\w*\(|\.cost\.total\.spend \+|\+ [\w.]+\.cost\.total\.spend/;

it('one function adds up what a family has cost', () => {
  const found = readdirSync(SOURCES, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .filter((name) => OWN_SUM.test(readFileSync(path.join(SOURCES, name), 'utf8')));
  // addFamilyCost() joins the threads of a chain there, with the same addition
  expect(found).toEqual(['kernel/core/usage.ts']);
});
