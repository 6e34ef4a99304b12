import type { RawToolMetadata } from './tool-metadata.ts';
import { toolMalformed } from './tool-metadata.ts';
import { parseYamlMapping } from './yaml-source.ts';

const MAX_HEADER_LINES = 200;
const OPEN = /^(\s*(?:#|\/\/|--|;|%|\*|\/\*+|<!--|"""|''')?\s*)rye:tool\s*$/;
const CLOSE = /(?:^|\s)\/rye:tool\s*(?:\*\/|-->|"""|''')?\s*$/;

/**
 * Metadata in a comment at the head of a script of any language: YAML between a line `rye:tool` and a line `/rye:tool`, each line behind the same
 * comment mark as the first, or without one inside a block comment. Undefined where the first 200 lines have none. Errors: `tool_malformed`
 * with the place in the file.
 *
 *     # rye:tool
 *     # description: Counts words.
 *     # parameters: [{name: path, type: string, required: true}]
 *     # traits: {reads_only: true}
 *     # /rye:tool
 */
export function readToolHeader(text: string, path: string): RawToolMetadata | undefined {
  if (!text.includes('rye:tool')) return undefined;
  const lines = text.split('\n', MAX_HEADER_LINES);
  const start = lines.findIndex((line) => OPEN.test(line));
  if (start === -1) return undefined;
  const prefix = OPEN.exec(lines[start] ?? '')?.[1] ?? '';
  const mark = /^\s*(?:\/\*+|<!--|"""|''')/.test(prefix) ? '' : prefix.trimEnd();
  const end = lines.findIndex((line, index) => index > start && CLOSE.test(line));
  if (end === -1) {
    throw toolMalformed(
      'the tool header is not closed',
      { path, line: start + 1 },
      'Close it with a line /rye:tool.',
    );
  }
  // Marks become blanks: YAML may be indented as a whole, and columns stay those of the file.
  const indent = ' '.repeat(prefix.length);
  const yaml = lines.slice(start + 1, end).map((line, index) => {
    if (mark === '') return line;
    if (line.trim() === '' || line.trimEnd() === mark) return '';
    if (line.startsWith(prefix)) return indent + line.slice(prefix.length);
    if (line.startsWith(mark)) return indent + line.slice(mark.length);
    const location = { path, line: start + 2 + index };
    throw toolMalformed(`a line of the tool header does not start with "${mark}"`, location);
  });
  const source = { path, text: yaml.join('\n'), line: start + 2, column: 1 };
  return parseYamlMapping(source, 'tool_malformed');
}
