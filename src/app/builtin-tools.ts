import { RyeError } from '../core/errors.ts';
import type { JsonObject } from '../core/json.ts';
import type { Tool } from '../tools/tool.ts';
import type { FetchedItem, ItemSummary } from './rye.ts';

/** A row of `rye list tool`. */
export function builtinSummary({ id, description }: Tool): ItemSummary {
  const [first = ''] = description.split(/(?<=\.)\s/);
  const place = { space: 'system', path: null, shadowed_by: null } as const;
  return { type: 'tool', id, ...place, version: null, description: first, signature: 'builtin' };
}

/** What `rye fetch tool` says; throws `usage` where it is to be copied. */
export function builtinItem(tool: Tool, copyTo: 'project' | 'user' | undefined): FetchedItem {
  if (copyTo !== undefined) {
    throw new RyeError('usage', `${tool.id} is a part of rye and has no file to copy`, {
      hint: `Write a tool of your own under another id; see: rye fetch tool rye/core/greet`,
    });
  }
  const traits: JsonObject = { ...tool.traits };
  return {
    type: 'tool',
    id: tool.id,
    space: 'system',
    path: null,
    signature: 'builtin',
    metadata: { description: tool.description, traits },
    content: `${JSON.stringify(tool.inputSchema, null, 2)}\n`,
  };
}
