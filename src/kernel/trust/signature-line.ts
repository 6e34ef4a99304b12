/**
 * The form of a signature in a file: an HTML comment (Markdown), a `#` comment below a shebang, a `//` comment below a
 * shebang, or the member `_signature` of a JSON object. `yaml` writes `#` and also reads the HTML comment that the older
 * convention put above YAML knowledge.
 */
export type SignatureStyle = 'html' | 'hash' | 'yaml' | 'slash' | 'json';

const STYLES: Readonly<Record<string, SignatureStyle>> = {
  '.md': 'html',
  '.yaml': 'yaml',
  '.yml': 'yaml',
  '.py': 'hash',
  '.sh': 'hash',
  '.bash': 'hash',
  '.rb': 'hash',
  '.pl': 'hash',
  '.toml': 'hash',
  '.js': 'slash',
  '.mjs': 'slash',
  '.cjs': 'slash',
  '.ts': 'slash',
  '.json': 'json',
};

/** Returns the style for an extension with its dot; undefined if rye does not sign such files. */
export function signatureStyle(extension: string): SignatureStyle | undefined {
  return Object.hasOwn(STYLES, extension) ? STYLES[extension] : undefined;
}

/**
 * The subject of a signature. `kind` is the item type, for a tool with the extension that selects its interpreter, such
 * as `tool.sh`, or a record of rye. `id` is the canonical id, such as `agent/hooks`.
 */
export interface SignedSubject {
  readonly kind: string;
  readonly id: string;
}

/** The fields of a signature, in the order of the line. */
export interface SignatureFields {
  /** `YYYY-MM-DDTHH:MM:SSZ`. The signature covers it if there is a `subject`; else it is informational. */
  readonly signedAt: string;
  /** Absent in version 1, whose signature covers only the hash. */
  readonly subject?: SignedSubject;
  /** The thread whose model asked for the signature; absent: a person did. */
  readonly thread?: string;
  /** SHA-256 hex of the content. */
  readonly hash: string;
  readonly signature: string;
  readonly keyId: string;
}

/** Start of every signature. Nothing outside this file spells it; a new version needs a pattern and a statement here. */
const MARKER = 'rye:signed:';
const TIME = String.raw`(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)`;
const HASH = '([0-9a-f]{64})';
const KEY = '([0-9a-f]{16})';
const FIELDS = new RegExp(
  `^${MARKER}v2:${TIME}:([a-z-]+(?:\\.[a-z]+)?):([A-Za-z0-9._/-]+):${HASH}:([A-Za-z0-9_-]{86}):${KEY}$`,
);
const THREAD_FIELDS = new RegExp(
  `^${MARKER}v3:${TIME}:([a-z-]+(?:\\.[a-z]+)?):([A-Za-z0-9._/-]+):([A-Za-z0-9._/-]+):${HASH}:([A-Za-z0-9_-]{86}):${KEY}$`,
);
const OLDER_FIELDS = new RegExp(
  `^${MARKER}${TIME}:${HASH}:([A-Za-z0-9_-]{86}(?:==?)?):${KEY}(?:\\|[A-Za-z0-9_-]+@[A-Za-z0-9_-]+)?$`,
);

/**
 * Reads `rye:signed:v2:TIME:KIND:ID:HASH:SIG:KEY`, `rye:signed:v3:TIME:KIND:ID:THREAD:HASH:SIG:KEY`, or the older `rye:signed:TIME:HASH:SIG:KEY` with its optional
 * `|provider@user` suffix. Undefined for anything else.
 */
export function parseSignature(text: string): SignatureFields | undefined {
  const [, signedAt = '', kind = '', id = '', hash = '', signature = '', keyId = ''] =
    FIELDS.exec(text) ?? [];
  return keyId === ''
    ? (parseOfThread(text) ?? parseOlder(text))
    : { signedAt, subject: { kind, id }, hash, signature, keyId };
}

function parseOfThread(text: string): SignatureFields | undefined {
  const [, signedAt = '', kind = '', id = '', thread = '', hash = '', signature = '', keyId = ''] =
    THREAD_FIELDS.exec(text) ?? [];
  return keyId === ''
    ? undefined
    : { signedAt, subject: { kind, id }, thread, hash, signature, keyId };
}

