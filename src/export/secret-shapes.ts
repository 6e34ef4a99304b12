/** Replaces each redacted value. */
export const REDACTED = '[redacted]';

/** The beginnings of keys of one kind; what follows has at least 16 characters. */
const PREFIXES = [
  // OpenAI, Anthropic, OpenRouter and their like; Stripe
  'sk[-_]',
  'rk[-_]',
  // Groq, xAI, Perplexity, Cerebras, Together, Replicate, NVIDIA
  'gsk_',
  'xai-',
  'pplx-',
  'csk-',
  'tgp_v1_',
  'r8_',
  'nvapi-',
  // Bedrock
  'ABSK',
  'bedrock-api-key-',
  // GitHub, GitLab, npm, PyPI, Docker, Slack, Hugging Face
  'gh[pousr]_',
  'github_pat_',
  'glpat-',
  'npm_',
  'pypi-',
  'dckr_pat_',
  'xox[abceoprs]-',
  'xapp-',
  'hf_',
  // Stripe's webhooks, SendGrid, Vault, Shopify, Linear, Notion, DigitalOcean
  'whsec_',
  'SG\\.',
  'hv[sb]\\.',
  'shp(?:at|ss|ca|pa)_',
  'lin_api_',
  'ntn_',
  'do[opr]_v1_',
  // Google
  'AIza',
  'AQ\\.',
  'ya29\\.',
  // age
  'AGE-SECRET-KEY-1',
];

const PASSWORD = 'pass(?:word|wd|phrase)?|pwd';
const ANNOUNCED = `${PASSWORD}|secret|token|api[_-]?key|access[_-]?key|account[_-]?key|subscription-key|private[_-]?key|credentials?`;
/** A name that ends with a word which announces a secret, such as `api_key`, `dbPassword` and `passwords`; not `bypass`. */
const SECRET_NAME = new RegExp(`(?:${ANNOUNCED.replace('?|pwd', '|pwd')})s?$`, 'i');
const PASS = /(?:^|[^a-z])pass$|Pass$/;

/** True for the name of a member whose value is a secret, however it looks. */
export function announcesSecret(name: string): boolean {
  return SECRET_NAME.test(name) || PASS.test(name);
}

/** Between the name of a value and the value; JSON within JSON has its quotes escaped. */
const ASSIGNED = String.raw`\\?["']?\s{0,3}[:=]\s{0,3}`;
/** A value without quotes ends at white space, a quote, `&`, or a comma or semicolon that ends its part. */
const BARE = String.raw`(?:[^\s"'&\\,;]|[,;](?=[^\s"'])|\\(?!["'nrt]))`;

/**
 * Patterns of secrets: key prefixes, private key blocks, web tokens, values after words that announce them, credentials
 * and secret addresses. Each pattern is linear. Unknown kinds of secrets are not found.
 */
const SHAPES: readonly RegExp[] = [
  // a block without an end counts up to the maximum length
  /-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:(?!-----END)[\s\S]){0,8000}(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?/g,
  new RegExp(
    String.raw`(?<![A-Za-z0-9])(?:${PREFIXES.join('|')})[\w-]{16,}[\w./+=-]{0,2000}(?<![./])`,
    'g',
  ),
  // AWS
  /\b(?:AKIA|ASIA)[A-Z0-9]{16}\b/g,
  // JSON Web Tokens
  /\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*/g,
  /(?<=\b(?:Bearer|Basic)\s)(?=[A-Za-z.~+/=_-]{0,200}\d)[\w.~+/=-]{16,}/g,
  /(?<=\bAuthorization\\?["']?\s{0,3}[:=]\s{0,3}\\?["']?(?:[A-Za-z]{1,12}\s)?)[^\s"',;\\]{8,}/gi,
  // webhooks of Slack and Discord, signatures in addresses
  /(?<=\bhooks\.slack\.com\/(?:services|workflows|triggers)\/)[\w/]{8,}/g,
  /(?<=\bdiscord(?:app)?\.com\/api\/webhooks\/)[\w/-]{8,}/g,
  /(?<=[?&](?:sig|signature|X-Amz-Signature)=)[\w%+/=-]{16,}/gi,
  // user:password@host, where the password may have an @; token@host
  /(?<=:\/\/[^\s/:@]{0,100}:)[^\s/]{1,200}(?=@)/g,
  /(?<=:\/\/)(?:[^\s/:@]{16,200}|(?=[^\s/:@]{0,16}\d)[^\s/:@]{8,16})(?=@)/g,
  // options of a command
  new RegExp(
    String.raw`(?<=(?:^|\s)--?[\w-]{0,40}(?:${ANNOUNCED})\s{1,3}["']?)(?!-)[^\s"']{3,400}`,
    'gi',
  ),
  /(?<=\s(?:-u|--user)[\s=]{0,3}["']?[^\s:"']{1,100}:)[^\s"']{3,200}/g,
  /(?<=\bCookie\\?["']?\s{0,3}:\s{0,3}\\?["']?)[^\s"'=;]{1,60}=[^\r\n"'\\]{8,}/gi,
  // a list of them in JSON, from its first quote to its last
  new RegExp(
    String.raw`(?<=(?:${ANNOUNCED})s?${ASSIGNED}\[\s{0,40}\\?["'])[^\]]{1,2000}(?=["']\s{0,40}\])`,
    'gi',
  ),
  // "api_key": "…", also within a string of JSON; then the same without quotes
  new RegExp(String.raw`(?<=(?:${ANNOUNCED})${ASSIGNED}\\")[^"\\]{1,400}(?=\\")`, 'gi'),
  new RegExp(String.raw`(?<=(?:${ANNOUNCED})${ASSIGNED}")(?:[^"\\\n]|\\.){1,400}(?=")`, 'gi'),
  new RegExp(String.raw`(?<=(?:${ANNOUNCED})${ASSIGNED}')(?:[^'\\\n]|\\.){1,400}(?=')`, 'gi'),
  new RegExp(String.raw`(?<=(?:${PASSWORD})${ASSIGNED})${BARE}{3,}`, 'gi'),
  new RegExp(String.raw`(?<=(?:${ANNOUNCED})${ASSIGNED})${BARE}{8,}`, 'gi'),
];

/** The text without what looks like a secret, and how many were found. */
export function withoutSecretShapes(text: string): {
  readonly text: string;
  readonly found: number;
} {
  let found = 0;
  let clean = text;
  for (const shape of SHAPES) {
    clean = clean.replaceAll(shape, (match) => {
      if (match === REDACTED) return match;
      found += 1;
      return REDACTED;
    });
  }
  return { text: clean, found };
}
