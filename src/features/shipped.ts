import type { Feature } from '../faces/cli/feature.ts';
import * as all from './all.ts';

/** The features that this package ships. */
export const FEATURES: readonly Feature[] = Object.values(all).toSorted((one, two) =>
  one.name < two.name ? -1 : 1,
);
