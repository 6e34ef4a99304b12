import { createHash } from 'node:crypto';
import { RyeError } from './errors.ts';

/** The kinds of items that live in spaces, singular as in ids and capabilities. */
export const ITEM_TYPES = ['directive', 'tool', 'knowledge', 'rule', 'skill'] as const;
export type ItemType = (typeof ITEM_TYPES)[number];

export function isItemType(value: string): value is ItemType {
  return (ITEM_TYPES as readonly string[]).includes(value);
}

/** Places of items in the order of resolution; the first match is final. */
export const SPACES = ['project', 'user', 'system'] as const;
export type Space = (typeof SPACES)[number];

/** Types that can be signed: every item type and configuration files. */
export type SignableType = ItemType | 'config';

const SEGMENT = /^[A-Za-z0-9._-]+$/;
const MAX_ID_LENGTH = 200;

/** Why `id` cannot be an item id, or undefined when it can. */
export function itemIdProblem(id: string): string | undefined {
  if (id === '') return 'it is empty';
  if (id.length > MAX_ID_LENGTH) return `it is longer than ${MAX_ID_LENGTH} characters`;
  if (id.startsWith('/')) return 'it starts with a slash';
  for (const segment of id.split('/')) {
    if (segment === '.' || segment === '..') return `the segment "${segment}" is not allowed`;
    if (!SEGMENT.test(segment))
      return `the segment "${segment}" has characters other than A-Z a-z 0-9 . _ -`;
  }
  return undefined;
}

/** Refuses ids that could leave a space or that no file could have. */
export function assertItemId(id: string, type: SignableType): void {
  const problem = itemIdProblem(id);
  if (problem === undefined) return;
  throw new RyeError('invalid_item_id', `${JSON.stringify(id)} is not a ${type} id: ${problem}`, {
    hint: 'An id is the path below the type folder without extension, such as rye/core/project_report.',
  });
}

/** A thread id is a path below the threads folder, so it obeys the rules of item ids. */
export function assertThreadId(id: string): void {
  refuseThreadId(id, itemIdProblem(id));
}

/** Refuses ids that a new thread may not have; existing threads keep theirs. */
export function assertNewThreadId(id: string): void {
  const reserved = id.split('/').find(isReservedSegment);
  const problem =
    reserved === undefined ? undefined : `the segment "${reserved}" is reserved, use another`;
  refuseThreadId(id, itemIdProblem(id) ?? problem);
}

function refuseThreadId(id: string, problem: string | undefined): void {
  if (problem === undefined) return;
  throw new RyeError('invalid_thread_id', `${JSON.stringify(id)} is not a thread id: ${problem}`, {
    hint: 'Use letters, digits, "-", "_" and ".", such as review-2. See docs/threads.md.',
  });
}

/**
 * Names that rye gives to files in a thread's folder and beside it. A thread may lie in the folder of another, but not
 * in the part that is the other's: whichever of them comes first, neither takes a path that the other needs.
 */
const RESERVED_NAMES =
  /^(?:artifacts$|(?:thread|plan|lease|handover)\.json|transcript\.|capabilities\.md|spawn\.log|(?:registry|budget_ledger)\.db)/i;

/** Also what reads as an option or a hidden file, and `.md`, which is how the export of a thread `a` ends: `a.md`. */
function isReservedSegment(segment: string): boolean {
  return /^[-.]|\.md$/i.test(segment) || RESERVED_NAMES.test(segment);
}

/** Lower-case letters and digits without those that look alike. */
const ID_LETTERS = '0123456789abcdefghjkmnpqrstvwxyz';
const ID_LENGTH = 4;
const LONG_ID_LENGTH = 8;
/** Attempts with a short ID before a long one is used. */
const SHORT_ATTEMPTS = 5;

/**
 * `<directive>-<four letters or digits>`, such as `ask-7f3k`. Another `attempt` (from 1) gives another ID, for IDs that
 * are taken. A segment of the directive that is reserved gets an underscore.
 */
export function threadIdCandidate(directiveId: string, epochMs: number, attempt: number): string {
  const path = directiveId
    .split('/')
    .map((segment) => (isReservedSegment(segment) ? `_${segment.replaceAll('.', '_')}` : segment))
    .join('/');
  const hash = createHash('sha256').update(`${directiveId}\0${epochMs}\0${attempt}`).digest();
  const length = attempt > SHORT_ATTEMPTS ? LONG_ID_LENGTH : ID_LENGTH;
  const letters = Array.from(hash.subarray(0, length), (byte) => ID_LETTERS[byte % 32] ?? '');
  return `${path}-${letters.join('')}`;
}

/** The API name of an item: `/`, `-` and `.` become `_`, so `rye/file-system/read` is `rye_file_system_read`. */
export function wireName(itemId: string): string {
  return itemId.replaceAll(/[/.-]/g, '_');
}

/** Source of short random ids for entries and calls; an argument so that tests are repeatable. */
export interface IdSource {
  /** 16 lower-case hexadecimal characters. */
  entryId(): string;
  uuid(): string;
}

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

/** Translates a capability that names an old id exactly; undefined for any other. The grant covers its target only. */
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

/** The server of a tool id such as `mcp/memory/read_graph`; undefined for other tools. */
export function serverOfTool(id: string): string | undefined {
  return /^mcp\/([^/]+)\/[^/]+$/.exec(id)?.[1];
}
