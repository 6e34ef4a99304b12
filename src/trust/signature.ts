import canonicalize from 'canonicalize';
import { isoSeconds } from '../core/clock.ts';
import { messageOf, RyeError } from '../core/errors.ts';
import { isJsonObject, type JsonObject, parseJson } from '../core/json.ts';
import type { PayloadSigner, PayloadVerifier } from '../core/signing.ts';
import { type KeyLookup, type SigningKey, sha256Hex } from './keys.ts';
import {
  formatSignature,
  formatSignatureLine,
  type NamedFields,
  parseSignature,
  parseSignatureLine,
  type SignatureFields,
  type SignatureStyle,
  type SignedSubject,
  signedStatement,
  splitText,
} from './signature-line.ts';

/** Why a file is not accepted; the codes of errors. */
export type SignatureFault =
  | 'unsigned'
  | 'content_modified'
  | 'key_untrusted'
  | 'key_revoked'
  | 'signature_invalid'
  | 'signature_partial'
  | 'signature_outdated'
  | 'item_moved'
  | 'system_item_modified';

/** The outcome of checking one file or document. `detail` is a clause that completes the fault's message. */
export type Verdict =
  | {
      readonly ok: true;
      readonly by: 'key';
      readonly keyId: string;
      /** 1 is the older form: it proves the content and its signer, and neither kind, id nor time. */
      readonly version: 1 | 2;
      /** Absent in the older form, which does not cover the time. */
      readonly signedAt?: string;
    }
  | { readonly ok: true; readonly by: 'manifest' }
  | {
      readonly ok: false;
      readonly code: SignatureFault;
      readonly keyId?: string;
      /** Only a time that the signature proves. */
      readonly signedAt?: string;
      /** What the file was signed as, if its signature proves that. */
      readonly signedAs?: SignedSubject;
      readonly detail?: string;
    };

/** Member of a JSON document that holds its signature. */
const SIGNATURE_MEMBER = '_signature';

/** Who signs what, and when. */
export interface Signing {
  readonly subject: SignedSubject;
  readonly key: SigningKey;
  /** Milliseconds since the epoch. */
  readonly now: number;
}

export interface TextToSign extends Signing {
  readonly text: string;
  readonly style: SignatureStyle;
}

/**
 * The text with a signature of `key` in its place, replacing the one that was there. The same content, subject and key
 * return the same bytes; a signature of the older form is replaced. Ends of line are kept; a byte order mark, which
 * would hide the signature, is dropped. Throws `invalid_input` for a `json` text that is no JSON object.
 */
export function signText({ text, style, ...signing }: TextToSign): string {
  if (style === 'json') return signJsonText(text, signing);
  const unmarked = text.startsWith('\u{FEFF}') ? text.slice(1) : text;
  const { shebang, line, content } = splitText(unmarked, style);
  const hash = contentHash(content);
  if (isSameSignature(parseSignatureLine(line, style), hash, signing)) return unmarked;
  const eol = /^[^\n]*\r\n/.test(unmarked) ? '\r\n' : '\n';
  const head = shebang === '' || shebang.endsWith('\n') ? shebang : `${shebang}${eol}`;
  return `${head}${formatSignatureLine(makeSignature(hash, signing), style)}${eol}${content}`;
}

/** What a signature is checked against: the keys that count, and what the file is used as. */
export interface Expected {
  readonly keys: KeyLookup;
  readonly subject: SignedSubject;
}

export interface TextToCheck extends Expected {
  readonly text: string;
  readonly style: SignatureStyle;
}

/**
 * Checks a file's signature in this order: signed, unchanged, key trusted, key not revoked, signature valid, signed as
 * `subject`. A good signature of the older form names no subject: the caller decides whether that is enough.
 */
export function checkText({ text, style, ...expected }: TextToCheck): Verdict {
  if (style === 'json') return checkDocument(parseJson(text), expected);
  const { line, content } = splitText(text, style);
  const fields = parseSignatureLine(line, style);
  if (fields === undefined) return { ok: false, code: 'unsigned' };
  if (contentHash(content) === fields.hash) return checkFields(fields, expected);
  return olderHashes(content, style).includes(fields.hash)
    ? fault('signature_partial', fields)
    : modified(fields, expected.keys);
}

