import type { Feature as KernelFeature } from '../../kernel/app/feature.ts';
import type { Command } from './command.ts';

/** A feature with its commands. */
export interface Feature extends KernelFeature {
  /** Commands of `rye`, each below a heading of the help. */
  readonly commands?: readonly Command[];
  /** Commands that rye itself runs; no help shows them. */
  readonly internal?: readonly Command[];
}
