import {
  closeSync,
  constants,
  type Dirent,
  fstatSync,
  lstatSync,
  readdirSync,
  realpathSync,
  type Stats,
  statSync,
} from 'node:fs';
import { basename, dirname, sep } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { isoTime } from '../../kernel/core/clock.ts';
import type { ItemType, Space } from '../../kernel/core/ids.ts';
import { type JsonValue, toText } from '../../kernel/core/json.ts';
import type { FileFingerprint, SearchDocument } from '../../kernel/core/search.ts';
import { readDirective } from '../../kernel/items/directive.ts';
import { parseKnowledge } from '../../kernel/items/knowledge.ts';
import { summarize } from '../../kernel/items/metadata.ts';
import { openForReading, readUpTo } from '../../kernel/items/read-inside-fs.ts';
import { parseRule } from '../../kernel/items/rule.ts';
import { loadSkill } from '../../kernel/items/skill.ts';
import { isSignatureLine } from '../../kernel/trust/signature-line.ts';
import { parseFlatYaml } from './flat-yaml.ts';
import { parseTime } from './query.ts';

/** An item's file as listed by the spaces. */
export interface ScannedItem {
  readonly type: ItemType;
  readonly id: string;
  readonly space: Space;
  readonly path: string;
  /** Folder of the type in its space. A link out of it is not followed. */
  readonly root: string;
}

/** Differences between files on disk and an index. */
export interface ScanResult {
  /** Number of compared files. */
  readonly total: number;
  /** Number of new and changed files. */
  readonly changedCount: number;
  /** Documents of new and changed files, in batches that fit one transaction each. */
  changed(): AsyncGenerator<Batch, void>;
  /** Keys of the index whose files no longer exist. */
  readonly removed: readonly string[];
}

export interface Batch {
  readonly documents: readonly SearchDocument[];
  /** Number of changed files after this batch. */
  readonly left: number;
}

/** Maximum bytes of a file that are indexed. */
export const MAX_TEXT = 1024 * 1024;
/** A batch ends at either of these. */
const BATCH_FILES = 500;
const BATCH_BYTES = 8 * MAX_TEXT;

interface ChangedItem {
  readonly item: ScannedItem;
  readonly fingerprint: FileFingerprint;
  readonly isLink: boolean;
}

/**
 * Compares listed files with the fingerprints of an index by size and modification time. Costs one `lstat` for each file; only
 * new and changed files are read, when {@link ScanResult.changed} is iterated. A file that vanishes meanwhile counts as absent.
 */
export function scanItems(
  items: Iterable<ScannedItem>,
  known: ReadonlyMap<string, FileFingerprint>,
): ScanResult {
  const present = new Set<string>();
  const changed: ChangedItem[] = [];
  for (const item of items) {
    // Synchronous: ten thousand stats through the thread pool take several times as long.
    const found = statsInside(item);
    if (found === undefined || present.has(item.path)) continue;
    const { stats, isLink } = found;
    present.add(item.path);
    const fingerprint = { size: stats.size, mtime_ms: stats.mtimeMs };
    const before = known.get(item.path);
    if (before?.size === fingerprint.size && before.mtime_ms === fingerprint.mtime_ms) continue;
    changed.push({ item, fingerprint, isLink });
  }
  return {
    total: present.size,
    changedCount: changed.length,
    removed: [...known.keys()].filter((key) => !present.has(key)),
    async *changed() {
      let documents: SearchDocument[] = [];
      let bytes = 0;
      for (const [at, { item, fingerprint, isLink }] of changed.entries()) {
        const read = isLink ? readHead(item, MAX_TEXT) : readFile(item.path, MAX_TEXT, NO_LINK);
        if (read !== undefined) {
          const text = read.bytes.toString('utf8');
          documents.push(toSearchDocument({ ...item, fingerprint, text }));
          bytes += read.bytes.length;
        }
        const left = changed.length - at - 1;
        if (left > 0 && documents.length < BATCH_FILES && bytes < BATCH_BYTES) continue;
        yield { documents, left };
        [documents, bytes] = [[], 0];
        // lets a running thread handle its signals
        await setImmediate();
      }
    },
  };
}

/** True if a path still names a regular file with this fingerprint. */
export function isUnchanged(path: string, { size, mtime_ms }: FileFingerprint): boolean {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  return stats?.size === size && stats.mtimeMs === mtime_ms && stats.isFile();
}

