import { RyeError } from '../../kernel/core/errors.ts';
import { SOURCE_PROTOCOLS, type SourceProtocol } from '../../kernel/core/plan.ts';

/** The address of a repository, as git takes it. */
export interface SourceUrl {
  readonly text: string;
  readonly protocol: SourceProtocol;
  /** True if a user name or a password was removed from it. */
  readonly isStripped: boolean;
}

const MAX_LENGTH = 2000;
const HOST = /^(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])$/;
const USER = /^[A-Za-z0-9_][A-Za-z0-9_.-]*$/;
/** `git@host:owner/project.git`; two colons would name a program. */
const SHORT = /^(?:([A-Za-z0-9_][A-Za-z0-9_.-]*)@)?([A-Za-z0-9][A-Za-z0-9.-]*):(?![:-])(\S+)$/;
const COMMIT = /^(?:[0-9a-f]{40}|[0-9a-f]{64})$/;

/**
 * Reads the address of a repository: `https:`, `http:`, `ssh:` and `file:` URLs, `USER@HOST:PATH`, and absolute paths.
 * Credentials are removed: each worker has its own. Refuses all else, such as what git takes for an option or a program.
 */
export function parseSourceUrl(given: string): SourceUrl {
  const isPlain = given.length <= MAX_LENGTH && !/[\s\p{Cc}\\]/u.test(given);
  const found = isPlain ? (pathUrl(given) ?? shortUrl(given) ?? fullUrl(given)) : undefined;
  if (found) return found;
  throw new RyeError(
    'invalid_input',
    `${JSON.stringify(withoutUser(given))} is not a repository URL`,
    {
      hint: 'Use https://HOST/PATH, ssh://USER@HOST/PATH, USER@HOST:PATH or file:///PATH, without a query.',
    },
  );
}

/** Throws `invalid_input` for all that is not the full ID of a commit. */
export function assertCommitId(text: string): void {
  if (COMMIT.test(text)) return;
  throw new RyeError('invalid_input', `${JSON.stringify(text)} is not the full ID of a commit`, {
    hint: 'A source is one exact commit: 40 or 64 hexadecimal digits.',
  });
}

/** Returns the ref that a thread's changes are pushed to. */
export function sourceRef(threadId: string): string {
  // IDs allow what names of refs do not
  const safe = threadId.replaceAll(/[^A-Za-z0-9_/-]|\.lock(?=\/|$)/g, (part) =>
    [...Buffer.from(part)].map((byte) => `=${byte.toString(16).padStart(2, '0')}`).join(''),
  );
  return `refs/rye/${safe}`;
}

function pathUrl(text: string): SourceUrl | undefined {
  if (!text.startsWith('/')) return undefined;
  return { text: `file://${text}`, protocol: 'file', isStripped: false };
}

function shortUrl(text: string): SourceUrl | undefined {
  return !text.includes('://') && SHORT.test(text)
    ? { text, protocol: 'ssh', isStripped: false }
    : undefined;
}

function fullUrl(text: string): SourceUrl | undefined {
  if (!URL.canParse(text)) return undefined;
  const url = new URL(text);
  const protocol = SOURCE_PROTOCOLS.find((name) => url.protocol === `${name}:`);
  const isFile = protocol === 'file';
  const isHost = isFile ? url.host === '' : HOST.test(url.hostname);
  const isPath = url.pathname.length > 1 && text.startsWith(`${protocol}://`);
  if (!protocol || !isHost || !isPath || url.search !== '' || url.hash !== '') return undefined;
  const isSsh = protocol === 'ssh';
  if (isSsh && url.username !== '' && !USER.test(url.username)) return undefined;
  const isStripped = url.password !== '' || (!isSsh && url.username !== '');
  url.password = '';
  if (!isSsh) url.username = '';
  return { text: url.href, protocol, isStripped };
}

/** For an error: the part before the host may be a password. */
function withoutUser(text: string): string {
  return text
    .slice(0, MAX_LENGTH)
    .replace(/\/\/[^/@]*@/, '//…@')
    .replace(/[?#].*/s, '?…');
}
