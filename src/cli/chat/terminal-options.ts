import type { Cost } from '../../core/usage.ts';
import type { Io } from '../io.ts';
import type { LiveView } from '../render/live-view.ts';
import type { ChatDesk } from './actions.ts';
import type { QueuedMessage } from './conversation.ts';
import type { HeldKeys } from './held-keys.ts';
import type { ChatHistory } from './history.ts';
import type { EmptyMessage } from './run-facts.ts';
import type { Slash } from './slash.ts';
import type { ChatSetting } from './status-line.ts';

export interface TerminalChatOptions {
  readonly desk: ChatDesk;
  readonly io: Pick<Io, 'stdout' | 'env'>;
  readonly keys: HeldKeys;
  readonly view: LiveView;
  readonly history: ChatHistory;
  readonly setting: ChatSetting;
  /** Messages that wait for the thread. */
  readonly queued: readonly QueuedMessage[];
  /** Printed first. */
  readonly intro: readonly string[];
  /** The directive runs before the first message. */
  readonly startsAlone: boolean;
  /** Effect of an empty message. */
  readonly next: EmptyMessage;
  /** The cost of the thread so far. */
  readonly spent: Cost | undefined;
  /** Kills the running tools at once. */
  readonly hurry: () => void;
}

/** A message or a command as it was typed, with its form on the screen. */
export interface Typed {
  readonly text: string;
  readonly shown: string;
  readonly slash?: Slash | undefined;
}
