import { basename, dirname } from 'node:path';
import { RyeError } from '../core/errors.ts';
import type { SignableType } from '../core/ids.ts';
import { isSignatureLine, type SignedSubject } from '../trust/signature-line.ts';
import { normalizeNewlines } from './source.ts';
import type { ItemPath } from './spaces-fs.ts';

/** Returns the subject of an item's signature. The kind of a tool includes its extension, which selects the interpreter. */
export function itemSubject({
  type,
  id,
  extension,
}: Pick<ItemPath, 'type' | 'id' | 'extension'>): SignedSubject {
  return { kind: type === 'tool' ? `tool${extension}` : type, id };
}

/** The knowledge folder of thread exports, which rye signs without a person. */
const EXPORTS = 'agent/threads/';
const FRONTMATTER = /^---\n([\s\S]*?)\n---(?:\n|$)/;
/** The opening or closing line of a fence with its language. */
const FENCE = /^ {0,3}(`{3,}|~{3,}) *(\w*)/;
const CAPABILITIES = '# Capabilities\n\nDirective `';

/** The name and category that an item's text declares. */
export interface DeclaredIdentity {
  readonly name?: string | undefined;
  readonly category?: string | undefined;
}

/**
 * Returns the reason why a text with a valid version 1 signature must not be used as this item, else undefined. rye
 * itself signed thread exports and capability snapshots. A model wrote much of them, so they count only as knowledge in
 * their original place.
 */
export function displacedRecord(type: SignableType, id: string, text: string): string | undefined {
  const content = unsignedContent(normalizeNewlines(text));
  if (content.startsWith(CAPABILITIES)) return 'it is the capability snapshot of a thread';
  if (type === 'directive' && isKnowledge(content)) return 'it is a knowledge entry';
  const exported = exportedThread(content);
  if (exported === undefined) return undefined;
  if (type === 'knowledge' && id === `${EXPORTS}${exported.directive}/${exported.thread}`)
    return undefined;
  return `it is the record of the thread ${exported.thread}`;
}

function unsignedContent(text: string): string {
  const body = text.replace(/^#!.*\n/, '');
  const [line = ''] = body.split('\n', 1);
  return isSignatureLine(line) ? body.slice(line.length + 1) : body;
}

/** Returns the thread of an export; undefined for other texts. */
function exportedThread(content: string): { thread: string; directive: string } | undefined {
  const frontmatter = FRONTMATTER.exec(content)?.[1] ?? '';
  const member = (name: string): string | undefined =>
    new RegExp(`^${name}: *(.*)$`, 'm').exec(frontmatter)?.[1];
  const thread = member('thread_id');
  if (thread === undefined) return undefined;
  return { thread: unquoted(thread), directive: unquoted(member('directive') ?? '') };
}

/**
 * True for knowledge that shows a directive, as documentation does. Its signer did not intend it to run. Knowledge
 * metadata before the directive's fence identifies it.
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

/** Refuses a signed file that was copied or renamed: its text declares another name or category. */
export function assertIdentity(
  { type, id, path }: Pick<ItemPath, 'type' | 'id' | 'path'>,
  { name, category }: DeclaredIdentity,
): void {
  assertRunnableId({ type, id, path });
  const other = otherIdentity(id, { name: name === '' ? undefined : name, category });
  if (other === undefined) return;
  throw new RyeError('item_moved', `the file is not ${type} ${id}: ${other}`, {
    location: { path },
    hint: `It was copied or renamed after it was signed. Review it, correct its name and category, then run: rye sign ${type} ${id}`,
    details: { type, id, path },
  });
}

/** Refuses the id of a directive or a tool that a grant of another one would cover. */
export function assertRunnableId({ type, id, path }: Pick<ItemPath, 'type' | 'id' | 'path'>): void {
  if ((type !== 'tool' && type !== 'directive') || !id.includes('.')) return;
  const other = id.replaceAll('.', '/');
  throw new RyeError(
    'invalid_item_id',
    `the ${type} ${id} cannot run: a grant of ${other} would cover it too`,
    {
      location: { path, line: 1 },
      hint: 'Rename it: ids of directives and tools must not contain dots.',
    },
  );
}

/** Returns the category that an id implies: its folder, empty at the top. */
export function categoryOf(id: string): string {
  const folder = dirname(id);
  return folder === '.' ? '' : folder;
}

/** Returns what shows that a text declares another id than this one. */
export function otherIdentity(id: string, declared: DeclaredIdentity): string | undefined {
  const { name, category } = declared;
  if (name !== undefined && name !== basename(id))
    return `its text declares the name ${JSON.stringify(name)}`;
  return category !== undefined && category !== categoryOf(id)
    ? `its text declares the category ${JSON.stringify(category)}`
    : undefined;
}

function unquoted(text: string): string {
  return text.trim().replace(/^(["'])(.*)\1$/, '$2');
}
