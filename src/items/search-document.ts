import { basename } from 'node:path';
import { isoTime } from '../core/clock.ts';
import type { ItemType, Space } from '../core/ids.ts';
import type { JsonValue } from '../core/json.ts';
import { toText } from '../core/json.ts';
import type { FileFingerprint, SearchDocument } from '../core/search.ts';
import { readDirective } from './directive.ts';
import { parseKnowledge } from './knowledge.ts';
import { parseRule } from './rule.ts';
import { parseTime } from './search-query.ts';
import { loadSkill } from './skill.ts';
import { isSignatureLine } from './source-text.ts';
import { summarize } from './summary.ts';

/** A file to be indexed. */
export interface SearchableFile {
  readonly type: ItemType;
  readonly id: string;
  readonly space: Space;
  /** Absolute path: the key in the index. */
  readonly path: string;
  readonly fingerprint: FileFingerprint;
  readonly text: string;
}

/** What the text of a file contributes to its document. */
type Contents = Pick<SearchDocument, 'title' | 'tags' | 'body'> &
  Partial<Pick<SearchDocument, 'directive' | 'status' | 'model' | 'time'>>;

/**
 * The search document of a file. Knowledge that a thread was exported to brings `directive`, `status`, `model` and `created_at` in its metadata. A file that
 * cannot be parsed is still found by its id and text.
 */
export function toSearchDocument(file: SearchableFile): SearchDocument {
  const { type, id, space, path, fingerprint, text } = file;
  const contents = readContents(file) ?? {
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
    time: isoTime(fingerprint.mtime_ms),
    ...contents,
  };
}

function readContents({ type, id, path, text }: SearchableFile): Contents | undefined {
  try {
    return READERS[type](text, { id, path });
  } catch {
    // A broken item is for validate to explain; search must not lose it.
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
    body: joined(summarize('tool', text).description, withoutSignature(text)),
  }),
  rule: (text, { path }) => {
    const rule = parseRule(text, path);
    return { title: rule.name, tags: '', body: joined(rule.description, rule.body) };
  },
  skill: (text, { path }) => {
    const { skill } = loadSkill(text, path);
    return skill && { title: skill.name, tags: '', body: joined(skill.description, skill.body) };
  },
};

function knowledgeContents(text: string, { path }: Place): Contents {
  const { title, tags, description, metadata, body } = parseKnowledge(text, path);
  const created = plain(metadata['created_at']);
  const time = parseTime(created, 0);
  return {
    title,
    tags: tags.join(' '),
    body: body === '' ? withoutSignature(text) : joined(description ?? '', body),
    directive: plain(metadata['directive']),
    status: plain(metadata['status']),
    model: plain(metadata['model']),
    ...(time === undefined ? {} : { time }),
  };
}

function directiveContents(text: string, { id, path }: Place): Contents {
  const { directive } = readDirective(text, path);
  return {
    title: directive.name,
    tags: directive.category ?? '',
    body: joined(directive.description, directive.preamble, directive.body),
    directive: id,
  };
}

function plain(value: JsonValue | undefined): string {
  return value === undefined || value === null ? '' : toText(value);
}

function joined(...parts: readonly string[]): string {
  return parts.filter((part) => part !== '').join('\n\n');
}

function withoutSignature(text: string): string {
  return text
    .split('\n', 2)
    .reduce((rest, line) => (isSignatureLine(line) ? rest.replace(`${line}\n`, '') : rest), text)
    .trim();
}
