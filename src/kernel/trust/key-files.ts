import { parse, TomlDate, TomlError, type TomlTable } from 'smol-toml';
import { RyeError } from '../core/errors.ts';
import { isRecord } from '../core/json.ts';
import { isKeyId, type KeyLookup, readPublicKey, type VerifyingKey } from './keys.ts';
import { type KeyScope, readScope, type ScopeRequest } from './scope.ts';
import { checkText, type Verdict } from './signature.ts';
import type { SignedSubject } from './signature-line.ts';

/** Content of `trusted/<fingerprint>.toml`. */
export interface TrustedKeyFile {
  readonly key: VerifyingKey;
  readonly owner: string;
  readonly scope: KeyScope;
  /** Real paths of the projects in which the key is trusted; absent: everywhere. */
  readonly projects?: readonly string[];
}

/** Returns the subject of the signature of a trusted key's file. */
export function trustedKeySubject(keyId: string): SignedSubject {
  return { kind: 'trusted-key', id: keyId };
}

/**
 * Checks the signature of a trusted key's file. Version 1 is enough, because the text contains the fingerprint and an
 * unsigned file counts too.
 */
export function checkTrustedKey(text: string, keyId: string, keys: KeyLookup): Verdict {
  return checkText({ text, style: 'hash', keys, subject: trustedKeySubject(keyId) });
}

/** Parses a trusted key; throws `invalid_input` if the PEM and the file's fingerprint differ. */
export function parseTrustedKey(text: string, path: string): TrustedKeyFile {
  const values = parseToml(text, path);
  const { public_key: table } = values;
  const key = readPublicKey((isTable(table) ? textOf(table, 'pem') : undefined) ?? '', path);
  const stated = textOf(values, 'fingerprint');
  if (stated !== key.keyId) {
    throw new RyeError(
      'invalid_input',
      `the key's fingerprint is ${key.keyId}, but the file has ${stated ?? 'none'}`,
      {
        location: { path },
      },
    );
  }
  const { projects } = values;
  return {
    key,
    owner: textOf(values, 'owner') ?? 'unknown',
    scope: readFileScope(values, path),
    ...(Array.isArray(projects) ? { projects: projects.map(String) } : {}),
  };
}

/** A file without purposes is of an older rye, which knew only signing. Anything odd is an error, never a wider scope. */
function readFileScope(values: TomlTable, path: string): KeyScope {
  const listed = (name: string): readonly string[] | undefined => {
    const value = values[name];
    if (value === undefined) return undefined;
    if (Array.isArray(value)) return value.map(String);
    throw new RyeError('invalid_input', `malformed key file: ${name} is not a list of texts`, {
      location: { path },
    });
  };
  const [purposes, ids, types] = ['purposes', 'ids', 'types'].map(listed);
  return readScope({
    ...(purposes === undefined ? {} : { purposes }),
    ...(ids === undefined ? {} : { ids }),
    ...(types === undefined ? {} : { types }),
  });
}

export interface OfferOptions extends ScopeRequest {
  readonly owner?: string;
  /** Names the text in errors. */
  readonly source?: string;
}

/**
 * Parses a key that the user wants to trust: a public key PEM or a trusted-key file. The signer of the file does not
 * matter, because the user vouches for the key. Throws the code of a broken or revoked signature, or `invalid_input` for
 * a private key.
 */
