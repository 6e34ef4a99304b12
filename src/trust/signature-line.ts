/**
 * How a signature stands in a file: an HTML comment (Markdown), a `#` comment below a shebang, a `//` comment
 * below a shebang, or the member `_signature` of a JSON object. `yaml` writes `#` and also reads the HTML comment
 * that the older convention put on top of YAML knowledge.
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

/** The style for a file name's extension, dot included; undefined where rye signs no such file. */
export function signatureStyle(extension: string): SignatureStyle | undefined {
  return Object.hasOwn(STYLES, extension) ? STYLES[extension] : undefined;
}

/**
 * What a file is signed as. `kind` is the item type, for a tool with the extension that chooses its interpreter, such as
 * `tool.sh`; or a record that rye keeps. `id` is the canonical id, such as `agent/hooks`.
 */
export interface SignedSubject {
  readonly kind: string;
  readonly id: string;
}

/** The facts of a signature, as the line lists them. */
export interface SignatureFields {
  /** `YYYY-MM-DDTHH:MM:SSZ`. Covered by the signature if there is a `subject`, else informational. */
  readonly signedAt: string;
  /** Absent in the older form, whose signature covers the hash alone. */
  readonly subject?: SignedSubject;
  /** SHA-256 hex of the content. */
  readonly hash: string;
  readonly signature: string;
  readonly keyId: string;
}

const TIME = String.raw`(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)`;
const HASH = '([0-9a-f]{64})';
const KEY = '([0-9a-f]{16})';
const FIELDS = new RegExp(
  `^rye:signed:v2:${TIME}:([a-z-]+(?:\\.[a-z]+)?):([A-Za-z0-9._/-]+):${HASH}:([A-Za-z0-9_-]{86}):${KEY}$`,
);
const OLDER_FIELDS = new RegExp(
  `^rye:signed:${TIME}:${HASH}:([A-Za-z0-9_-]{86}(?:==?)?):${KEY}(?:\\|[A-Za-z0-9_-]+@[A-Za-z0-9_-]+)?$`,
);

/**
 * Reads `rye:signed:v2:TIME:KIND:ID:HASH:SIG:KEY`, or the older `rye:signed:TIME:HASH:SIG:KEY` with its optional
 * `|provider@user` suffix. Undefined for anything else.
 */
export function parseSignature(text: string): SignatureFields | undefined {
  const [, signedAt = '', kind = '', id = '', hash = '', signature = '', keyId = ''] =
    FIELDS.exec(text) ?? [];
  return keyId === ''
    ? parseOlder(text)
    : { signedAt, subject: { kind, id }, hash, signature, keyId };
}

function parseOlder(text: string): SignatureFields | undefined {
  const [, signedAt = '', hash = '', signature = '', keyId = ''] = OLDER_FIELDS.exec(text) ?? [];
  return keyId === '' ? undefined : { signedAt, hash, signature, keyId };
}

export function formatSignature(fields: NamedFields): string {
  const { signedAt, subject, hash, signature, keyId } = fields;
  return `rye:signed:v2:${signedAt}:${subject.kind}:${subject.id}:${hash}:${signature}:${keyId}`;
}

/** The fields of a signature that names its subject, which every new one does. */
export type NamedFields = SignatureFields & { readonly subject: SignedSubject };

/**
 * The text that the key signs. Its first line keeps it apart from everything else that rye signs, no field contains a
 * line feed, so that two sets of facts never have one statement. In the older form it is the hash alone.
 */
export function signedStatement({
  signedAt,
  subject,
  hash,
}: Omit<SignatureFields, 'signature' | 'keyId'>): string {
  if (subject === undefined) return hash;
  return `rye-item-v2\nkind ${subject.kind}\nid ${subject.id}\ntime ${signedAt}\nsha256 ${hash}\n`;
}

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

/** Signature lines of any age, well formed or not: what signing replaces. */
const REPLACEABLE = /^(?:<!--|#|\/\/)\s*(?:rye|kiwi-mcp):(?:signed|validated):/;

/** A file cut at the one place where its signature line may stand. Ends of line stay with their parts. */
export interface SplitText {
  readonly shebang: string;
  /** The line with its end, empty where no signature stands. */
  readonly line: string;
  readonly content: string;
}

/**
 * Cuts a text at its signature: line 1, or line 2 below a shebang. A byte order mark, a blank line or a space
 * before it means that there is none.
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

/** The fields of a line that {@link splitText} found, if it is a well-formed signature of this style. */
export function parseSignatureLine(line: string, style: CommentStyle): SignatureFields | undefined {
  const bare = line.replace(/\r?\n$/, '');
  for (const { open, close } of COMMENTS[style]) {
    if (bare.startsWith(open) && bare.endsWith(close)) {
      return parseSignature(bare.slice(open.length, bare.length - close.length));
    }
  }
  return undefined;
}

/** A signature line of the style without its end. */
export function formatSignatureLine(fields: NamedFields, style: CommentStyle): string {
  const [comment] = COMMENTS[style];
  return `${comment?.open ?? ''}${formatSignature(fields)}${comment?.close ?? ''}`;
}

/** The text with its signature line emptied, so that parsers see every other line at its own number. */
export function blankSignatureLine(text: string, style: SignatureStyle): string {
  if (style === 'json') return text;
  const { shebang, line, content } = splitText(text, style);
  return `${shebang}${line.endsWith('\n') ? '\n' : ''}${content}`;
}

function firstLine(text: string): string {
  const end = text.indexOf('\n');
  return end === -1 ? text : text.slice(0, end + 1);
}