/** The first bytes of a file and its fingerprint. */
export interface FileHead {
  readonly bytes: Buffer;
  readonly fingerprint: FileFingerprint;
}

/** Reads the head of an item's file; undefined if it is gone, no regular file, or a link out of its folder. */
export function readHead(item: ScannedItem, limit: number): FileHead | undefined {
  const found = statsInside(item);
  return found && readFile(item.path, limit, found.isLink ? 0 : NO_LINK);
}

/** Opening fails if the file was replaced by a link since it was listed. */
const NO_LINK = constants.O_NOFOLLOW;

function readFile(path: string, limit: number, flags: number): FileHead | undefined {
  let descriptor: number | undefined;
  try {
    descriptor = openForReading(path, flags);
    const stats = fstatSync(descriptor);
    if (!stats.isFile()) return undefined;
    const bytes = readUpTo(descriptor, Math.min(stats.size, limit));
    const fingerprint = { size: stats.size, mtime_ms: stats.mtimeMs };
    return { bytes, fingerprint };
  } catch {
    // gone or unreadable since it was listed: the next scan sees it again or removes it
    return undefined;
  } finally {
    if (descriptor !== undefined) closeSync(descriptor);
  }
}

interface Found {
  readonly stats: Stats;
  readonly isLink: boolean;
}

function statsInside({ path, root }: ScannedItem): Found | undefined {
  const own = lstatSync(path, { throwIfNoEntry: false });
  if (own?.isSymbolicLink() !== true) {
    return own?.isFile() === true ? { stats: own, isLink: false } : undefined;
  }
  try {
    if (!realpathSync(path).startsWith(realpathSync(root) + sep)) return undefined;
    const stats = statSync(path);
    return stats.isFile() ? { stats, isLink: true } : undefined;
  } catch {
    return undefined;
  }
}

/** A file to index. Its absolute path is the key in the index. */
export interface SearchableFile extends Omit<ScannedItem, 'root'> {
  readonly fingerprint: FileFingerprint;
  readonly text: string;
}

/** Members of a document that come from the file's text. */
type Contents = Pick<SearchDocument, 'title' | 'tags' | 'body'> &
  Partial<Pick<SearchDocument, 'directive' | 'status' | 'model' | 'time'>>;

/**
 * Returns the search document of a file. The metadata of a thread export contains `directive`, `status`, `model` and
 * `created_at`. A file that cannot be parsed is still found by its id and text.
 */
export function toSearchDocument(file: SearchableFile): SearchDocument {
  const { type, id, space, path, fingerprint, text } = file;
  const contents: Contents = readContents(file) ?? {
    title: basename(id),
    tags: '',
    body: withoutSignature(text),
  };
  return {
    key: path,
    fingerprint,
    type,
    id,
    space,
    directive: '',
    status: '',
    model: '',
    ...contents,
    time: contents.time ?? isoTime(fingerprint.mtime_ms),
  };
}

function readContents({ type, id, path, text }: SearchableFile): Contents | undefined {
  try {
    return READERS[type](text, { id, path });
  } catch {
    // `rye validate` explains a broken item; search must still find it.
    return undefined;
  }
}

interface Place {
  readonly id: string;
  readonly path: string;
}

const READERS: Readonly<Record<ItemType, (text: string, place: Place) => Contents | undefined>> = {
  knowledge: knowledgeContents,
  directive: directiveContents,
  tool: (text, { id }) => ({
    title: basename(id),
    tags: '',
    body: joinParagraphs(summarize('tool', text).description, withoutSignature(text)),
  }),
  rule: (text, { path }) => {
    const rule = parseRule(text, path);
    return { title: rule.name, tags: '', body: joinParagraphs(rule.description, rule.body) };
  },
  skill: (text, { path }) => {
    const { skill } = loadSkill(text, path);
    return (
      skill && { title: skill.name, tags: '', body: joinParagraphs(skill.description, skill.body) }
    );
  },
};

function knowledgeContents(text: string, { path }: Place): Contents {
  const { title, tags, description, metadata, body } =
    readExport(text) ?? parseKnowledge(text, path);
  const created = scalarText(metadata['created_at']);
  const time = parseTime(created, 0);
  return {
    title,
    tags: tags.join(' '),
    body: body === '' ? withoutSignature(text) : joinParagraphs(description ?? '', body),
    directive: scalarText(metadata['directive']),
    status: scalarText(metadata['status']),
    model: scalarText(metadata['model']),
    ...(time === undefined ? {} : { time }),
  };
}

