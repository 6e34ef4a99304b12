import type { JsonObject } from '../../core/json.ts';
import { text } from '../arguments.ts';
import { guarded } from '../guard.ts';
import { type Tool, type ToolContext, type ToolOutput, textOutput } from '../tool.ts';

const SEND_MESSAGE_ID = 'rye/agent/threads/send_message';

export interface MessageCall {
  /** A thread id, or `parent`. */
  readonly to: string;
  readonly message: string;
  readonly mode: 'auto' | 'idle';
}

/** Leaves the message; the threads room stands behind it. */
export type SendMessage = (call: MessageCall, context: ToolContext) => Promise<JsonObject>;

/** `rye/agent/threads/send_message`: a thread writes to the thread that started it, or to one below it. */
export function createSendMessageTool(send: SendMessage): Tool {
  return {
    id: SEND_MESSAGE_ID,
    description:
      'Leaves a message for the thread that started this one (to: "parent") or for a thread below it. It is read when that thread has finished what it does, or earlier where that is safe; nothing comes back here.',
    inputSchema: {
      type: 'object',
      properties: {
        to: { type: 'string', minLength: 1, description: 'A thread id, or "parent".' },
        message: { type: 'string', minLength: 1 },
        mode: {
          type: 'string',
          enum: ['auto', 'idle'],
          description: 'idle: only when the thread has finished what it does. Default auto.',
        },
      },
      required: ['to', 'message'],
      additionalProperties: false,
    },
    traits: {
      reads_only: false,
      idempotent: false,
      network: false,
      sequential: false,
      timeout_seconds: 60,
    },
    execute: (input, context): Promise<ToolOutput> =>
      guarded(async () => {
        const sent = await send(
          {
            to: text(input, 'to'),
            message: text(input, 'message'),
            mode: input['mode'] === 'idle' ? 'idle' : 'auto',
          },
          context,
        );
        return textOutput(JSON.stringify(sent, null, 2), sent);
      }),
  };
}
