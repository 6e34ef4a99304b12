import { basename, dirname } from 'node:path';
import { RyeError } from '../core/errors.ts';
import type { ItemType, SignableType } from '../core/ids.ts';
import type { SignedSubject } from '../trust/signature-line.ts';
import { normalizeNewlines } from './source.ts';

/** What an item's file is signed as. The extension of a tool belongs to its kind: it chooses the interpreter. */
export function itemSubject({
  type,
  id,
  extension,
}: {
  readonly type: SignableType;
  readonly id: string;
  readonly extension: string;
}): SignedSubject {
  return { kind: type === 'tool' ? `tool${extension}` : type, id };
}

/** Where rye puts the exports of threads, which it signs by itself. */
const EXPORTS = 'agent/threads/';
const SIGNATURE = /^(?:#!.*\n)?(?:(?:<!--|#|\/\/)[^\n]*rye:signed:[^\n]*\n)?/;
const FRONTMATTER = /^---\n([\s\S]*?)\n---(?:\n|$)/;
/** The opening or closing line of a fence, with its language. */
const FENCE = /^ {0,3}(`{3,}|~{3,}) *(\w*)/;
const CAPABILITIES = '# Capabilities\n\nDirective `';

/** An item's claim about what it is: the name and the category that its own text states, where it states them. */
export interface StatedIdentity {
  readonly name?: string | undefined;
  readonly category?: string | undefined;
}

/**
 * Why a text with a good signature of the older form must still not be used as this item, or undefined. rye itself signed
 * the exports of threads and their capability snapshots. A model wrote much of them, so they count as nothing but
 * knowledge at the place where rye puts them.
 */
export function displacedRecord(type: SignableType, id: string, text: string): string | undefined {
  const content = normalizeNewlines(text).replace(SIGNATURE, '');
  if (content.startsWith(CAPABILITIES)) return 'it is the capability snapshot of a thread';
  if (type === 'directive' && isKnowledge(content)) return 'it is a knowledge entry';
  const exported = exportedThread(content);
  if (exported === undefined) return undefined;
  if (type === 'knowledge' && id === `${EXPORTS}${exported.directive}/${exported.thread}`)
    return undefined;
  return `it is the record of the thread ${exported.thread}`;
}

/** The thread that a text says it is the export of, if it says so. */
function exportedThread(content: string): { thread: string; directive: string } | undefined {
  const frontmatter = FRONTMATTER.exec(content)?.[1] ?? '';
  const member = (name: string): string | undefined =>
    new RegExp(`^${name}: *(.*)$`, 'm').exec(frontmatter)?.[1];
  const thread = member('thread_id');
  if (thread === undefined) return undefined;
  return { thread: unquoted(thread), directive: unquoted(member('directive') ?? '') };
}

/**
 * Knowledge may show a directive, as documentation does. Who signed that did not mean it to run: the metadata of
 * knowledge in front of the fence tells.
 */
function isKnowledge(content: string): boolean {
  if (FRONTMATTER.test(content)) return true;
  let open = '';
  let isMetadata = false;
  for (const line of content.split('\n')) {
    const [, fence = '', language = ''] = FENCE.exec(line) ?? [];
    if (open !== '') {
      if (isMetadata && /^(?:title|name) *:/.test(line)) return true;
      if (fence.startsWith(open) && language === '') open = '';
    } else if (fence !== '') {
      if (language === 'xml') return false;
      open = fence;
      isMetadata = language === 'yaml' || language === 'yml';
    }
  }
  return false;
}

/** Refuses an item whose own text says that it is another one: a signed file that was copied or renamed. */
export function assertStandsFor(
  { type, id, path }: { readonly type: ItemType; readonly id: string; readonly path: string },
  { name, category }: StatedIdentity,
): void {
  if ((type === 'tool' || type === 'directive') && id.includes('.')) {
    const other = id.replaceAll('.', '/');
    throw new RyeError(
      'invalid_item_id',
      `the ${type} ${id} cannot be run: a grant of ${other} would cover it too`,
      {
        location: { path },
        hint: 'Rename it: ids of what runs have no dots.',
      },
    );
  }
  const folder = dirname(id) === '.' ? '' : dirname(id);
  if (name !== undefined && name !== '' && name !== basename(id))
    throw moved({ type, id, path }, `its text names it ${JSON.stringify(name)}`);
  if (category !== undefined && category !== folder)
    throw moved(
      { type, id, path },
      `its text puts it into the category ${JSON.stringify(category)}`,
    );
}

function moved(
  { type, id, path }: { readonly type: ItemType; readonly id: string; readonly path: string },
  why: string,
): RyeError {
  return new RyeError('item_moved', `the file does not stand for ${type} ${id}: ${why}`, {
    location: { path },
    hint: `It was copied or renamed after it was signed. Review it, correct its name and category, then run: rye sign ${type} ${id}`,
    details: { type, id, path },
  });
}

function unquoted(text: string): string {
  return text.trim().replace(/^(["'])(.*)\1$/, '$2');
}
