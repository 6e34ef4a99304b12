import type { HookDeclaration } from '../core/hook.ts';
import type { JsonObject } from '../core/json.ts';
import type { ThreadSettings } from '../core/plan.ts';
import type { LimitSource } from '../policy/limits.ts';
import type { RiskTable } from '../policy/risk.ts';
import type { SteerRules } from '../policy/steer.ts';
import type { LaunchLimits } from '../storage/store.ts';

/** The configuration of threads, merged over the three spaces. */
export interface ThreadConfig {
  readonly limitDefaults: LimitSource;
  /** The most that limits from outside may grant, of signed files; absent names have no ceiling. */
  readonly limitCeiling: LimitSource;
  readonly risks: RiskTable;
  /** Hooks of every source but the directive; already verified under the trust policy. */
  readonly hooks: {
    readonly user: readonly HookDeclaration[];
    readonly builtin: readonly HookDeclaration[];
    readonly project: readonly HookDeclaration[];
    readonly infra: readonly HookDeclaration[];
  };
  readonly settings: ThreadSettings;
  readonly coordination: Coordination;
  readonly recovery: Recovery;
  readonly steer: SteerRules;
  /** `hold`: a delivery to a finished thread waits; `resume`: it resumes the thread. */
  readonly onFinished: 'hold' | 'resume';
  readonly toolPreloadTokens: number;
  /** Applies unless the directive or the run overrides it. */
  readonly behavior: JsonObject;
  /** Names of environment variables that `{env:…}` may read. */
  readonly envAllow: readonly string[];
}

/** The handling of crashed threads, and the proof that their logs must give. */
export interface Recovery {
  /** `fail` ends a crashed thread as a resumable error, `resume` lets `rye threads recover` resume it. */
  readonly mode: 'fail' | 'resume';
  /** Seconds without a sign of life after which an owner counts as dead. */
  readonly staleSeconds: number;
  /** `strict` refuses to continue from a log that does not verify, `lenient` warns. */
  readonly transcriptIntegrity: 'strict' | 'lenient';
}

/** Maximum children that run at once, and what happens to them when their parent ends. */
export interface Coordination extends LaunchLimits {
  readonly onParentCancel: ChildPolicy;
  readonly onParentError: ChildPolicy;
  readonly onParentComplete: ChildPolicy;
}

/** `keep`: children continue after their parent's end. */
export type ChildPolicy = 'cancel' | 'keep';
