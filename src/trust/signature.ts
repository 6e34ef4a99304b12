import { isoSeconds } from '../core/clock.ts';
import { RyeError } from '../core/errors.ts';
import { isJsonObject, type JsonObject, parseJson } from '../core/json.ts';
import type { PayloadSigner, PayloadVerifier } from '../core/signing.ts';
import { canonicalJson } from './canonical.ts';
import { type KeyLookup, type SigningKey, sha256Hex } from './keys.ts';
import {
  formatSignature,
  formatSignatureLine,
  parseSignature,
  parseSignatureLine,
  type SignatureFields,
  type SignatureStyle,
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
  | 'item_moved'
  | 'system_item_modified';

/** The outcome of checking one file or document. `detail` is a clause that completes the fault's message. */
export type Verdict =
  | { readonly ok: true; readonly by: 'key'; readonly keyId: string; readonly signedAt: string }
  | { readonly ok: true; readonly by: 'manifest' }
  | {
      readonly ok: false;
      readonly code: SignatureFault;
      readonly keyId?: string;
      readonly signedAt?: string;
      readonly detail?: string;
    };

/** Member of a JSON document that holds its signature. */
const SIGNATURE_MEMBER = '_signature';

export interface TextToSign {
  readonly text: string;
  readonly style: SignatureStyle;
  readonly key: SigningKey;
  /** Milliseconds since the epoch. */
  readonly now: number;
}

/**
 * The text with a signature of `key` in its place, replacing the one that stood there. The same content under the
 * same key comes back byte for byte. Ends of line are kept; a byte order mark, which would hide the signature, is
 * dropped. Throws `invalid_input` for a `json` text that is no JSON object.
 */
export function signText({ text, style, key, now }: TextToSign): string {
  if (style === 'json') return signJsonText(text, key, now);
  const unmarked = text.startsWith('\u{FEFF}') ? text.slice(1) : text;
  const { shebang, line, content } = splitText(unmarked, style);
  const hash = contentHash(content);
  const fields = parseSignatureLine(line, style);
  if (fields !== undefined && isSameSignature(fields, hash, key)) return unmarked;
  const eol = /^[^\n]*\r\n/.test(unmarked) ? '\r\n' : '\n';
  const head = shebang === '' || shebang.endsWith('\n') ? shebang : `${shebang}${eol}`;
  return `${head}${formatSignatureLine(makeSignature(hash, key, now), style)}${eol}${content}`;
}

export interface TextToCheck {
  readonly text: string;
  readonly style: SignatureStyle;
  readonly keys: KeyLookup;
}

/** Checks a file's signature in this order: signed, unchanged, key trusted, key not revoked, signature valid. */
export function checkText({ text, style, keys }: TextToCheck): Verdict {
  if (style === 'json') return checkDocument(parseJson(text), keys);
  const { line, content } = splitText(text, style);
  const fields = parseSignatureLine(line, style);
  if (fields === undefined) return { ok: false, code: 'unsigned' };
  if (contentHash(content) === fields.hash) return checkFields(fields, keys);
  const older = olderHashes(content, style).includes(fields.hash);
  return fault(older ? 'signature_partial' : 'content_modified', fields);
}

/** Signs a JSON document: the canonical JSON of everything but `_signature` is what is hashed. */
export function signDocument(document: JsonObject, key: SigningKey, now: number): JsonObject {
  const { [SIGNATURE_MEMBER]: _replaced, ...content } = document;
  const fields = makeSignature(sha256Hex(canonicalJson(content)), key, now);
  return { ...content, [SIGNATURE_MEMBER]: formatSignature(fields) };
}

/** Checks what {@link signDocument} made; anything that is no JSON object counts as unsigned. */
export function checkDocument(document: unknown, keys: KeyLookup): Verdict {
  if (!isJsonObject(document)) return { ok: false, code: 'unsigned' };
  const { [SIGNATURE_MEMBER]: text, ...content } = document;
  const fields = typeof text === 'string' ? parseSignature(text) : undefined;
  if (fields === undefined) return { ok: false, code: 'unsigned' };
  const canonical = canonicalOrNothing(content);
  if (canonical === undefined || sha256Hex(canonical) !== fields.hash) {
    return fault('content_modified', fields);
  }
  return checkFields(fields, keys);
}

/** Whether `key` has signed this very document, so that signing it again would change nothing but the time. */
export function isSignedBy(document: JsonObject, key: SigningKey): boolean {
  const { [SIGNATURE_MEMBER]: text, ...content } = document;
  const fields = typeof text === 'string' ? parseSignature(text) : undefined;
  return fields !== undefined && isSameSignature(fields, sha256Hex(canonicalJson(content)), key);
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
        async verify(payload, signature) {
          const text = canonicalOrNothing(payload);
          return text !== undefined && (await key.verifyBeside(text, signature));
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
  item_moved: 'invalid',
  system_item_modified: 'modified',
} as const satisfies Record<SignatureFault, string>;

function checkFields(fields: SignatureFields, keys: KeyLookup): Verdict {
  const { keyId, signedAt, hash, signature } = fields;
  const found = keys.find(keyId);
  if (found.status === 'unknown') return fault('key_untrusted', fields, found.reason);
  if (found.status === 'revoked') {
    const when = found.revokedAt === null ? undefined : `revoked ${found.revokedAt}`;
    return fault('key_revoked', fields, when);
  }
  return found.key.verify(hash, signature)
    ? { ok: true, by: 'key', keyId, signedAt }
    : fault('signature_invalid', fields);
}

function fault(
  code: SignatureFault,
  { keyId, signedAt }: SignatureFields,
  detail?: string,
): Verdict {
  return { ok: false, code, keyId, signedAt, ...(detail === undefined ? {} : { detail }) };
}

function makeSignature(hash: string, key: SigningKey, now: number): SignatureFields {
  return { signedAt: isoSeconds(now), hash, signature: key.sign(hash), keyId: key.keyId };
}

function isSameSignature(fields: SignatureFields, hash: string, key: SigningKey): boolean {
  return fields.keyId === key.keyId && fields.hash === hash && key.verify(hash, fields.signature);
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

function signJsonText(text: string, key: SigningKey, now: number): string {
  const document = parseJson(text);
  if (!isJsonObject(document)) {
    throw new RyeError('invalid_input', 'only a JSON object can carry a signature', {
      hint: 'Check the syntax of the file, and put its values into one object.',
    });
  }
  const { [SIGNATURE_MEMBER]: old, ...content } = document;
  const fields = typeof old === 'string' ? parseSignature(old) : undefined;
  const hash = sha256Hex(canonicalJson(content));
  if (fields !== undefined && isSameSignature(fields, hash, key)) return text;
  const signature = formatSignature(makeSignature(hash, key, now));
  return `${JSON.stringify({ [SIGNATURE_MEMBER]: signature, ...content }, null, 2)}\n`;
}
