import { RyeError } from '../../kernel/core/errors.ts';
import { parseJson } from '../../kernel/core/json.ts';
import { listOf, objectOf, oneOf, optional, TEXT } from '../../kernel/core/shape.ts';

/** Everything with which a worker joins a fleet. A process that has it can be that worker: it is a secret. */
export interface WorkerToken {
  readonly format: 1;
  /** The store of the fleet, with its password. */
  readonly url: string;
  /** Name of the worker in lists. */
  readonly label: string;
  /** Private key of the worker, PKCS #8 in PEM form. */
  readonly key: string;
  /** The certificate of the key. */
  readonly certificate: string;
  /** Public key of the fleet's root, in PEM form. */
  readonly root: string;
  /** Private keys that secret inputs are sealed to, in PEM form, the newest first; absent in tokens of older versions. */
  readonly pool?: readonly string[];
}

const PREFIX = 'rye-worker-1.';
const MAX_BYTES = 65_536;

const TOKEN = objectOf<WorkerToken>({
  format: oneOf([1]),
  url: TEXT,
  label: TEXT,
  key: TEXT,
  certificate: TEXT,
  root: TEXT,
  pool: optional(listOf(TEXT)),
});

/** Returns the text of a token, one line. */
export function tokenText(token: WorkerToken): string {
  return PREFIX + Buffer.from(JSON.stringify(token)).toString('base64url');
}

/** Reads a token. Throws `invalid_input`, never with the text. */
export function readToken(text: string): WorkerToken {
  const line = text.trim();
  const body = line.startsWith(PREFIX) && line.length <= MAX_BYTES ? line.slice(PREFIX.length) : '';
  const value: unknown = parseJson(Buffer.from(body, 'base64url').toString('utf8'));
  if (TOKEN.fits(value)) return value;
  throw new RyeError('invalid_input', 'this is not the token of a worker', {
    hint: 'Create one where the fleet was made: rye fleet enroll --label NAME > worker.token',
  });
}