/** Signs a JSON document: the canonical JSON of everything but `_signature` is what is hashed. */
export function signDocument(document: JsonObject, signing: Signing): JsonObject {
  const { [SIGNATURE_MEMBER]: _replaced, ...content } = document;
  const fields = makeSignature(sha256Hex(canonicalJson(content)), signing);
  return { ...content, [SIGNATURE_MEMBER]: formatSignature(fields) };
}

/** Checks what {@link signDocument} made; anything that is no JSON object counts as unsigned. */
export function checkDocument(document: unknown, expected: Expected): Verdict {
  if (!isJsonObject(document)) return { ok: false, code: 'unsigned' };
  const { [SIGNATURE_MEMBER]: text, ...content } = document;
  const fields = typeof text === 'string' ? parseSignature(text) : undefined;
  if (fields === undefined) return { ok: false, code: 'unsigned' };
  const canonical = canonicalOrNothing(content);
  if (canonical === undefined || sha256Hex(canonical) !== fields.hash) {
    return modified(fields, expected.keys);
  }
  return checkFields(fields, expected);
}

/** True if this document has this signature already, so that signing it again would change nothing but the time. */
export function isSignedAs(document: JsonObject, signing: Omit<Signing, 'now'>): boolean {
  const { [SIGNATURE_MEMBER]: text, ...content } = document;
  const fields = typeof text === 'string' ? parseSignature(text) : undefined;
  return isSameSignature(fields, sha256Hex(canonicalJson(content)), signing);
}

/** What a file's signature says that it was signed as. Not checked: a hint for people, never evidence. */
export function claimedSubject(text: string, style: SignatureStyle): SignedSubject | undefined {
  if (style !== 'json') return parseSignatureLine(splitText(text, style).line, style)?.subject;
  const document = parseJson(text);
  const member = isJsonObject(document) ? document[SIGNATURE_MEMBER] : undefined;
  return typeof member === 'string' ? parseSignature(member)?.subject : undefined;
}

/** Signs JSON payloads, such as the log's checkpoints, over their canonical JSON. */
export function payloadSigner(key: SigningKey): PayloadSigner {
  return { keyId: key.keyId, sign: (payload) => key.sign(canonicalJson(payload)) };
}

/** Finds the keys of what {@link payloadSigner} made among those that `keys` trusts at that moment. */
export function payloadVerifier(keys: KeyLookup): PayloadVerifier {
  return {
    find(keyId) {
      const found = keys.find(keyId);
      if (found.status === 'unknown') return 'key_untrusted';
      if (found.status === 'revoked') return 'key_revoked';
      const { key } = found;
      return {
        verify(payload, signature) {
          const text = canonicalOrNothing(payload);
          return text !== undefined && key.verify(text, signature);
        },
      };
    },
  };
}

/** The state of a signature as lists show it. */
export function signatureState(verdict: Verdict) {
  if (verdict.ok) return verdict.by === 'manifest' ? 'system' : 'signed';
  return STATES[verdict.code];
}

const STATES = {
  unsigned: 'unsigned',
  content_modified: 'modified',
  key_untrusted: 'untrusted',
  key_revoked: 'revoked',
  signature_invalid: 'invalid',
  signature_partial: 'partial',
  signature_outdated: 'outdated',
  item_moved: 'moved',
  system_item_modified: 'modified',
} as const satisfies Record<SignatureFault, string>;

function checkFields(fields: SignatureFields, { keys, subject }: Expected): Verdict {
  const { keyId, signedAt, signature, subject: signedAs } = fields;
  const found = keys.find(keyId);
  if (found.status === 'unknown') return fault('key_untrusted', fields, found.reason);
  if (found.status === 'revoked') {
    const when = found.revokedAt === null ? undefined : `revoked ${found.revokedAt}`;
    return fault('key_revoked', fields, when);
  }
  if (!found.key.verify(signedStatement(fields), signature)) {
    return fault('signature_invalid', fields);
  }
  if (signedAs === undefined) return { ok: true, by: 'key', keyId, version: 1 };
  if (isSameSubject(signedAs, subject)) return { ok: true, by: 'key', keyId, version: 2, signedAt };
  return { ...fault('item_moved', fields), signedAt, signedAs };
}

