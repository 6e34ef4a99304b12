const TIMES = process.env['RYE_SEEDS'];
const SEED = process.env['RYE_SEED'];

/**
 * Parameters of a property for fast-check. The suite tries the same cases each time, so that a failure is always that of
 * a change. `RYE_SEEDS=n` tries n times as many random cases, and `RYE_SEED` repeats the cases of a seed that was reported.
 */
export function runs(numRuns: number): { readonly numRuns: number; readonly seed?: number } {
  const tried = numRuns * Number(TIMES ?? 1);
  if (SEED !== undefined) return { numRuns: tried, seed: Number(SEED) };
  return TIMES === undefined ? { numRuns: tried, seed: 1 } : { numRuns: tried };
}
