import type { JsonObject } from '../core/json.ts';
import { summarize } from '../items/metadata.ts';
import type { Tool } from '../tools/tool.ts';
import type { FetchedItem, ItemSummary } from './api/items.ts';
import type { ProgramItem } from './program/items.ts';

/** A row of a list for an item of the program. */
export function programSummary({ type, id, space, path, text }: ProgramItem): ItemSummary {
  const { version, description } = summarize(type, text);
  return {
    type,
    id,
    space,
    path: type === 'directive' ? null : path,
    shadowed_by: null,
    version: version === '' ? null : version,
    description,
    signature: 'program',
  };
}

/** An item of the program for `rye fetch`. */
export function programItem(item: ProgramItem): FetchedItem {
  const { type, id, space, path, signature } = programSummary(item);
  const metadata = { ...summarize(item.type, item.text) };
  return { type, id, space, path, signature, metadata, content: item.text };
}

/** A row of `rye list tool`. */
export function builtinSummary({ id, description }: Tool): ItemSummary {
  const [first = ''] = description.split(/(?<=\.)\s/);
  const place = { space: 'system', path: null, shadowed_by: null } as const;
  return { type: 'tool', id, ...place, version: null, description: first, signature: 'builtin' };
}

/** A built-in tool for `rye fetch tool`. */
export function builtinItem(tool: Tool): FetchedItem {
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
