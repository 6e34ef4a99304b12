// Compares ratios with the kept ones.

/** A row may be this much slower before it counts as worse. */
const WORSE = 1.1;

/**
 * Returns the rows of a benchmark that are worse than the kept ones, and the rows that have none.
 * @param {ReadonlyMap<string, number>} recorded ratios by `benchmark / table / row`
 * @param {Readonly<Record<string, number>>} kept ratios by the same keys
 * @param {string} name of the benchmark
 */
export function compared(recorded, kept, name) {
  const own = [...recorded].filter(([key]) => key.startsWith(`${name} / `));
  return {
    worse: own.filter(([key, ratio]) => Object.hasOwn(kept, key) && ratio > kept[key] * WORSE),
    unknown: own.flatMap(([key]) => (Object.hasOwn(kept, key) ? [] : [key])),
  };
}

/**
 * Returns the better ratio of each row of two measurements.
 * @param {ReadonlyMap<string, number>} one
 * @param {ReadonlyMap<string, number>} other
 */
export function best(one, other) {
  const rows = [...one, ...other].map(([key, ratio]) => [
    key,
    Math.min(ratio, one.get(key) ?? ratio, other.get(key) ?? ratio),
  ]);
  return new Map(rows);
}
