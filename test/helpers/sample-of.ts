const isCampaign = process.env['RYE_FAULTS'] !== undefined;

/** The first in `npm test`, the second in a campaign: the files of both are named in vitest.config.ts. */
export function depth<T>(few: T, all: T): T {
  return isCampaign ? all : few;
}

/** Returns at most `count` of the values, evenly spread, the first and the last among them; in a campaign all of them. */
export function sampleOf<T>(values: readonly T[], count: number): readonly T[] {
  if (isCampaign || values.length <= count) return values;
  return Array.from({ length: count }, (_, at) =>
    values.at(Math.round((at * (values.length - 1)) / (count - 1))),
  ).filter((value) => value !== undefined);
}
