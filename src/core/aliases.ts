import type { ItemType } from './ids.ts';

/** Ids of Rye OS that have another one here. An item of the old id always wins. */
const ALIASES: Readonly<Partial<Record<ItemType, Readonly<Record<string, string>>>>> = {
  tool: {
    'rye/bash/bash': 'rye/bash',
    'rye/file-system/fs_read': 'rye/file-system/read',
    'rye/file-system/fs_write': 'rye/file-system/write',
    'rye/file-system/fs_ls': 'rye/file-system/ls',
    'rye/file-system/fs_glob': 'rye/file-system/glob',
    'rye/file-system/fs_grep': 'rye/file-system/grep',
    'rye/file-system/edit_lines': 'rye/file-system/edit',
    'rye/primary/rye_execute': 'rye/execute',
    'rye/primary/rye_fetch': 'rye/fetch',
    'rye/primary/rye_load': 'rye/fetch',
    'rye/primary/rye_search': 'rye/search',
    'rye/primary/rye_sign': 'rye/sign',
    'rye/primary/execute': 'rye/execute',
    'rye/primary/fetch': 'rye/fetch',
    'rye/primary/load': 'rye/fetch',
    'rye/primary/search': 'rye/search',
    'rye/primary/sign': 'rye/sign',
    'rye/load': 'rye/fetch',
  },
  directive: {
    'rye/agent/core/base': 'rye/core/base',
    'rye/agent/core/base_execute_only': 'rye/core/base_execute_only',
    'rye/agent/core/base_review': 'rye/core/base_review',
    'agent/core/base': 'rye/core/base',
    'rye/authoring/create_directive': 'rye/core/create_directive',
  },
  knowledge: {
    'rye/agent/core/protocol/execute': 'rye/agent/protocol/execute',
    'rye/agent/core/protocol/fetch': 'rye/agent/protocol/fetch',
    'rye/agent/core/protocol/sign': 'rye/agent/protocol/sign',
  },
};

/** The tool of Rye OS that starts a directive; here that is `rye_execute` with the directive's own capability. */
export const THREAD_DIRECTIVE = 'rye/agent/threads/thread_directive';

/** The id that an item of Rye OS has here; undefined if it has the same or none. */
export function aliasOf(type: string, id: string): string | undefined {
  const ids = Object.hasOwn(ALIASES, type) ? ALIASES[type as ItemType] : undefined;
  return ids !== undefined && Object.hasOwn(ids, id) ? ids[id] : undefined;
}

/** All aliases of a type, old id to id. */
export function aliasesOf(type: ItemType): Readonly<Record<string, string>> {
  return ALIASES[type] ?? {};
}

/** An exact capability on an alias, with the item that it names and what grants the same here. */
export interface RenamedGrant {
  readonly type: ItemType;
  readonly id: string;
  readonly capability: string;
}

/** What a capability that names an old id exactly means here; undefined for any other. A grant means its target and nothing else. */
export function renamedGrant(capability: string): RenamedGrant | undefined {
  const [, verb, type, rest] = /^rye\.(\w+)\.(\w+)\.(.+)$/.exec(capability) ?? [];
  if (verb === undefined || type === undefined || rest === undefined) return undefined;
  if (verb === 'execute' && type === 'tool' && rest === THREAD_DIRECTIVE.replaceAll('/', '.')) {
    return { type: 'tool', id: THREAD_DIRECTIVE, capability: 'rye.execute.directive.*' };
  }
  const found = Object.entries(ALIASES[type as ItemType] ?? {}).find(
    ([old]) => old.replaceAll('/', '.') === rest,
  );
  if (found === undefined) return undefined;
  const [id, target] = found;
  return {
    type: type as ItemType,
    id,
    capability: `rye.${verb}.${type}.${target.replaceAll('/', '.')}`,
  };
}
