import { RyeError } from '../core/errors.ts';
import { isKeyId, type KeyLookup, readPublicKey, type VerifyingKey } from './keys.ts';
import { checkText, type Verdict } from './signature.ts';
import type { SignedSubject } from './signature-line.ts';

/** What `trusted/<fingerprint>.toml` says. */
export interface TrustedKeyFile {
  readonly key: VerifyingKey;
  readonly owner: string;
  /** Projects that the key counts for, as real paths; absent: everywhere. */
  readonly projects?: readonly string[];
}

/** What `revoked/<fingerprint>.toml` says. */
export interface RevocationFile {
  readonly keyId: string;
  /** ISO 8601 UTC. */
  readonly revokedAt: string;
  readonly reason: string;
}

/** What rye signs the file of a trusted key as. */
export function trustedKeySubject(keyId: string): SignedSubject {
  return { kind: 'trusted-key', id: keyId };
}

/** What rye signs a revocation as. */
export function revocationSubject(keyId: string): SignedSubject {
  return { kind: 'revocation', id: keyId };
}

/**
 * Checks the signature of a trusted key's file. The older form is enough, because its text states the fingerprint and an
 * unsigned one counts too.
 */
export function checkTrustedKey(text: string, keyId: string, keys: KeyLookup): Verdict {
  return checkText({ text, style: 'hash', keys, subject: trustedKeySubject(keyId) });
}

/** Reads a trusted key; throws `invalid_input` when the PEM does not have the fingerprint that the file states. */
export function parseTrustedKey(text: string, path: string): TrustedKeyFile {
  const values = parseToml(text, path);
  const key = readPublicKey(textOf(values, 'public_key.pem') ?? '', path);
  const stated = textOf(values, 'fingerprint');
  if (stated !== key.keyId) {
    throw new RyeError(
      'invalid_input',
      `the key's fingerprint is ${key.keyId}, but the file says ${stated ?? 'none'}`,
      {
        location: { path },
      },
    );
  }
  const projects = values.get('projects');
  return {
    key,
    owner: textOf(values, 'owner') ?? 'unknown',
    ...(typeof projects === 'object' ? { projects } : {}),
  };
}

/**
 * Reads what a person was given to trust: a public key PEM or a trusted-key file. Who signed the file does not
 * matter, the user vouches for the key now; an edited file or a broken or revoked signature is refused with its
 * code, a private key with `invalid_input`.
 */
export function readOfferedKey(
  text: string,
  owner: string | undefined,
  keys: KeyLookup,
): TrustedKeyFile {
  if (text.includes('PRIVATE KEY-----')) {
    throw new RyeError('invalid_input', 'this is a private key; only its owner may have it', {
      hint: 'Trust the public key, as "rye keys export" prints it.',
    });
  }
  const source = 'the key to trust';
  if (text.trimStart().startsWith('-----BEGIN')) {
    return { key: readPublicKey(text, source), owner: owner ?? 'unknown' };
  }
  const file = parseTrustedKey(text, source);
  const verdict = checkTrustedKey(text, file.key.keyId, {
    find: (keyId) =>
      keyId === file.key.keyId ? { status: 'trusted', key: file.key } : keys.find(keyId),
  });
  if (!verdict.ok && verdict.code !== 'unsigned' && verdict.code !== 'key_untrusted') {
    throw new RyeError(verdict.code, `the key file of ${file.key.keyId} does not verify`, {
      hint: 'Get the key from its owner again, and compare its fingerprint with them.',
    });
  }
  return { key: file.key, owner: owner ?? file.owner };
}

/** The file of a trusted key, unsigned; the format is the one that older installations read. */
export function renderTrustedKey({ key, owner, projects }: TrustedKeyFile): string {
  return [
    'version = "1.0.0"',
    'category = "keys/trusted"',
    `fingerprint = ${tomlString(key.keyId)}`,
    `owner = ${tomlString(owner)}`,
    ...(projects === undefined ? [] : [`projects = [${projects.map(tomlString).join(', ')}]`]),
    'attestation = ""',
    '',
    '[public_key]',
    'pem = """',
    `${key.pem}"""`,
    '',
  ].join('\n');
}

/** Reads the date of a revocation; null when the file does not say. */
export function parseRevokedAt(text: string, path: string): string | null {
  return textOf(parseToml(text, path), 'revoked_at') ?? null;
}

/** The file of a revocation, unsigned. */
export function renderRevocation({ keyId, revokedAt, reason }: RevocationFile): string {
  return [
    'version = "1.0.0"',
    'category = "keys/revoked"',
    `fingerprint = ${tomlString(keyId)}`,
    `revoked_at = ${tomlString(revokedAt)}`,
    `reason = ${tomlString(reason)}`,
    '',
  ].join('\n');
}

/** Refuses what is no fingerprint before it becomes part of a path. */
export function assertKeyId(keyId: string): void {
  if (isKeyId(keyId)) return;
  throw new RyeError(
    'invalid_input',
    `${JSON.stringify(keyId)} is not a key id: it is not 16 hexadecimal characters`,
    {
      hint: 'Run: rye keys list',
    },
  );
}

function textOf(values: ReadonlyMap<string, TomlValue>, name: string): string | undefined {
  const value = values.get(name);
  return typeof value === 'string' ? value : undefined;
}

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
