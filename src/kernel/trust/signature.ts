import { isoSeconds } from '../core/clock.ts';
import { RyeError } from '../core/errors.ts';
import { isJsonObject, type JsonObject, parseJson } from '../core/json.ts';
import { canonicalIfPossible, canonicalJson } from './canonical-json.ts';
import { isEarlier, type KeyLookup, type RevokedKey, type SigningKey, sha256Hex } from './keys.ts';
import { describeScope, maySign } from './scope.ts';
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

/** The reasons why a file is not accepted; also error codes. */
export type SignatureFault =
  | 'unsigned'
  | 'content_modified'
  | 'key_untrusted'
  | 'key_revoked'
  | 'key_out_of_scope'
  | 'signature_invalid'
  | 'signature_partial'
  | 'signature_outdated'
  | 'item_moved'
  | 'signed_by_thread'
  | 'system_item_modified';

/** The outcome of checking a file or document. `detail` completes the fault's message. */
export type Verdict =
  | {
      readonly ok: true;
      readonly by: 'key';
      readonly keyId: string;
      /** Version 1 proves the content and its signer, but neither kind, id nor time. */
      readonly version: 1 | 2;
      /** Absent in version 1, which does not cover the time. */
      readonly signedAt?: string;
      /** The thread whose model signed the knowledge. */
      readonly thread?: string;
      /** Time of the key's revocation, if the record was signed before it. */
      readonly revokedAt?: string;
    }
  | { readonly ok: true; readonly by: 'manifest' }
  | {
      readonly ok: false;
      readonly code: SignatureFault;
      readonly keyId?: string;
      /** Only a time that the signature covers. */
      readonly signedAt?: string;
      /** The subject of the signature, if proven. */
      readonly signedAs?: SignedSubject;
      readonly detail?: string;
    };

/** Member of a JSON document that contains its signature. */
const SIGNATURE_MEMBER = '_signature';

/** The subject, key and time of a signature. */
export interface Signing {
  readonly subject: SignedSubject;
  readonly key: SigningKey;
  /** The thread whose model asks for the signature; absent: a person does. */
  readonly thread?: string | undefined;
  /** Milliseconds since the epoch. */
  readonly now: number;
}

export interface TextToSign extends Signing {
  readonly text: string;
  readonly style: SignatureStyle;
}

/**
 * Returns the text with a signature of `key`, which replaces an existing one. The same content, subject and key return
 * the same bytes; a version 1 signature is replaced. Keeps line endings; drops a byte order mark, which would hide the
 * signature. Throws `invalid_input` for a `json` text that is not a JSON object.
 */
export function signText({ text, style, ...signing }: TextToSign): string {
  if (style === 'json') return signJsonText(text, signing);
  const unmarked = withoutMark(text);
  const { shebang, line, content } = splitText(unmarked, style);
  const hash = contentHash(content);
  if (isSameSignature(parseSignatureLine(line, style), hash, signing)) return unmarked;
  const eol = /^[^\n]*\r\n/.test(unmarked) ? '\r\n' : '\n';
  const head = shebang === '' || shebang.endsWith('\n') ? shebang : `${shebang}${eol}`;
  return `${head}${formatSignatureLine(makeSignature(hash, signing), style)}${eol}${content}`;
}

/** The keys and the subject that a signature is checked against. */
export interface Expected {
  readonly keys: KeyLookup;
  readonly subject: SignedSubject;
  /** True for a record of rye, which stays valid if its key was revoked after it was signed. */
  readonly isRecord?: boolean;
}

export interface TextToCheck extends Expected {
  readonly text: string;
  readonly style: SignatureStyle;
}

/**
 * Returns the hash that a signature of the text covers: without a signature in the text, and of JSON in its canonical
 * form. Undefined for a `json` text that is not a JSON object.
 */
export function contentHashOf(text: string, style: SignatureStyle): string | undefined {
  if (style !== 'json') return contentHash(splitText(withoutMark(text), style).content);
  const document = parseJson(text);
  if (!isJsonObject(document)) return undefined;
  const { [SIGNATURE_MEMBER]: _signature, ...content } = document;
  const canonical = canonicalIfPossible(content);
  return canonical === undefined ? undefined : sha256Hex(canonical);
}

/** Returns the text without a signature in it. */
export function unsignedText(text: string, style: SignatureStyle): string {
  if (style !== 'json') {
    const { shebang, line, content } = splitText(withoutMark(text), style);
    return line === '' ? text : `${shebang}${content}`;
  }
  const document = parseJson(text);
  if (!isJsonObject(document) || !Object.hasOwn(document, SIGNATURE_MEMBER)) return text;
  const { [SIGNATURE_MEMBER]: _signature, ...content } = document;
  return `${JSON.stringify(content, null, 2)}\n`;
}

