import { EXIT, type ExitCode } from '../../kernel/core/errors.ts';

/**
 * `done`: the leg ended, was parked, or was not needed. `refused`: what the store holds is not what was signed. `again`:
 * the store could not be reached.
 */
export type LegOutcome = 'done' | 'refused' | 'again';

/** The exit status with which the process of a leg tells its worker the outcome. */
export const EXIT_OF_LEG = {
  done: EXIT.ok,
  refused: EXIT.integrity,
  again: EXIT.waiting,
} as const satisfies Record<LegOutcome, ExitCode>;