export function readOfferedKey(
  text: string,
  { owner, source = 'the key', ...wanted }: OfferOptions,
  keys: KeyLookup,
): TrustedKeyFile {
  if (text.includes('PRIVATE KEY-----')) {
    throw new RyeError('invalid_input', 'this is a private key, which only its owner may have', {
      hint: 'Trust the public key, as "rye keys export" prints it.',
    });
  }
  if (text.trimStart().startsWith('-----BEGIN')) {
    const scope = readScope(wanted);
    return { key: readPublicKey(text, source), owner: owner ?? 'unknown', scope };
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
  const limited = file.scope?.purposes;
  if (wanted.purposes === undefined && limited !== undefined && !limited.includes('sign')) {
    const message = `the key file of ${file.key.keyId} is for ${limited.join(', ')} alone`;
    const hint = `Name what you trust it for: --for ${limited.join(',')}`;
    throw new RyeError('invalid_input', message, { hint });
  }
  // limits of the file stay unless the user names others; a file can't widen what the user asked for
  const { ids, types } = { ...file.scope, ...wanted };
  const scope = readScope({
    ...wanted,
    ...(ids === undefined ? {} : { ids }),
    ...(types === undefined ? {} : { types }),
  });
  return { key: file.key, owner: owner ?? file.owner, scope };
}

/** Renders the unsigned file of a trusted key in the format that older installations read. */
export function renderTrustedKey({
  key,
  owner,
  scope,
  projects,
}: Omit<TrustedKeyFile, 'scope'> & Partial<Pick<TrustedKeyFile, 'scope'>>): string {
  return [
    'version = "1.0.0"',
    'category = "keys/trusted"',
    `fingerprint = ${tomlString(key.keyId)}`,
    `owner = ${tomlString(owner)}`,
    ...renderList('purposes', scope?.purposes),
    ...renderList('ids', scope?.ids),
    ...renderList('types', scope?.types),
    ...renderList('projects', projects),
    'attestation = ""',
    '',
    '[public_key]',
    'pem = """',
    `${key.pem}"""`,
    '',
  ].join('\n');
}

/** Refuses an invalid fingerprint before it becomes part of a path. */
export function assertKeyId(keyId: string): void {
  if (isKeyId(keyId)) return;
  throw new RyeError(
    'invalid_input',
    `${JSON.stringify(keyId)} is not a key id of 16 hexadecimal characters`,
    { hint: 'Run: rye keys list' },
  );
}

function textOf(values: TomlTable, name: string): string | undefined {
  const value = values[name];
  return typeof value === 'string' ? value : undefined;
}

function renderList(name: string, texts: readonly string[] | undefined): readonly string[] {
  return texts === undefined ? [] : [`${name} = [${texts.map(tomlString).join(', ')}]`];
}

/** Quotes text as a basic TOML string. */
export function tomlString(text: string): string {
  // JSON's escapes are a subset of TOML's, apart from DEL, which TOML wants escaped
  return JSON.stringify(text).replaceAll('\u{7F}', '\\u007f');
}

/** Parses a key file. Throws `invalid_input` for malformed TOML and for values other than text and lists of text. */
export function parseToml(text: string, path: string): TomlTable {
  const table = readToml(text, path);
  const odd = findOdd(table);
  if (odd === undefined) return table;
  const line = text.split('\n').findIndex((row) => row.includes(odd)) + 1;
  throw malformed(`"${odd}" is neither text nor a list of texts`, { path, line });
}

function readToml(text: string, path: string): TomlTable {
  try {
    return parse(text);
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    const [message = ''] = error.message.replace('Invalid TOML document: ', '').split('\n');
    throw malformed(message, { path, line: error.line });
  }
}

/** Returns the name of the first member that key files never have. */
function findOdd(table: TomlTable): string | undefined {
  for (const [name, value] of Object.entries(table)) {
    const isText = Array.isArray(value)
      ? value.every((item) => typeof item === 'string')
      : typeof value === 'string';
    const odd = isText ? undefined : isTable(value) ? findOdd(value) : name;
    if (odd !== undefined) return odd;
  }
  return undefined;
}

function isTable(value: unknown): value is TomlTable {
  return isRecord(value) && !(value instanceof TomlDate);
}

function malformed(
  message: string,
  location: { readonly path: string; readonly line: number },
): RyeError {
  return new RyeError('invalid_input', `malformed key file: ${message}`, {
    location,
    hint: 'Key files hold fingerprint, owner and a [public_key] table with pem; see docs/trust.md.',
  });
}