const FENCE = '---\n';

/** Reads a file with frontmatter as rye writes it; undefined for any other knowledge. */
function readExport(text: string) {
  const newline = text.indexOf('\n');
  const isSigned = newline !== -1 && isSignatureLine(text.slice(0, newline));
  const content = isSigned ? text.slice(newline + 1) : text;
  // frontmatter between bare lines, below a signature or at the start
  const end = content.indexOf('\n---', FENCE.length - 1);
  const isFenced = content.startsWith(FENCE) && content.startsWith(FENCE, end + 1) && end !== -1;
  const metadata = isFenced ? parseFlatYaml(content.slice(FENCE.length, end)) : undefined;
  if (metadata === undefined || content.includes('\r')) return undefined;
  const { title, tags, description } = metadata;
  if (typeof title !== 'string' || title.trim() === '' || description !== undefined)
    return undefined;
  if (!Array.isArray(tags) || !tags.every((tag) => typeof tag === 'string')) return undefined;
  const body = content.slice(end + 1 + FENCE.length).trim();
  return { title: title.trim(), tags: [...new Set(tags)], description, metadata, body };
}

function directiveContents(text: string, { id, path }: Place): Contents {
  const { directive } = readDirective(text, path);
  return {
    title: directive.name,
    tags: directive.category ?? '',
    body: joinParagraphs(directive.description, directive.preamble, directive.body),
    directive: id,
  };
}

function scalarText(value: JsonValue | undefined): string {
  return value === undefined || value === null ? '' : toText(value);
}

function joinParagraphs(...parts: readonly string[]): string {
  return parts.filter((part) => part !== '').join('\n\n');
}

function withoutSignature(text: string): string {
  return text
    .split('\n', 2)
    .reduce((rest, line) => (isSignatureLine(line) ? rest.replace(`${line}\n`, '') : rest), text)
    .trim();
}

/** Differences between a tree of folders and an index. */
export interface FolderScan {
  /** Files directly in new and changed folders. */
  readonly files: readonly string[];
  /** New and changed folders with the modification time to store. */
  readonly changed: ReadonlyMap<string, number>;
  /** Folders of the index that no longer exist. */
  readonly gone: readonly string[];
}

/** A folder that changed within this time may change again within the same tick of its clock. */
const SETTLED_MS = 2000;
/** Stored for such a folder: no folder has this time, so the next scan reads it again. */
const UNSETTLED = -1;

/**
 * Finds the folders below `root` that gained, lost or replaced a file since the last scan. Costs one `lstat` per folder
 * and none per file: a file that was edited in place changes no folder, so {@link isUnchanged} is asked about the others.
 */
export function scanFolders(
  root: string,
  known: ReadonlyMap<string, number>,
  nowMs: number,
): FolderScan {
  const children = new Map<string, string[]>();
  for (const path of known.keys()) {
    const parent = dirname(path);
    children.set(parent, [...(children.get(parent) ?? []), path]);
  }
  const files: string[] = [];
  const changed = new Map<string, number>();
  const present = new Set<string>();
  const waiting = [root];
  for (let folder = waiting.pop(); folder !== undefined; folder = waiting.pop()) {
    const stats = lstatSync(folder, { throwIfNoEntry: false });
    if (stats === undefined || !stats.isDirectory()) continue;
    present.add(folder);
    if (known.get(folder) === stats.mtimeMs) {
      waiting.push(...(children.get(folder) ?? []));
      continue;
    }
    changed.set(folder, nowMs - stats.mtimeMs < SETTLED_MS ? UNSETTLED : stats.mtimeMs);
    for (const entry of entriesOf(folder)) {
      const path = `${folder}${sep}${entry.name}`;
      if (entry.isDirectory()) waiting.push(path);
      else if (entry.isFile()) files.push(path);
    }
  }
  return { files, changed, gone: [...known.keys()].filter((path) => !present.has(path)) };
}

function entriesOf(folder: string): readonly Dirent[] {
  try {
    return readdirSync(folder, { withFileTypes: true });
  } catch {
    return []; // gone or unreadable: the next scan sees it
  }
}