/** Returns the signature of a text as one line, to be kept in a separate file; the present one if it is the same. */
export function detachedSignature(
  { text, style, ...signing }: TextToSign,
  present: string | undefined,
): { readonly signature: string; readonly hash: string } {
  const hash = contentHashOf(text, style);
  if (hash === undefined) throw notAnObject();
  const before = present === undefined ? undefined : parseSignature(present);
  if (present !== undefined && isSameSignature(before, hash, signing)) {
    return { signature: present, hash };
  }
  return { signature: formatSignature(makeSignature(hash, signing)), hash };
}

/** Checks a signature of {@link detachedSignature}, in the order of {@link checkText}; version 1 does not count. */
export function checkDetached(
  signature: string,
  { text, style, ...expected }: TextToCheck,
): Verdict {
  const fields = parseSignature(signature);
  if (fields?.subject === undefined) return { ok: false, code: 'unsigned' };
  return contentHashOf(text, style) === fields.hash
    ? checkFields(fields, expected)
    : modified(fields, expected.keys);
}

/**
 * Checks a file's signature in this order: signed, unchanged, key trusted, key not revoked, signature valid, in the
 * key's scope, signed as `subject`. A version 1 signature has no subject: the caller decides if that is enough.
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

/**
 * Checks a signature line by the SHA-256 of the bytes below it, as {@link checkText} does. Undefined if that is not the signed
 * one: {@link checkText} reports why, and takes other line endings.
 */
export function checkDigest(
  { line, sha256 }: { readonly line: string; readonly sha256: string },
  expected: Expected,
): Verdict | undefined {
  const fields = parseSignatureLine(line, 'html');
  return fields?.hash === sha256 ? checkFields(fields, expected) : undefined;
}

/** Returns the signature of bytes with this SHA-256 hex, to be kept apart from them. */
export function signDigest(sha256: string, signing: Signing): string {
  return formatSignature(makeSignature(sha256, signing));
}

/** Checks a signature of {@link signDigest}, in the order of {@link checkText}. */
export function checkSigned(signature: string, sha256: string, expected: Expected): Verdict {
  const fields = parseSignature(signature);
  if (fields?.subject === undefined) return { ok: false, code: 'unsigned' };
  return fields.hash === sha256 ? checkFields(fields, expected) : modified(fields, expected.keys);
}

/** Signs a JSON document: hashes the canonical JSON of everything except `_signature`. */
export function signDocument(document: JsonObject, signing: Signing): JsonObject {
  const { [SIGNATURE_MEMBER]: _replaced, ...content } = document;
  const fields = makeSignature(sha256Hex(canonicalJson(content)), signing);
  return { ...content, [SIGNATURE_MEMBER]: formatSignature(fields) };
}

/** Checks a document of {@link signDocument}; anything but a JSON object counts as unsigned. */
export function checkDocument(document: unknown, expected: Expected): Verdict {
  if (!isJsonObject(document)) return { ok: false, code: 'unsigned' };
  const { [SIGNATURE_MEMBER]: text, ...content } = document;
  const fields = typeof text === 'string' ? parseSignature(text) : undefined;
  if (fields === undefined) return { ok: false, code: 'unsigned' };
  const canonical = canonicalIfPossible(content);
  if (canonical === undefined || sha256Hex(canonical) !== fields.hash) {
    return modified(fields, expected.keys);
  }
  return checkFields(fields, expected);
}

/** True if signing the document again would change only the time. */
export function isSignedAs(document: JsonObject, signing: Omit<Signing, 'now'>): boolean {
  const { [SIGNATURE_MEMBER]: text, ...content } = document;
  const fields = typeof text === 'string' ? parseSignature(text) : undefined;
  return isSameSignature(fields, sha256Hex(canonicalJson(content)), signing);
}

/** Returns the unverified subject of a file's signature, for messages only. */
export function claimedSubject(text: string, style: SignatureStyle): SignedSubject | undefined {
  if (style !== 'json') return parseSignatureLine(splitText(text, style).line, style)?.subject;
  const document = parseJson(text);
  const member = isJsonObject(document) ? document[SIGNATURE_MEMBER] : undefined;
  return typeof member === 'string' ? parseSignature(member)?.subject : undefined;
}

/** Returns the state of a signature for lists. */
export function signatureState(verdict: Verdict) {
  if (verdict.ok && verdict.by === 'key' && verdict.thread !== undefined) return 'by_thread';
  if (verdict.ok) return verdict.by === 'manifest' ? 'system' : 'signed';
  return STATES[verdict.code];
}

const STATES = {
  unsigned: 'unsigned',
  content_modified: 'modified',
  key_untrusted: 'untrusted',
  key_revoked: 'revoked',
  key_out_of_scope: 'out_of_scope',
  signature_invalid: 'invalid',
  signature_partial: 'partial',
  signature_outdated: 'outdated',
  item_moved: 'moved',
  signed_by_thread: 'by_thread',
  system_item_modified: 'modified',
} as const satisfies Record<SignatureFault, string>;

