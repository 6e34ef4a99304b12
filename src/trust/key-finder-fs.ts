import { realpathSync } from 'node:fs';
import { messageOf, RyeError } from '../core/errors.ts';
import {
  checkTrustedKey,
  parseRevokedAt,
  parseTrustedKey,
  type TrustedKeyFile,
} from './key-files.ts';
import { keyPaths, readKeyFile, readPrivateFile, readTrustFile } from './key-store-fs.ts';
import {
  isKeyId,
  type KeyLookup,
  type KeyStatus,
  readPrivateKey,
  readPublicKey,
  type SigningKey,
  type VerifyingKey,
} from './keys.ts';

export interface KeyringOptions {
  /** Folder that contains the user's `.ai`. */
  readonly userSpacePath: string;
  /** Folder that contains the project's `.ai`. */
  readonly projectPath: string;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
}

/** Finds the keys of a user in a project; reads files only on demand, and sees changes by other processes. */
export class KeyFinder implements KeyLookup {
  readonly user: ReturnType<typeof keyPaths>;
  readonly project: ReturnType<typeof keyPaths>;
  readonly #projectPath: string;
  #signer: SigningKey | undefined;
  #own: VerifyingKey | undefined;
  readonly #trusted = new Map<string, { readonly text: string; readonly file: TrustedKeyFile }>();

  constructor({ userSpacePath, projectPath }: KeyringOptions) {
    this.user = keyPaths(userSpacePath);
    this.project = keyPaths(projectPath);
    this.#projectPath = projectPath;
  }

  find(keyId: string): KeyStatus {
    return this.#find(keyId, new Set());
  }

  #find(keyId: string, vouching: ReadonlySet<string>): KeyStatus {
    if (!isKeyId(keyId)) return { status: 'unknown' };
    const revocation = readKeyFile(this.user.revokedFile(keyId));
    if (revocation !== undefined) {
      return {
        status: 'revoked',
        revokedAt: revokedAt(revocation.text, this.user.revokedFile(keyId)),
      };
    }
    const own = this.ownKey();
    if (own?.keyId === keyId) return { status: 'trusted', key: own };
    // keys that vouch for each other in a cycle are not trusted
    if (vouching.has(keyId))
      return { status: 'unknown', reason: 'its key files vouch for each other' };
    try {
      return this.#findTrusted(keyId, new Set([...vouching, keyId]));
    } catch (error) {
      return { status: 'unknown', reason: messageOf(error) };
    }
  }

  #findTrusted(keyId: string, vouching: ReadonlySet<string>): KeyStatus {
    const path = this.user.trustedFile(keyId);
    const entry = this.readTrusted(keyId, path);
    if (entry === undefined) return { status: 'unknown' };
    const { text, file } = entry;
    if (file.projects !== undefined && !file.projects.includes(this.realProject())) {
      return { status: 'unknown', reason: 'it is trusted for other projects only' };
    }
    const verdict = checkTrustedKey(text, keyId, {
      find: (signer) =>
        signer === keyId ? { status: 'trusted', key: file.key } : this.#find(signer, vouching),
    });
    if (!verdict.ok && verdict.code !== 'unsigned') {
      return { status: 'unknown', reason: `its key file ${path} does not verify: ${verdict.code}` };
    }
    return { status: 'trusted', key: file.key, scope: file.scope };
  }

  readTrusted(keyId: string, path: string) {
    const text = readTrustFile(path);
    if (text === undefined) return undefined;
    const cached = this.#trusted.get(keyId);
    if (cached?.text === text) return cached;
    const file = parseTrustedKey(text, path);
    if (file.key.keyId !== keyId) {
      throw new RyeError('invalid_input', `the file contains key ${file.key.keyId}`, {
        location: { path },
      });
    }
    const entry = { text, file };
    this.#trusted.set(keyId, entry);
    return entry;
  }

  ownKey(): VerifyingKey | undefined {
    if (this.#own !== undefined) return this.#own;
    const { privateKey, publicKey } = this.user;
    const text = readKeyFile(publicKey)?.text;
    if (text !== undefined) this.#own = ownKey(() => readPublicKey(text, publicKey));
    else if (readKeyFile(privateKey) !== undefined) this.#own = this.loadSigner();
    return this.#own;
  }

  loadSigner(): SigningKey {
    this.#signer ??= ownKey(() => readPrivateKey(this.readPrivate(), this.user.privateKey));
    return this.#signer;
  }

  readPrivate(): string {
    const text = readPrivateFile(this.user.privateKey);
    if (text !== undefined) return text;
    throw new RyeError('key_missing', `no signing key in ${this.user.signing}`, {
      hint: 'Create one: rye keys init',
      details: { path: this.user.privateKey },
    });
  }

  forget(): void {
    this.#signer = undefined;
    this.#own = undefined;
  }

  realProject(): string {
    try {
      return realpathSync(this.#projectPath);
    } catch {
      return this.#projectPath;
    }
  }
}

/** Reports a damaged own key as `key_unsafe`, not as invalid input of the command. */
function ownKey<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof RyeError) || error.code !== 'invalid_input') throw error;
    throw new RyeError('key_unsafe', error.message, {
      hint: 'Restore the file, or move the signing folder away and run: rye keys init',
      cause: error,
    });
  }
}

/** A revocation counts even if its file is unreadable; only its date is then unknown. */
function revokedAt(text: string, path: string): string | null {
  try {
    return parseRevokedAt(text, path);
  } catch {
    return null;
  }
}
