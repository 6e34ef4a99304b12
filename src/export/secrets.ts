/**
 * What a secret looks like: the prefixes that providers give to their keys, private key blocks, tokens behind the words
 * that announce them, credentials in addresses. Each pattern is linear. A shape can only find what it knows.
 */
const SHAPES: readonly RegExp[] = [
  // a block without its end is taken as far as one can be long
  /-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:(?!-----END)[\s\S]){0,8000}(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?/g,
  // Anthropic, OpenAI and their like; Stripe
  /\b[sr]k[-_][\w-]{16,}/g,
  // GitHub, GitLab, npm, Slack, Hugging Face
  /\b(?:gh[pousr]_|github_pat_|glpat-|npm_|xox[abeoprs]-|hf_)[\w-]{16,}/g,
  // AWS, Google
  /\b(?:AKIA|ASIA)[A-Z0-9]{16}\b/g,
  /\bAIza[\w-]{30,}/g,
  // JSON Web Tokens
  /\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*/g,
  /(?<=\b(?:Bearer|Basic)\s)(?=[A-Za-z.~+/=_-]{0,200}\d)[\w.~+/=-]{16,}/g,
  // user:password@host
  /(?<=:\/\/[^\s/:@]{0,100}:)[^\s/@]{1,200}(?=@)/g,
  // PASSWORD=…, "api_key": "…"
  /(?<=(?:pass(?:word|wd)?|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credentials?)\\?["']?\s{0,3}[:=]\s{0,3}\\?["']?)[^\s"',;&\\]{8,}/gi,
];

/** What stands in place of what was taken out. */
export const REDACTED = '[redacted]';

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
