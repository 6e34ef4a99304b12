import { extname } from 'node:path';
import { RyeError } from '../core/errors.ts';
import { compact, type JsonObject } from '../core/json.ts';
import { isSignatureLine } from '../trust/signature-line.ts';
import { findFence, linesBetween } from './markdown.ts';
import {
  MetadataReader,
  parseYamlMapping,
  splitFrontmatter,
  type YamlMapping,
} from './metadata.ts';
import { normalizeNewlines } from './source.ts';

/** A parsed knowledge entry. */
export interface Knowledge {
  readonly path: string;
  /** `title`, else `name`. */
  readonly title: string;
  readonly name?: string;
  readonly version?: string;
  readonly entryType?: string;
  readonly category?: string;
  readonly description?: string;
  readonly tags: readonly string[];
  /** All declared members. */
  readonly metadata: JsonObject;
  /** The text without metadata, trimmed; empty for `.yaml` knowledge. */
  readonly body: string;
  /** The metadata mapping, for the locations of problems. */
  readonly mapping: YamlMapping;
}

/**
 * Parses a knowledge file: metadata in `---` frontmatter or in the first `yaml` fence, or a `.yaml` file with one mapping.
 * Requires only `title` or `name`. Throws `knowledge_malformed` with the location in the file.
 */
export function parseKnowledge(text: string, path: string): Knowledge {
  const { mapping, body } = splitKnowledge(normalizeNewlines(text), path);
  const reader = new MetadataReader(mapping, 'knowledge_malformed');
  const name = reader.text('name');
  const title = reader.text('title') ?? name;
  if (title === undefined) {
    throw new RyeError('knowledge_malformed', 'the metadata has neither title nor name', {
      location: mapping.locate(''),
      hint: 'Add a line title: … to the metadata.',
    });
  }
  return compact({
    path,
    title,
    name,
    version: reader.text('version'),
    entryType: reader.text('entry_type'),
    category: reader.text('category'),
    description: reader.text('description'),
    tags: reader.list('tags'),
    metadata: mapping.value,
    body,
    mapping,
  });
}

function splitKnowledge(text: string, path: string): { mapping: YamlMapping; body: string } {
  if (['.yaml', '.yml'].includes(extname(path))) {
    const source = { path, text: withoutHtmlSignature(text), line: 1, column: 1 };
    return { mapping: parseYamlMapping(source, 'knowledge_malformed'), body: '' };
  }
  const frontmatter = splitFrontmatter(text, path, 'knowledge_malformed');
  if (frontmatter !== undefined) return frontmatter;
  const fence = findFence(text, ['yaml', 'yml']);
  if (fence === undefined || !fence.closed) {
    const message = fence === undefined ? 'missing metadata' : 'unclosed yaml fence';
    throw new RyeError('knowledge_malformed', message, {
      location: { path, line: fence?.line ?? 1 },
      hint: 'Start the file with --- lines around title: …, or put it into a ```yaml fence.',
    });
  }
  const source = { path, text: fence.content, line: fence.line + 1, column: 1 };
  const lines = text.split('\n');
  const parts = [
    linesBetween(lines, 1, fence.line),
    linesBetween(lines, fence.endLine, lines.length + 1),
  ];
  return {
    mapping: parseYamlMapping(source, 'knowledge_malformed'),
    body: parts.filter((part) => part !== '').join('\n\n'),
  };
}

/** Removes the HTML signature comment that the older convention put above YAML knowledge; it is not YAML. */
function withoutHtmlSignature(text: string): string {
  const [first = ''] = text.split('\n', 1);
  return first.startsWith('<!--') && isSignatureLine(first) ? text.slice(first.length) : text;
}
