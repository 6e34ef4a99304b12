import { RyeError } from '../core/errors.ts';

/**
 * The part of TOML that key files use: comments, `name = "text"`, `name = 'text'`, `name = """…"""`,
 * `name = ["text", …]` on one line, and `[table]` headers, whose members come back as `table.name`.
 */
export type TomlValue = string | readonly string[];

const BARE_NAME = /^[A-Za-z0-9_-]+$/;
const BASIC = /^"(?:[^"\\]|\\(?:["\\bfnrt]|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}))*"/;
const LITERAL = /^'[^']*'/;
/** Control characters other than tab, which no string may hold as they are. */
const CONTROL = /[^\P{Cc}\t]/u;
const ESCAPES: Readonly<Record<string, string>> = { b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' };

/** Parses key-file TOML; anything outside of that subset throws `invalid_input` with `path:line`. */
export function parseToml(text: string, path: string): ReadonlyMap<string, TomlValue> {
  const lines = text.replaceAll('\r\n', '\n').split('\n');
  const values = new Map<string, TomlValue>();
  let table = '';
  for (let index = 0; index < lines.length; index += 1) {
    const line = (lines[index] ?? '').trim();
    const at = { path, line: index + 1 };
    if (line === '' || line.startsWith('#')) continue;
    const header = /^\[([A-Za-z0-9_.-]+)\]\s*(?:#.*)?$/.exec(line)?.[1];
    if (header !== undefined) {
      table = `${header}.`;
      continue;
    }
    const [name, source] = splitMember(line, at);
    if (values.has(`${table}${name}`)) throw malformed(`"${name}" stands twice`, at);
    if (source.startsWith('"""')) {
      const { value, last } = readMultiline(lines, index, at);
      values.set(`${table}${name}`, value);
      index = last;
    } else {
      values.set(`${table}${name}`, readValue(source, at));
    }
  }
  return values;
}

/** Quotes text as a basic TOML string. */
export function tomlString(text: string): string {
  // JSON's escapes are a subset of TOML's, apart from DEL, which TOML wants escaped
  return JSON.stringify(text).replaceAll('\u{7F}', '\\u007f');
}

interface Position {
  readonly path: string;
  readonly line: number;
}

function splitMember(line: string, at: Position): readonly [string, string] {
  const equals = line.indexOf('=');
  const name = line.slice(0, equals).trim();
  if (equals === -1 || !BARE_NAME.test(name)) throw malformed('a line is no "name = value"', at);
  return [name, line.slice(equals + 1).trim()];
}

function readValue(source: string, at: Position): TomlValue {
  if (source.startsWith('[')) return readArray(source, at);
  const { value, rest } = readString(source, at);
  assertEnd(rest, at);
  return value;
}

function readString(source: string, at: Position): { value: string; rest: string } {
  if (CONTROL.test(source)) throw malformed('a control character stands unescaped', at);
  const literal = LITERAL.exec(source)?.[0];
  if (literal !== undefined)
    return { value: literal.slice(1, -1), rest: source.slice(literal.length) };
  const basic = BASIC.exec(source)?.[0];
  if (basic === undefined) throw malformed('a value is no well-formed string', at);
  return { value: unescape(basic.slice(1, -1)), rest: source.slice(basic.length) };
}

function unescape(text: string): string {
  return text.replaceAll(
    /\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))/g,
    (_, short, long, plain) => {
      const code = short ?? long;
      if (code === undefined) return ESCAPES[String(plain)] ?? String(plain);
      const point = Number.parseInt(String(code), 16);
      return point > 0x10_ff_ff ? '\u{FFFD}' : String.fromCodePoint(point);
    },
  );
}

function readArray(source: string, at: Position): readonly string[] {
  const items: string[] = [];
  let rest = source.slice(1).trimStart();
  while (!rest.startsWith(']')) {
    const item = readString(rest, at);
    items.push(item.value);
    rest = item.rest.trimStart();
    if (rest.startsWith(',')) rest = rest.slice(1).trimStart();
    else if (!rest.startsWith(']')) throw malformed('an array is not closed on its line', at);
  }
  assertEnd(rest.slice(1), at);
  return items;
}

function readMultiline(
  lines: readonly string[],
  first: number,
  at: Position,
): { value: string; last: number } {
  const opening = lines[first] ?? '';
  const text = [opening.slice(opening.indexOf('"""') + 3), ...lines.slice(first + 1)].join('\n');
  const end = text.indexOf('"""');
  if (end === -1) throw malformed('a multi-line string is not closed', at);
  const value = text.slice(0, end);
  if (value.includes('\\')) throw malformed('escapes in multi-line strings are not supported', at);
  assertEnd(text.slice(end + 3).split('\n', 1)[0] ?? '', at);
  // TOML drops a newline right after the opening quotes
  return { value: value.replace(/^\n/, ''), last: first + value.split('\n').length - 1 };
}

function assertEnd(rest: string, at: Position): void {
  if (!/^\s*(?:#.*)?$/.test(rest)) throw malformed('something stands after a value', at);
}

function malformed(message: string, at: Position): RyeError {
  return new RyeError('invalid_input', `${message} in a key file`, {
    location: at,
    hint: 'Key files hold fingerprint, owner and a [public_key] table with pem; see docs/trust.md.',
  });
}
