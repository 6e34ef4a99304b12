import matter from 'gray-matter';
import type { ErrorCode } from '../core/errors.ts';
import { RyeError } from '../core/errors.ts';
import { isSignatureLine, normalizeNewlines } from './source-text.ts';
import type { YamlMapping } from './yaml-source.ts';
import { parseYamlMapping } from './yaml-source.ts';

/** A text with YAML between `---` lines at its start. */
export interface Frontmatter {
  readonly mapping: YamlMapping;
  readonly body: string;
}

/**
 * Splits a file that starts with `---` frontmatter, below a signature comment if there is one; undefined when it starts
 * otherwise. gray-matter runs code for `---js`, so YAML by the `yaml` package is the only engine here; it shares results through a
 * mutable cache unless it is given options, which it always is. Errors have `code` and the place in the file.
 */
export function splitFrontmatter(
  text: string,
  path: string,
  code: ErrorCode,
): Frontmatter | undefined {
  const normalized = normalizeNewlines(text);
  const newline = normalized.indexOf('\n');
  const signed = newline !== -1 && isSignatureLine(normalized.slice(0, newline));
  const content = signed ? normalized.slice(newline + 1) : normalized;
  const line = signed ? 2 : 1;
  if (!/^---(?!-)/.test(content)) return undefined;
  const refuse = (): never => {
    throw new RyeError(code, 'only YAML is allowed as frontmatter', {
      location: { path, line },
      hint: 'Start the file with a bare --- line.',
    });
  };
  // gray-matter ends the block at the first line that begins with ---, whatever follows.
  if (!/^[^\n]*\n(?:(?!---)[^\n]*\n)*---[ \t]*(?:\n|$)/.test(content)) {
    throw new RyeError(code, 'the frontmatter is not closed', {
      location: { path, line },
      hint: 'Close it with a line ---.',
    });
  }
  let mapping: YamlMapping | undefined;
  const engine = (yaml: string): object => {
    mapping = parseYamlMapping(
      { path, text: yaml.replace(/^\n/, ''), line: line + 1, column: 1 },
      code,
    );
    return {};
  };
  const engines = { yaml: engine, yml: engine, json: refuse, js: refuse, javascript: refuse };
  const file = withMatter(content, engines, refuse);
  // A block of comments only never reaches the engine.
  mapping ??= parseYamlMapping({ path, text: '', line, column: 1 }, code);
  return { mapping, body: file.content.trim() };
}

type Engine = (text: string) => object;

function withMatter(
  content: string,
  engines: Readonly<Record<string, Engine>>,
  refuse: () => never,
): { readonly content: string } {
  try {
    return matter(content, { engines, language: 'yaml' });
  } catch (error) {
    if (error instanceof RyeError) throw error;
    // A language that has no engine at all.
    return refuse();
  }
}
