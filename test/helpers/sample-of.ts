/** Returns at most `count` of the values, evenly spread, the first and the last among them; in a campaign all of them. */
export function sampleOf<T>(values: readonly T[], count: number): readonly T[] {
  if (process.env['RYE_FAULTS'] !== undefined || values.length <= count) return values;
  if (count === 1) return values.slice(0, 1);
  return Array.from({ length: count }, (_, at) =>
    values.at(Math.round((at * (values.length - 1)) / (count - 1))),
  ).filter((value) => value !== undefined);
}
