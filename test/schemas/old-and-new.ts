import * as fc from 'fast-check';
import { expect } from 'vitest';
import { toRyeError } from '../../src/kernel/core/errors.ts';
import { isRecord, type JsonObject } from '../../src/kernel/core/json.ts';

const scalar = fc.oneof(
  fc.constantFrom<unknown>(null, true, false, 0, 1, -1, 0.5, 1e9, '', 'x', 'true', '7', 'a\nb'),
  fc.constantFrom<unknown>(Number.POSITIVE_INFINITY, 2 ** 53, ' 7 ', 'constructor', 'a b'),
  fc.integer(),
  fc.string({ maxLength: 8 }),
);
// one mistake at a time: which one is reported first may differ
const junk = fc.oneof(
  { weight: 3, arbitrary: scalar },
  fc.constantFrom<unknown>(undefined, {}, []),
  scalar.map((value) => [value]),
  scalar.map((value) => ({ x: value })),
);

type Path = readonly string[];

/** Every member of a document and of its parts, and one that each part does not have. */
function pathsOf(value: unknown, path: Path = []): readonly Path[] {
  if (Array.isArray(value)) {
    return [path, ...value.flatMap((item, at) => pathsOf(item, [...path, String(at)]))];
  }
  if (!isRecord(value)) return [path];
  const inside = Object.entries(value).flatMap(([name, part]) => pathsOf(part, [...path, name]));
  return [path, ...inside, [...path, 'unknown_member']];
}

function withPart(value: unknown, [name, ...rest]: Path, part: unknown): unknown {
  if (name === undefined) return part;
  if (Array.isArray(value)) {
    return value.map((item, at) =>
      String(at) === name ? (withPart(item, rest, part) ?? null) : item,
    );
  }
  if (!isRecord(value)) return part;
  const { [name]: old, ...others } = value;
  const changed = withPart(old, rest, part);
  return changed === undefined ? others : { ...value, [name]: changed };
}

/** Valid documents with one part replaced, removed or added. */
export function mutated(documents: readonly JsonObject[]): fc.Arbitrary<unknown> {
  const changes = documents.flatMap((document) =>
    pathsOf(document)
      .slice(1)
      .map((path) => ({ document, path })),
  );
  return fc
    .tuple(fc.constantFrom(...changes), junk)
    .map(([{ document, path }, part]) => withPart(document, path, part));
}

/** The value of a call, or the error that it throws. A hint may have become more helpful. */
function outcomeOf(call: () => unknown) {
  try {
    return { value: call() };
  } catch (error) {
    const { code, message, hint, location } = toRyeError(error);
    return { code, message, location, hint: hint?.startsWith('Did you mean') ? 'names' : hint };
  }
}

/** Fails if the validator by hand and the one by schema differ. */
export function expectSame(byHand: () => unknown, bySchema: () => unknown): void {
  const old = outcomeOf(byHand);
  const now = outcomeOf(bySchema);
  if (now.hint === 'names' && old.hint?.startsWith('Use ') === true) old.hint = now.hint;
  expect(now).toEqual(old);
}
