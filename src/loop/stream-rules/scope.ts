/** Compiles a glob to a test over relative paths with forward slashes. May throw. */
export type GlobCompiler = (pattern: string) => (path: string) => boolean;

/** A tool whose calls a rule watches: any tool without a name, any path without a test. */
export interface ToolScope {
  /** Lower case. */
  readonly name?: string;
  readonly matchesPath?: (path: string) => boolean;
}

/** What a rule watches. */
export interface Scope {
  readonly text: boolean;
  readonly thinking: boolean;
  readonly tools: readonly ToolScope[];
}

export interface ParsedScope {
  readonly scope: Scope;
  /** Why tokens are left out. */
  readonly problems: readonly string[];
}

const OPENING = '([{';
const CLOSING = ')]}';
const TOOL = /^(?:(tool|toolcall)(?::([\w./-]+))?|([\w./-]+))(?:\(([^)]*)\))?$/i;

/**
 * Reads scope tokens: `text`, `thinking`, `tool`, `tool:<name>` or a bare tool name, the last three optionally with
 * `(<glob>)`. Without any token: text and every tool.
 */
export function parseScope(tokens: readonly string[], compileGlob: GlobCompiler): ParsedScope {
  const parts = tokens.flatMap(splitTokens);
  if (parts.length === 0) {
    return { scope: { text: true, thinking: false, tools: [{}] }, problems: [] };
  }
  const problems: string[] = [];
  const tools: ToolScope[] = [];
  let text = false;
  let thinking = false;
  for (const part of parts) {
    const keyword = part.toLowerCase();
    if (keyword === 'text') text = true;
    else if (keyword === 'thinking') thinking = true;
    else {
      const tool = parseTool(part, compileGlob);
      if (typeof tool === 'string') problems.push(tool);
      else tools.push(tool);
    }
  }
  return { scope: { text, thinking, tools }, problems };
}

function parseTool(token: string, compileGlob: GlobCompiler): ToolScope | string {
  const match = TOOL.exec(token);
  if (!match)
    return `scope "${token}" is not text, thinking, tool, tool:<name> or tool:<name>(<glob>)`;
  const [, , named, bare, glob] = match;
  const name = (named ?? bare)?.toLowerCase();
  try {
    return {
      ...(name === undefined ? {} : { name }),
      ...(glob === undefined ? {} : { matchesPath: compilePathGlob(glob, compileGlob) }),
    };
  } catch (error) {
    return `scope "${token}": ${error instanceof Error ? error.message : String(error)}`;
  }
}

/** A glob over paths that a pattern without a slash matches by their last part too. */
export function compilePathGlob(
  pattern: string,
  compileGlob: GlobCompiler,
): (path: string) => boolean {
  const matches = compileGlob(pattern.trim());
  return (path) => matches(path) || matches(path.slice(path.lastIndexOf('/') + 1));
}

/** Splits at commas outside of brackets, and takes quotes off: `"text", "tool:edit(*.{ts,tsx})"`. */
export function splitTokens(list: string): readonly string[] {
  const tokens: string[] = [];
  let depth = 0;
  let token = '';
  for (const character of list) {
    if (OPENING.includes(character)) depth += 1;
    if (CLOSING.includes(character)) depth -= 1;
    if (character === ',' && depth <= 0) {
      tokens.push(token);
      token = '';
    } else if (character !== '"' && character !== "'") {
      token += character;
    }
  }
  return [...tokens, token].map((one) => one.trim()).filter((one) => one !== '');
}

const REGEX_ONLY = /[\\^$+|()]|\.\*|:\/\//;

/** Whether a condition is shorthand for files of that name being written: `*.rs` or `src/**` rather than a regex. */
export function isFileGlob(condition: string): boolean {
  if (REGEX_ONLY.test(condition) || !condition.includes('*')) return false;
  return condition.includes('/') || /^\*\.[\w{},*?-]+$/.test(condition);
}
