import type { EmptyMessage } from '../../../kernel/app/api/chat.ts';
import type { LogEvent, UnknownEvent } from '../../../kernel/core/events.ts';
import { payloadOf } from '../render/progress-line.ts';

const IDLE_HINT = 'Ask anything; /help lists the commands';
export const RUNNING_HINT = 'Type to queue a message; Ctrl-C stops the answer';
export const STOPPING_HINT = 'stopping; Ctrl-C again kills running tools';
export const LEAVE_HINT = 'press Ctrl-C again to leave';
export const NEXT_HINTS: Readonly<Record<EmptyMessage, string>> = {
  nothing: IDLE_HINT,
  continues: 'Ask anything, or press Enter to continue the interrupted answer',
  decides: 'Press Enter to decide about what waits',
  sends: 'Press Enter to send the queued message, or write another one after it',
};
export const TYPING_HINT = 'Tab decides now; Enter sends your message first';
export const WAITS_NOTE = 'it goes to the model first when you continue';
/** True once the log has the message of a run: no crash loses it from here on. */
export function isAccepted(event: LogEvent | UnknownEvent): boolean {
  const role = payloadOf(event, 'message')?.message.role;
  return role === 'user' || event.event_type === 'turn_started';
}
