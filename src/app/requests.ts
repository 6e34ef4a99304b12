import type { BehaviorOptions } from '../core/behavior.ts';
import type { Risk } from '../core/capability.ts';
import type { LogEvent, UnknownEvent } from '../core/events.ts';
import type { JsonObject } from '../core/json.ts';
import type { PartialLimits } from '../core/limits.ts';
import type { Preset } from './presets.ts';

export interface ExecuteDirectiveRequest {
  readonly directiveId: string;
  /** Raw values: text from the command line or JSON values; coerced to the declared types. */
  readonly inputs?: JsonObject;
  readonly model?: string;
  readonly provider?: string;
  readonly limits?: PartialLimits;
  readonly threadId?: string;
  readonly parentThreadId?: string;
  /** Risks that the run may take although the policy asks about them; a risk includes the lower ones. */
  readonly acknowledge?: readonly Risk[];
  readonly allowUnsigned?: boolean;
  readonly allowUnpriced?: boolean;
  /** Write the model's stream to this file, for `replay`. */
  readonly recordTo?: string;
  /** Play this recording instead of asking a model. */
  readonly replayFrom?: string;
  /** JSON Schema of an object that the outputs must match; the same as `behavior.schema`. */
  readonly outputSchema?: JsonObject;
  /** Members stand above those of the directive's `<behavior>`; null unsets one. */
  readonly behavior?: BehaviorOptions;
  readonly signal?: AbortSignal;
  /** What a run has in common with others. */
  readonly preset?: Preset;
  /** Called with each event after it is durable. Must not throw. */
  readonly onEvent?: (event: LogEvent | UnknownEvent) => void;
}
