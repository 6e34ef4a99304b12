/** One part of a plan that changed, such as a rule or a permission. */
export interface PlanChange {
  /** The kind of part, such as `rule`, `hook`, `capability` or `directive`. */
  readonly type: string;
  readonly id: string;
  /** The files that it came from, with their hashes; absent: there was none, or there is none now. */
  readonly before?: ChangedSource;
  readonly after?: ChangedSource;
  /** The effect on the run, as a sentence for people. */
  readonly text?: string;
}

/** A file that a part of a plan came from. */
export interface ChangedSource {
  readonly space?: string;
  readonly path?: string;
  readonly sha256?: string;
}
