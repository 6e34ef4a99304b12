import type { LogEvent, UnknownEvent } from '../core/events.ts';
import type { DirectiveRequest } from '../threads/prepare/request.ts';
import type { Preset } from './presets.ts';

/** A directive to run, and how this process runs it. */
export interface ExecuteDirectiveRequest extends DirectiveRequest {
  readonly threadId?: string;
  readonly allowUnsigned?: boolean;
  /** Writes the model's stream to this file, for `replayFrom`. */
  readonly recordTo?: string;
  /** Plays this recording instead of calling a model. */
  readonly replayFrom?: string;
  readonly signal?: AbortSignal;
  /** Options that the run shares with others. */
  readonly preset?: Preset;
  /** Called with each event after it is durable. Must not throw. */
  readonly onEvent?: (event: LogEvent | UnknownEvent) => void;
}
