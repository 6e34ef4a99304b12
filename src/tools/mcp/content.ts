import type {
  CallToolResult,
  ContentBlock as McpBlock,
  ReadResourceResult,
} from '@modelcontextprotocol/sdk/types.js';
import { isJsonObject } from '../../core/json.ts';
import type { ContentBlock } from '../../core/message.ts';
import type { ToolOutput } from '../tool.ts';

/** Types of images that every provider takes. */
const IMAGE = /^image\/(?:png|jpeg|gif|webp)$/;

/** Converts the answer of a server's tool to a tool's output. Names sounds and other binary data instead of passing them on. */
export function outputOf({ content, isError, structuredContent }: CallToolResult): ToolOutput {
  const blocks = content.map(blockOf);
  const data = isJsonObject(structuredContent) ? structuredContent : undefined;
  if (blocks.length === 0 && data) blocks.push({ type: 'text', text: JSON.stringify(data) });
  return { content: blocks, is_error: isError === true, ...(data ? { data } : {}) };
}

/** The contents of a resource. */
export function resourceOutput({ contents }: ReadResourceResult): ToolOutput {
  return { content: contents.map(resourceBlock), is_error: false };
}

/** One block of a result or of a prompt's message. */
export function blockOf(block: McpBlock): ContentBlock {
  switch (block.type) {
    case 'text':
      return { type: 'text', text: block.text };
    case 'image':
      return binary(block.mimeType, block.data);
    case 'audio':
      return binary(block.mimeType, block.data);
    case 'resource':
      return resourceBlock(block.resource);
    case 'resource_link':
      return { type: 'text', text: `[resource ${block.uri}: ${block.title ?? block.name}]` };
  }
}

function resourceBlock(resource: ReadResourceResult['contents'][number]): ContentBlock {
  return 'text' in resource
    ? { type: 'text', text: resource.text }
    : binary(resource.mimeType ?? 'application/octet-stream', resource.blob);
}

function binary(type: string, data: string): ContentBlock {
  if (IMAGE.test(type)) return { type: 'image', media_type: type, data };
  return { type: 'text', text: `[${type}, ${Buffer.byteLength(data, 'base64')} bytes, not shown]` };
}
