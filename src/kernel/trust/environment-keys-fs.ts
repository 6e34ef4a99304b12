import { readFileSync, statSync } from 'node:fs';
import { messageOf, RyeError } from '../core/errors.ts';
import { parseTrustedKey, type TrustedKeyFile } from './key-files.ts';
import { readPrivateKey, readPublicKey, type SigningKey } from './keys.ts';
import { readScope } from './scope.ts';

/** Keys that the environment gives to one command, such as a job of continuous integration. */
export interface EnvironmentKeys {
  /** True if `RYE_SIGNING_KEY` is set: then it is the user's key, in place of the one in the user space. */
  readonly hasSigner: boolean;
  /** Undefined without `RYE_SIGNING_KEY`. Throws `key_unsafe`, never with the content of the variable. */
  signer(): SigningKey | undefined;
  /** Keys of `RYE_TRUSTED_KEYS` by fingerprint, in addition to the keys of the user space. Throws `key_unsafe`. */
  trusted(): ReadonlyMap<string, TrustedKeyFile>;
}

const MAX_KEY_FILE_BYTES = 65_536;
const PEM = /-----BEGIN [A-Z ]+-----[^-]*-----END [A-Z ]+-----/g;

/** Reads the variables when they are first needed. Each is PEM text, or paths to files. */
export function environmentKeys(
  env: Readonly<Record<string, string | undefined>>,
): EnvironmentKeys {
  const { RYE_SIGNING_KEY: signing = '', RYE_TRUSTED_KEYS: trusting = '' } = env;
  let signer: SigningKey | undefined;
  let trusted: ReadonlyMap<string, TrustedKeyFile> | undefined;
  return {
    hasSigner: signing.trim() !== '',
    signer() {
      if (signing.trim() === '') return undefined;
      signer ??= guarded('RYE_SIGNING_KEY', () =>
        readPrivateKey(oneKey(signing), 'RYE_SIGNING_KEY'),
      );
      return signer;
    },
    trusted() {
      trusted ??= guarded('RYE_TRUSTED_KEYS', () => trustedKeys(trusting));
      return trusted;
    },
  };
}

function oneKey(value: string): string {
  const text = withLineFeeds(value);
  return text.includes('-----BEGIN') ? text.trim() : readKey(value.trim());
}

/** A file of a trusted key has its own limits; a PEM signs everything and approves nothing. */
function trustedKeys(value: string): ReadonlyMap<string, TrustedKeyFile> {
  const text = withLineFeeds(value);
  const paths = text
    .replaceAll(PEM, '\n')
    .split(/[\n,:]/)
    .map((path) => path.trim())
    .filter((path) => path !== '');
  const keys = [
    ...keysIn(text, 'RYE_TRUSTED_KEYS'),
    ...paths.flatMap((path) => {
      const content = readKey(path);
      return /^fingerprint\s*=/m.test(content)
        ? [parseTrustedKey(content, path)]
        : keysIn(content, path);
    }),
  ];
  return new Map(keys.map((file) => [file.key.keyId, file]));
}

function keysIn(text: string, source: string): readonly TrustedKeyFile[] {
  const blocks = text.match(PEM) ?? [];
  if (blocks.length === 0 && source !== 'RYE_TRUSTED_KEYS') {
    throw new RyeError('invalid_input', `${source} has no public key in PEM form`);
  }
  return blocks.map((pem) => ({
    key: readPublicKey(pem, source),
    owner: source,
    scope: readScope({}),
  }));
}

/** Settings of job runners often keep the line feeds of a PEM as `\n`. */
function withLineFeeds(value: string): string {
  return value.replaceAll('\\n', '\n').replaceAll('\r\n', '\n');
}

function readKey(path: string): string {
  if (statSync(path).size > MAX_KEY_FILE_BYTES) {
    throw new RyeError('invalid_input', `${path} is too large for a key file`);
  }
  return readFileSync(path, 'utf8');
}

/** An unusable variable must stop the command: it decides whom to trust. */
function guarded<T>(name: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    // a damaged PEM may look like a path; never show what it contains
    const isRye = error instanceof RyeError;
    throw new RyeError(
      'key_unsafe',
      isRye ? messageOf(error) : `${name} is neither PEM nor a file that can be read`,
      {
        hint: `Set ${name} to the PEM text or to the path of its file; see docs/ci.md.`,
      },
    );
  }
}
