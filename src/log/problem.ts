/** What can be wrong with a log that is still readable. */
export type LogProblemKind =
  | 'torn_tail'
  | 'fused'
  | 'malformed'
  | 'too_long'
  | 'gap'
  | 'orphan'
  | 'cycle'
  | 'duplicate_id';

/** One defect of a log; `offset` is the byte at which the line stands. */
export interface LogProblem {
  readonly kind: LogProblemKind;
  readonly offset: number;
  readonly message: string;
}

/** True for defects that leave no sensible tree; the others were repaired in memory and are warnings. */
export function isFatalProblem(problem: LogProblem): boolean {
  return problem.kind === 'cycle' || problem.kind === 'duplicate_id';
}