/** A changed content, with the time of its signature if the line itself is genuine. */
function modified(fields: SignatureFields, keys: KeyLookup): Verdict {
  const { keyId, signedAt, signature, subject } = fields;
  const found = subject === undefined ? undefined : keys.find(keyId);
  const isProven =
    found?.status === 'trusted' && found.key.verify(signedStatement(fields), signature);
  return { ...fault('content_modified', fields), ...(isProven ? { signedAt } : {}) };
}

function fault(
  code: SignatureFault,
  { keyId }: SignatureFields,
  detail?: string,
): Extract<Verdict, { ok: false }> {
  return { ok: false, code, keyId, ...(detail === undefined ? {} : { detail }) };
}

function makeSignature(hash: string, { subject, key, now }: Signing): NamedFields {
  const facts = { signedAt: isoSeconds(now), subject, hash };
  return { ...facts, signature: key.sign(signedStatement(facts)), keyId: key.keyId };
}

function isSameSignature(
  fields: SignatureFields | undefined,
  hash: string,
  { subject, key }: Omit<Signing, 'now'>,
): boolean {
  return (
    fields?.subject !== undefined &&
    isSameSubject(fields.subject, subject) &&
    fields.keyId === key.keyId &&
    fields.hash === hash &&
    key.verify(signedStatement(fields), fields.signature)
  );
}

/** Letter case counts, also on file systems that ignore it. */
function isSameSubject(one: SignedSubject, other: SignedSubject): boolean {
  return one.kind === other.kind && one.id === other.id;
}

function contentHash(content: string): string {
  return sha256Hex(toLf(content));
}

function toLf(text: string): string {
  return text.replaceAll('\r\n', '\n');
}

/** Parsed JSON can still have no canonical form, such as a lone surrogate; then nobody signed it. */
function canonicalOrNothing(content: JsonObject): string | undefined {
  try {
    return canonicalJson(content);
  } catch (error) {
    if (error instanceof RyeError) return undefined;
    throw error;
  }
}

/**
 * What signers of the older convention hashed instead of the whole file: of a directive the first
 * `<directive …>` up to the last `</directive>`; of knowledge with frontmatter only the trimmed text below it.
 */
function olderHashes(content: string, style: SignatureStyle): string[] {
  if (style !== 'html') return [];
  const text = toLf(content);
  const parts: string[] = [];
  const start = /<directive[^>]*>/.exec(text)?.index;
  const end = text.lastIndexOf('</directive>');
  if (start !== undefined && end > start)
    parts.push(text.slice(start, end + '</directive>'.length));
  const frontmatterEnd = text.startsWith('---') ? text.indexOf('---', 3) : -1;
  if (frontmatterEnd !== -1) parts.push(text.slice(frontmatterEnd + 3).trim());
  return parts.map((part) => sha256Hex(part));
}

function signJsonText(text: string, signing: Signing): string {
  const document = parseJson(text);
  if (!isJsonObject(document)) {
    throw new RyeError('invalid_input', 'only a JSON object can carry a signature', {
      hint: 'Check the syntax of the file, and put its values into one object.',
    });
  }
  if (isSignedAs(document, signing)) return text;
  const { [SIGNATURE_MEMBER]: _old, ...content } = document;
  const signature = formatSignature(makeSignature(sha256Hex(canonicalJson(content)), signing));
  return `${JSON.stringify({ [SIGNATURE_MEMBER]: signature, ...content }, null, 2)}\n`;
}

/**
 * The one text form of a JSON value that signatures are made over: RFC 8785 (JSON Canonicalization Scheme).
 * `undefined` members are left out. Throws `invalid_input` for what JSON cannot carry: NaN, infinities, lone
 * surrogates, cycles, and nesting deeper than the stack.
 */
export function canonicalJson(value: unknown): string {
  let text: string | undefined;
  try {
    text = canonicalize(value);
  } catch (error) {
    throw new RyeError('invalid_input', `a value has no canonical JSON form: ${messageOf(error)}`, {
      cause: error,
    });
  }
  if (text === undefined) {
    throw new RyeError(
      'invalid_input',
      `a value of type ${typeof value} has no canonical JSON form`,
    );
  }
  return text;
}
