import type { JsonObject } from '../core/json.ts';
import type { AssistantBlock, ContentBlock, Message } from '../core/message.ts';

/** Bytes of an average token; for judging how full a context is. Bytes, not characters: other scripts cost more. */
export const BYTES_PER_TOKEN = 4;
/** What an image costs at most in the models that we know, as bytes of text. */
const IMAGE_BYTES = 1600 * BYTES_PER_TOKEN;
const MESSAGE_OVERHEAD_BYTES = 16;

/** Size of a message on the wire, roughly; the unit of the token estimates. */
export function messageBytes(message: Message): number {
  let bytes = MESSAGE_OVERHEAD_BYTES;
  for (const block of message.content) bytes += blockBytes(block);
  return bytes;
}

/** UTF-8 bytes of a block's text; an image counts as what its tokens would be as text. */
function blockBytes(block: ContentBlock | AssistantBlock): number {
  switch (block.type) {
    case 'text':
      return Buffer.byteLength(block.text);
    case 'thinking':
      return Buffer.byteLength(block.text) + (block.signature ?? block.redacted ?? '').length;
    case 'tool_call':
      return Buffer.byteLength(block.name + (block.malformed ?? jsonText(block.input)));
    case 'image':
      break;
  }
  return IMAGE_BYTES;
}

function jsonText(value: JsonObject): string {
  return JSON.stringify(value);
}

/** Tokens that a message is likely to be. */
export function messageTokens(message: Message): number {
  return Math.ceil(messageBytes(message) / BYTES_PER_TOKEN);
}
