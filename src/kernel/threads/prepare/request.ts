import type { BehaviorOptions } from '../../core/behavior.ts';
import type { AcceptedRisk } from '../../core/capability.ts';
import type { Isolation } from '../../core/isolation.ts';
import type { JsonObject } from '../../core/json.ts';
import type { PartialLimits } from '../../core/limits.ts';

/** The directive to run, its inputs and what overrides its settings. The CLI, the library and parent threads use it. */
export interface DirectiveRequest {
  readonly directiveId: string;
  /** Raw values: text from the command line or JSON values; coerced to the declared types. */
  readonly inputs?: JsonObject;
  readonly model?: string;
  readonly provider?: string;
  /** Limits that may be lower than what the directive or the configuration grants; higher up to the configured ceiling. */
  readonly limits?: PartialLimits;
  /** True to let `limits` go above what is granted where no ceiling is configured; the log records it. */
  readonly raiseLimits?: boolean;
  readonly parentThreadId?: string;
  /** Ids of the only tools that the run may execute, of those that the directive grants; nothing else is granted. */
  readonly onlyTools?: readonly string[];
  /** Risks that the run may take although the policy asks about them; a risk includes the lower ones. */
  readonly acknowledge?: readonly AcceptedRisk[];
  readonly allowUnpriced?: boolean;
  /** JSON Schema of an object that the outputs must match; the same as `behavior.schema`. */
  readonly outputSchema?: JsonObject;
  /** Has the thread work in its own git worktree; absent: it works where its parent does, or in the project. */
  readonly isolation?: Isolation;
  /** The name of the thread in lists: one line, shortened to 80 characters. */
  readonly label?: string;
  /** Text of the program at the end of the system text. */
  readonly system?: string;
  /** Overrides members of the directive's `<behavior>`; null unsets one. */
  readonly behavior?: BehaviorOptions;
}

/** A request with what only rye itself adds to it. */
export interface PrepareRequest extends DirectiveRequest {
  /** Capabilities that the hook starting this child adds to its parent thread's. */
  readonly hookCapabilities?: readonly string[];
  /** True if the plan is only shown and nothing starts. */
  readonly isDryRun?: boolean;
  /** True if a dry run throws what a run would be refused for because of its model. */
  readonly needsModel?: boolean;
}