function parseOlder(text: string): SignatureFields | undefined {
  const [, signedAt = '', hash = '', signature = '', keyId = ''] = OLDER_FIELDS.exec(text) ?? [];
  return keyId === '' ? undefined : { signedAt, hash, signature, keyId };
}

export function formatSignature(fields: NamedFields): string {
  const { signedAt, subject, thread, hash, signature, keyId } = fields;
  const [version, by] = thread === undefined ? ['v2', ''] : ['v3', `${thread}:`];
  return `${MARKER}${version}:${signedAt}:${subject.kind}:${subject.id}:${by}${hash}:${signature}:${keyId}`;
}

/** The fields of a version 2 signature. */
export type NamedFields = SignatureFields & { readonly subject: SignedSubject };

/**
 * Returns the text that the key signs. Its first line distinguishes it from everything else that rye signs. No field
 * contains a line feed, so that different fields never have the same statement. In version 1 it is only the hash.
 */
export function signedStatement({
  signedAt,
  subject,
  thread,
  hash,
}: Omit<SignatureFields, 'signature' | 'keyId'>): string {
  if (subject === undefined) return hash;
  const [version, by] = thread === undefined ? ['v2', ''] : ['v3', `thread ${thread}\n`];
  return `rye-item-${version}\nkind ${subject.kind}\nid ${subject.id}\n${by}time ${signedAt}\nsha256 ${hash}\n`;
}

/** True if a line is a signature comment, which does not belong to the content of an item. */
export function isSignatureLine(line: string): boolean {
  return SIGNATURE_LINE.test(line);
}

const SIGNATURE_LINE = new RegExp(String.raw`^(?:<!--|#|//)\s*${MARKER}`);

type CommentStyle = Exclude<SignatureStyle, 'json'>;

const COMMENTS: Readonly<Record<CommentStyle, readonly { open: string; close: string }[]>> = {
  html: [{ open: '<!-- ', close: ' -->' }],
  hash: [{ open: '# ', close: '' }],
  yaml: [
    { open: '# ', close: '' },
    { open: '<!-- ', close: ' -->' },
  ],
  slash: [{ open: '// ', close: '' }],
};

/** Signature lines of any version, well formed or not, which signing replaces. */
const REPLACEABLE = /^(?:<!--|#|\/\/)\s*(?:rye|kiwi-mcp):(?:signed|validated):/;

/** A file split at its signature line. Line endings stay with their parts. */
export interface SplitText {
  readonly shebang: string;
  /** The line with its ending; empty if there is no signature. */
  readonly line: string;
  readonly content: string;
}

/**
 * Splits a text at its signature: line 1, or line 2 below a shebang. After a byte order mark, a blank line or a space
 * there is no signature.
 */
export function splitText(text: string, style: CommentStyle): SplitText {
  const hasShebang = style !== 'html' && text.startsWith('#!');
  const shebang = hasShebang ? firstLine(text) : '';
  const rest = text.slice(shebang.length);
  const line = firstLine(rest);
  return REPLACEABLE.test(line)
    ? { shebang, line, content: rest.slice(line.length) }
    : { shebang, line: '', content: rest };
}

/** Parses a line of {@link splitText}; undefined if it is not a well-formed signature of this style. */
export function parseSignatureLine(line: string, style: CommentStyle): SignatureFields | undefined {
  const bare = line.replace(/\r?\n$/, '');
  for (const { open, close } of COMMENTS[style]) {
    if (bare.startsWith(open) && bare.endsWith(close)) {
      return parseSignature(bare.slice(open.length, bare.length - close.length));
    }
  }
  return undefined;
}

/** Formats a signature line of the style without a line ending. */
export function formatSignatureLine(fields: NamedFields, style: CommentStyle): string {
  const [comment] = COMMENTS[style];
  return `${comment?.open ?? ''}${formatSignature(fields)}${comment?.close ?? ''}`;
}

/** Empties the signature line of a text, so that line numbers stay the same. */
export function blankSignatureLine(text: string, style: SignatureStyle): string {
  if (style === 'json') return text;
  const { shebang, line, content } = splitText(text, style);
  return `${shebang}${line.endsWith('\n') ? '\n' : ''}${content}`;
}

function firstLine(text: string): string {
  const end = text.indexOf('\n');
  return end === -1 ? text : text.slice(0, end + 1);
}
