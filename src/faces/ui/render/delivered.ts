import { deliveryOf } from '../../../kernel/app/api/trees.ts';
import type { LogEvent, UnknownEvent } from '../../../kernel/core/events.ts';
import { payloadOf } from './progress-line.ts';

/** Returns the message of a person that a running thread receives with this event. */
export function deliveredText(event: LogEvent | UnknownEvent): string | undefined {
  const delivery = deliveryOf(payloadOf(event, 'custom_message')?.content ?? '');
  return delivery?.isPerson === true ? delivery.text : undefined;
}
