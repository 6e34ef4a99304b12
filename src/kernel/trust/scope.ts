import { RyeError } from '../core/errors.ts';
import { ITEM_TYPES } from '../core/ids.ts';
import { compact } from '../core/json.ts';
import { didYouMean } from '../core/text.ts';
import type { SignedSubject } from './signature-line.ts';

/** Purposes of a trusted key: signing items and records, approving tool calls, or certifying the workers of a fleet. */
export const KEY_PURPOSES = ['sign', 'approve', 'certify'] as const;
export type KeyPurpose = (typeof KEY_PURPOSES)[number];

/** Types that a scope can name: the item types, and the records of threads. */
const SCOPE_TYPES: readonly string[] = [...ITEM_TYPES, 'config', 'thread'];

/** IDs of the knowledge entries that are exports of threads. */
const EXPORTS = 'agent/threads/';

/** The limits of a trusted key. */
export interface KeyScope {
  /** Without `sign`, nothing that the key signs counts; without `approve`, none of its approvals. */
  readonly purposes: readonly KeyPurpose[];
  /** Globs over ids of items: `*` stays within one folder, `**` crosses folders. Absent: every id. */
  readonly ids?: readonly string[];
  /** Item types, or `thread` for records of threads. Absent: every type. */
  readonly types?: readonly string[];
}

/** The scope of the user's own keys. */
export const FULL_SCOPE: KeyScope = { purposes: ['sign', 'approve'] };

/** The scope of a certified worker: it signs records of threads and nothing else. */
export const WORKER_SCOPE: KeyScope = { purposes: ['sign'], types: ['thread'] };

/** A scope as a person writes it. */
export interface ScopeRequest {
  readonly purposes?: readonly string[];
  readonly ids?: readonly string[];
  readonly types?: readonly string[];
}

const GLOB = /^[A-Za-z0-9._/*-]+$/;
const MAX_GLOB_LENGTH = 200;

/** Checks the parts of a scope; purposes default to `sign`. Throws `invalid_input` naming the bad part. */
export function readScope({ purposes = ['sign'], ids, types }: ScopeRequest): KeyScope {
  assertKnown('purpose', purposes, KEY_PURPOSES);
  if (types !== undefined) assertKnown('type', types, SCOPE_TYPES);
  if (ids !== undefined) assertGlobs(ids);
  return compact({
    purposes: KEY_PURPOSES.filter((purpose) => purposes.includes(purpose)),
    ids,
    types,
  });
}

function assertKnown(what: string, names: readonly string[], known: readonly string[]): void {
  const odd = names.length === 0 ? '' : names.find((name) => !known.includes(name));
  if (odd === undefined) return;
  throw new RyeError('invalid_input', `unknown ${what} ${JSON.stringify(odd)}`, {
    hint: didYouMean(odd, known) ?? `Use: ${known.join(', ')}`,
  });
}

function isGlob(text: string): boolean {
  return GLOB.test(text) && text.length <= MAX_GLOB_LENGTH;
}

function assertGlobs(globs: readonly string[]): void {
  const odd = globs.length === 0 ? '' : globs.find((glob) => !isGlob(glob));
  if (odd === undefined) return;
  throw new RyeError('invalid_input', `${JSON.stringify(odd)} is not a glob over ids`, {
    hint: "Write ids with * and **, such as 'reports/*' or 'team/**'.",
  });
}

/** True if a key of this scope may sign the subject. A key that is limited to ids signs no records. */
export function maySign(scope: KeyScope, subject: SignedSubject): boolean {
  const { purposes, ids, types } = scope;
  const type = scopeType(subject.kind);
  if (type === 'thread') return maySignRecords(scope);
  // the export of a thread is a record of it too
  if (type === 'knowledge' && subject.id.startsWith(EXPORTS) && maySignRecords(scope)) return true;
  if (!purposes.includes('sign') || (types !== undefined && !types.includes(type))) return false;
  return ids === undefined || ids.some((glob) => matchesGlob(glob, subject.id));
}

/** True if the limits of a scope to ids and types allow an item. Purposes do not count. */
export function coversItem({ ids, types }: KeyScope, type: string, id: string): boolean {
  if (types !== undefined && !types.includes(type)) return false;
  return ids === undefined || ids.some((glob) => matchesGlob(glob, id));
}

/** True if records of threads, such as the checkpoints of logs, count with a key of this scope. */
export function maySignRecords({ purposes, ids, types }: KeyScope): boolean {
  if (!purposes.includes('sign')) return false;
  return types === undefined ? ids === undefined : types.includes('thread');
}

/** Names the limits of a scope in one clause. */
export function describeScope({ purposes, ids, types }: KeyScope): string {
  const limits = [types?.join(','), ids === undefined ? undefined : `only ${ids.join(',')}`];
  return [purposes.join(','), ...limits.filter((part) => part !== undefined)].join('; ');
}

/** Records that rye signs itself belong to a thread. */
function scopeType(kind: string): string {
  if (kind.startsWith('tool.')) return 'tool';
  return kind === 'capabilities' || kind === 'thread-file' ? 'thread' : kind;
}

/** `*` matches within one folder, `**` crosses folders. Takes time in proportion to both lengths. */
function matchesGlob(glob: string, id: string): boolean {
  return matchParts(glob.split('/'), id.split('/'));
}

function matchParts(globs: readonly string[], parts: readonly string[]): boolean {
  let at = 0;
  let part = 0;
  let restart: { readonly at: number; part: number } | undefined;
  while (part < parts.length) {
    const glob = globs[at];
    if (glob === '**') {
      restart = { at, part };
      at += 1;
    } else if (glob !== undefined && matchesSegment(glob, parts[part] ?? '')) {
      at += 1;
      part += 1;
    } else if (restart !== undefined) {
      restart.part += 1;
      at = restart.at + 1;
      part = restart.part;
    } else return false;
  }
  return at === globs.length;
}

function matchesSegment(glob: string, text: string): boolean {
  const pieces = glob.split(/\*+/);
  const first = pieces[0] ?? '';
  if (pieces.length === 1) return first === text;
  const last = pieces.at(-1) ?? '';
  if (!text.startsWith(first) || !text.endsWith(last)) return false;
  let from = first.length;
  const end = text.length - last.length;
  for (const piece of pieces.slice(1, -1)) {
    const found = text.indexOf(piece, from);
    if (found === -1 || found + piece.length > end) return false;
    from = found + piece.length;
  }
  return from <= end;
}
