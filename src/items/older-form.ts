import { basename, dirname } from 'node:path';
import { RyeError } from '../core/errors.ts';
import type { ItemType } from '../core/ids.ts';
import type { SignatureFault } from '../trust/signature.ts';
import { displacedRecord, type StatedIdentity } from './binding.ts';
import { parseDirective } from './directive.ts';
import { parseKnowledge } from './knowledge.ts';
import { normalizeNewlines } from './source-text.ts';
import type { FoundFile } from './spaces-fs.ts';
import { readToolHeader } from './tool-header.ts';
import { toolKind } from './tool-metadata.ts';
import { parseYamlMapping } from './yaml-source.ts';

/** Why a good signature of the older form is not enough for a file. */
export interface OlderFormFault {
  readonly code: Extract<SignatureFault, 'signature_outdated' | 'item_moved'>;
  readonly detail: string;
}

/**
 * Why a good signature of the older form is not enough, or undefined. That form proves a text and its signer, and not
 * what the text was signed as. So the text itself has to declare its kind and its id, which configuration, rules and
 * skills never do.
 */
export function olderFormFault(
  found: FoundFile,
  {
    isShipped,
  }: { /** True if the system space has an item of this id. */ isShipped: () => boolean },
): OlderFormFault | undefined {
  const { type, id, text } = found;
  if (type === 'config' || type === 'rule' || type === 'skill')
    return outdated(`a ${type} file needs one that does`);
  const displaced = displacedRecord(type, id, text);
  if (displaced !== undefined) return { code: 'item_moved', detail: displaced };
  // An export of a thread declares its place by thread_id and directive, which were compared above.
  if (type === 'knowledge' && isExport(found)) return undefined;
  const fault = compare(id, type, declaredIdentity(found));
  if (fault !== undefined || type !== 'tool' || !isShipped()) return fault;
  return outdated('it would replace a tool that rye ships');
}

/** What the text declares; undefined if it cannot be read as an item of its type. */
function declaredIdentity(found: FoundFile): StatedIdentity | undefined {
  const { type, text, path } = found;
  try {
    if (type === 'directive') return parseDirective(text, path);
    if (type === 'tool') return declaredTool(normalizeNewlines(text), path);
    const { name, category, entryType } = parseKnowledge(text, path);
    return entryType === undefined ? undefined : { name, category };
  } catch (error) {
    if (error instanceof RyeError) return undefined;
    throw error;
  }
}

/** Only a header and a manifest can name a tool; the constants of a script can't. */
function declaredTool(text: string, path: string): StatedIdentity | undefined {
  const header = readToolHeader(text, path);
  const isManifest = header === undefined && toolKind(path) === 'manifest';
  const source = { path, text, line: 1, column: 1 };
  const raw = isManifest ? parseYamlMapping(source, 'tool_malformed') : header;
  if (raw === undefined) return undefined;
  const { name, category } = raw.value;
  return {
    name: typeof name === 'string' ? name : undefined,
    category: typeof category === 'string' ? category : undefined,
  };
}

function compare(
  id: string,
  type: ItemType,
  declared: StatedIdentity | undefined,
): OlderFormFault | undefined {
  const folder = dirname(id) === '.' ? '' : dirname(id);
  const { name, category } = declared ?? {};
  if (name !== undefined && name !== basename(id))
    return { code: 'item_moved', detail: `its text names it ${JSON.stringify(name)}` };
  if (category !== undefined && category !== folder) {
    const detail = `its text puts it into the category ${JSON.stringify(category)}`;
    return { code: 'item_moved', detail };
  }
  if (declared === undefined) return outdated(`its text does not declare a ${type} either`);
  if (name === undefined) return outdated('its text declares no name');
  return category === undefined ? outdated('its text declares no category') : undefined;
}

function isExport({ text, path }: FoundFile): boolean {
  try {
    return typeof parseKnowledge(text, path).metadata['thread_id'] === 'string';
  } catch (error) {
    if (error instanceof RyeError) return false;
    throw error;
  }
}

function outdated(detail: string): OlderFormFault {
  return { code: 'signature_outdated', detail };
}