function checkFields(fields: SignatureFields, expected: Expected): Verdict {
  const { keyId, signedAt, signature, subject: signedAs } = fields;
  const found = expected.keys.find(keyId);
  if (found.status === 'unknown') return fault('key_untrusted', fields, found.reason);
  const isGenuine = found.key?.verify(signedStatement(fields), signature) ?? false;
  if (found.status === 'revoked' && !(isGenuine && wasBefore(fields, found, expected))) {
    return fault('key_revoked', fields, revokedDetail(found, isGenuine ? fields : undefined));
  }
  if (!isGenuine) return fault('signature_invalid', fields);
  if (found.scope !== undefined && !maySign(found.scope, expected.subject)) {
    return fault('key_out_of_scope', fields, describeScope(found.scope));
  }
  if (signedAs === undefined) return { ok: true, by: 'key', keyId, version: 1 };
  if (!isSameSubject(signedAs, expected.subject))
    return { ...fault('item_moved', fields), signedAt, signedAs };
  const revokedAt = found.status === 'revoked' ? found.revokedAt : null;
  return accepted({ ...fields, subject: signedAs }, revokedAt);
}

/** Returns the verdict for a genuine signature. Knowledge is text, but all else that a model has signed waits. */
function accepted(fields: NamedFields, revokedAt: string | null): Verdict {
  const { keyId, signedAt, thread, subject } = fields;
  if (thread !== undefined && subject.kind !== 'knowledge')
    return { ...fault('signed_by_thread', fields, thread), signedAt };
  const by = thread === undefined ? {} : { thread };
  const verdict = { ok: true, by: 'key', keyId, version: 2, signedAt, ...by } as const;
  return revokedAt === null ? verdict : { ...verdict, revokedAt };
}

/** True for a record that was signed before its key was revoked; only version 2 signs the time. */
function wasBefore(
  { subject, signedAt }: SignatureFields,
  { revokedAt }: RevokedKey,
  { isRecord = false }: Expected,
): boolean {
  return isRecord && subject !== undefined && isEarlier(signedAt, revokedAt);
}

/** Names the times; that of signing only if the signature proves it. */
function revokedDetail({ revokedAt }: RevokedKey, genuine: SignatureFields | undefined) {
  if (revokedAt === null) return undefined;
  return `revoked ${revokedAt}${genuine?.subject === undefined ? '' : `, signed ${genuine.signedAt}`}`;
}

/** Returns the fault for changed content, with the time of signing if the line itself is genuine. */
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

function makeSignature(hash: string, { subject, key, now, thread }: Signing): NamedFields {
  const by = thread === undefined ? {} : { thread };
  const content = { signedAt: isoSeconds(now), subject, ...by, hash };
  return { ...content, signature: key.sign(signedStatement(content)), keyId: key.keyId };
}

function isSameSignature(
  fields: SignatureFields | undefined,
  hash: string,
  { subject, key, thread }: Omit<Signing, 'now'>,
): boolean {
  return (
    fields?.subject !== undefined &&
    // what a person signed stays so
    (fields.thread === undefined || fields.thread === thread) &&
    isSameSubject(fields.subject, subject) &&
    fields.keyId === key.keyId &&
    fields.hash === hash &&
    key.verify(signedStatement(fields), fields.signature)
  );
}

/** Compares with letter case, even on file systems that ignore it. */
function isSameSubject(one: SignedSubject, other: SignedSubject): boolean {
  return one.kind === other.kind && one.id === other.id;
}

/** Drops a byte order mark, which would hide a signature. */
function withoutMark(text: string): string {
  return text.startsWith('\u{FEFF}') ? text.slice(1) : text;
}

function contentHash(content: string): string {
  return sha256Hex(toLf(content));
}

function toLf(text: string): string {
  return text.replaceAll('\r\n', '\n');
}

/**
 * Returns the hashes of the older convention, which did not cover the whole file: of a directive the first
 * `<directive …>` up to the last `</directive>`, of knowledge with frontmatter only the trimmed text below it.
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

function notAnObject(): RyeError {
  return new RyeError('invalid_input', 'only a JSON object can carry a signature', {
    hint: 'Check the syntax of the file, and put its values into one object.',
  });
}

function signJsonText(text: string, signing: Signing): string {
  const document = parseJson(text);
  if (!isJsonObject(document)) {
    throw notAnObject();
  }
  if (isSignedAs(document, signing)) return text;
  const { [SIGNATURE_MEMBER]: _old, ...content } = document;
  const signature = formatSignature(makeSignature(sha256Hex(canonicalJson(content)), signing));
  return `${JSON.stringify({ [SIGNATURE_MEMBER]: signature, ...content }, null, 2)}\n`;
}
