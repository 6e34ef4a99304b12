import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { PlainHeaders } from '../../src/kernel/startup/http-fetch.ts';

const name = fc.constantFrom('accept', 'Accept', 'X-Api-Key', 'x-api-key', 'b');
const value = fc.constantFrom('', 'one', ' two ', 'a, b', '3');
const step = fc.oneof(
  fc.record({ kind: fc.constantFrom('append' as const, 'set' as const), name, value }),
  fc.record({ kind: fc.constant('delete' as const), name, value: fc.constant('') }),
);

interface Step {
  readonly kind: 'append' | 'set' | 'delete';
  readonly name: string;
  readonly value: string;
}

function after(headers: Headers | PlainHeaders, steps: readonly Step[]) {
  for (const one of steps) {
    if (one.kind === 'delete') headers.delete(one.name);
    else headers[one.kind](one.name, one.value);
  }
  const seen: [string, string][] = [];
  headers.forEach((text, field) => seen.push([field, text]));
  const asked = ['ACCEPT', 'x-Api-key', 'b'].map((field) => [
    headers.get(field),
    headers.has(field),
  ]);
  return { seen, all: [...headers], entries: [...headers.entries()], asked };
}

describe('plain headers', () => {
  it("equal the platform's after any steps", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 12 }), (steps) => {
        expect(after(new PlainHeaders(), steps)).toEqual(after(new Headers(), steps));
      }),
    );
  });

  it.each([
    ['nothing', undefined],
    ['a record', { A: '1', b: '2' }],
    ['pairs', [['A', '1'] as const, ['a', '2'] as const]],
    ['headers', new Headers({ 'x-a': '1' })],
    ['their own kind', new PlainHeaders({ 'x-a': '1' })],
  ])('are made of %s', (_, init) => {
    const pairs = init === undefined ? [] : [...new PlainHeaders(init)];
    expect(pairs).toEqual([...new Headers(init as HeadersInit | undefined)]);
  });
});
