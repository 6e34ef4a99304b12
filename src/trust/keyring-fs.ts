import { realpathSync } from 'node:fs';
import { join } from 'node:path';
import { isoSeconds } from '../core/clock.ts';
import { messageOf, RyeError } from '../core/errors.ts';
import type { PayloadSigner, PayloadVerifier } from '../core/signing.ts';
import { didYouMean } from '../core/text.ts';
import {
  assertKeyId,
  checkTrustedKey,
  parseRevokedAt,
  parseTrustedKey,
  readOfferedKey,
  renderRevocation,
  renderTrustedKey,
  revocationSubject,
  type TrustedKeyFile,
  trustedKeySubject,
} from './key-files.ts';
import {
  createKeyFile,
  keyFileNames,
  keyPaths,
  makeKeyDirectory,
  readKeyFile,
  readPrivateFile,
  readTrustFile,
  writeKeyFile,
} from './key-store-fs.ts';
import {
  generateKeyPair,
  isKeyId,
  type KeyInfo,
  type Keyring,
  type KeyStatus,
  readPrivateKey,
  readPublicKey,
  type SigningKey,
  type VerifyingKey,
} from './keys.ts';
import { payloadSigner, payloadVerifier, signText } from './signature.ts';
import { parseSignatureLine, splitText } from './signature-line.ts';

export interface KeyringOptions {
  /** Folder that contains the user's `.ai`. */
  readonly userSpacePath: string;
  /** Folder that contains the project's `.ai`. */
  readonly projectPath: string;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
}

/** Opens the keyring of a user in a project; reads files only on demand. */
export function openKeyring(options: KeyringOptions): Keyring {
  return new DiskKeyring(options);
}

class DiskKeyring implements Keyring {
  readonly payloadVerifier: PayloadVerifier;
  readonly #user: ReturnType<typeof keyPaths>;
  readonly #project: ReturnType<typeof keyPaths>;
  readonly #projectPath: string;
  readonly #now: () => number;
  #signer: SigningKey | undefined;
  #own: VerifyingKey | undefined;
  readonly #trusted = new Map<string, { readonly text: string; readonly file: TrustedKeyFile }>();

  constructor({ userSpacePath, projectPath, now }: KeyringOptions) {
    this.#user = keyPaths(userSpacePath);
    this.#project = keyPaths(projectPath);
    this.#projectPath = projectPath;
    this.#now = now;
    this.payloadVerifier = payloadVerifier(this);
  }

  find(keyId: string): KeyStatus {
    return this.#find(keyId, new Set());
  }

  signer(): SigningKey {
    const signer = this.#loadSigner();
    const { status } = this.find(signer.keyId);
    if (status === 'revoked') {
      throw new RyeError('key_revoked', `your signing key ${signer.keyId} was revoked`, {
        hint: 'Create a new one: rye keys rotate',
      });
    }
    if (status === 'unknown') {
      throw new RyeError('key_unsafe', `${this.#user.publicKey} does not match the private key`, {
        hint: 'Restore the right pair of files, or remove public_key.pem: it is derived from the private key.',
      });
    }
    return signer;
  }

  payloadSigner(): PayloadSigner {
    return payloadSigner(this.signer());
  }

  async init(): Promise<KeyInfo> {
    const { signing, privateKey, publicKey } = this.#user;
    const { privatePem, publicPem } = generateKeyPair();
    makeKeyDirectory(signing);
    // a public key without its private key is the rest of a lost key; never overwrite it
    if (readKeyFile(publicKey) !== undefined || !createKeyFile(privateKey, privatePem)) {
      throw new RyeError('already_exists', `a signing key already exists in ${signing}`, {
        hint: 'To replace it, run: rye keys rotate',
        details: { path: signing },
      });
    }
    writeKeyFile(publicKey, publicPem);
    this.#forget();
    return this.#info(this.signer().keyId, 'own', { owner: 'self', path: publicKey });
  }

  list(): readonly KeyInfo[] {
    const own = this.#ownKey();
    const listed = new Set<string>();
    const keys: KeyInfo[] = [];
    const add = (keyId: string, source: KeyInfo['source'], path: string): void => {
      if (listed.has(keyId)) return;
      listed.add(keyId);
      keys.push(this.#describe(keyId, source, path));
    };
    if (own !== undefined) add(own.keyId, 'own', this.#user.publicKey);
    for (const name of keyFileNames(this.#user.trusted))
      add(name, 'user', this.#user.trustedFile(name));
    for (const name of keyFileNames(this.#project.trusted))
      add(name, 'project', this.#project.trustedFile(name));
    for (const name of keyFileNames(this.#user.revoked))
      add(name, 'user', this.#user.revokedFile(name));
    return keys;
  }

  export(): { readonly key_id: string; readonly pem: string } {
    const own = this.#ownKey() ?? this.#loadSigner();
    return { key_id: own.keyId, pem: own.pem };
  }

  inspect(text: string, options: { readonly owner?: string; readonly source?: string } = {}) {
    const offered = readOfferedKey(text, options.owner, this, options.source);
    const { key, owner, projects } = this.#scoped(offered);
    return { key_id: key.keyId, owner, ...(projects === undefined ? {} : { projects }) };
  }

  async trust(text: string, options: { readonly owner?: string } = {}): Promise<KeyInfo> {
    const offered = readOfferedKey(text, options.owner, this);
    const { keyId } = offered.key;
    const before = this.find(keyId);
    if (before.status === 'revoked') {
      throw new RyeError('key_revoked', `key ${keyId} was revoked and cannot be trusted again`, {
        hint: 'Ask its owner for their new key.',
      });
    }
    if (this.#ownKey()?.keyId === keyId) return this.#describe(keyId, 'own', this.#user.publicKey);
    const path = this.#user.trustedFile(keyId);
    await this.#writeTrusted(this.#scoped(offered));
    return this.#describe(keyId, 'user', path);
  }

  async revoke(keyId: string, options: { readonly reason?: string } = {}): Promise<KeyInfo> {
    assertKeyId(keyId);
    const known = this.list();
    const info = known.find(({ key_id }) => key_id === keyId);
    if (info === undefined) {
      throw new RyeError('key_not_found', `unknown key ${keyId}`, {
        hint:
          didYouMean(
            keyId,
            known.map(({ key_id }) => key_id),
          ) ?? 'Run: rye keys list',
      });
    }
    const path = this.#user.revokedFile(keyId);
    if (!info.revoked) {
      const now = this.#now();
      const text = renderRevocation({
        keyId,
        revokedAt: isoSeconds(now),
        reason: options.reason ?? '',
      });
      makeKeyDirectory(this.#user.revoked);
      const subject = revocationSubject(keyId);
      const key = this.signer();
      writeKeyFile(path, signText({ text, style: 'hash', subject, key, now }));
    }
    return this.#describe(keyId, info.source, info.path);
  }

  async rotate(): Promise<{ readonly old_key_id: string; readonly key_id: string }> {
    const old = this.#loadSigner();
    const { archive, privateKey, publicKey } = this.#user;
    const pair = generateKeyPair();
    const next = readPrivateKey(pair.privatePem, 'the new key');
    // The keyring works after each step: the new key is trusted before it signs anything.
    makeKeyDirectory(join(archive, old.keyId));
    writeKeyFile(join(archive, old.keyId, 'private_key.pem'), this.#readPrivate());
    writeKeyFile(join(archive, old.keyId, 'public_key.pem'), old.pem);
    await this.#writeTrusted({ key: next, owner: 'self' }, old);
    await this.#writeTrusted({ key: old, owner: 'self (until rotated)' }, next);
    writeKeyFile(privateKey, pair.privatePem);
    writeKeyFile(publicKey, pair.publicPem);
    this.#forget();
    await this.#resign(old.keyId, next);
    return { old_key_id: old.keyId, key_id: next.keyId };
  }

  #find(keyId: string, vouching: ReadonlySet<string>): KeyStatus {
    if (!isKeyId(keyId)) return { status: 'unknown' };
    const revocation = readKeyFile(this.#user.revokedFile(keyId));
    if (revocation !== undefined) {
      return {
        status: 'revoked',
        revokedAt: revokedAt(revocation.text, this.#user.revokedFile(keyId)),
      };
    }
    const own = this.#ownKey();
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
    const path = this.#user.trustedFile(keyId);
    const entry = this.#readTrusted(keyId, path);
    if (entry === undefined) return { status: 'unknown' };
    const { text, file } = entry;
    if (file.projects !== undefined && !file.projects.includes(this.#realProject())) {
      return { status: 'unknown', reason: 'it is trusted for other projects only' };
    }
    const verdict = checkTrustedKey(text, keyId, {
      find: (signer) =>
        signer === keyId ? { status: 'trusted', key: file.key } : this.#find(signer, vouching),
    });
    if (!verdict.ok && verdict.code !== 'unsigned') {
      return { status: 'unknown', reason: `its key file ${path} does not verify: ${verdict.code}` };
    }
    return { status: 'trusted', key: file.key };
  }

  #readTrusted(keyId: string, path: string) {
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

  #ownKey(): VerifyingKey | undefined {
    if (this.#own !== undefined) return this.#own;
    const { privateKey, publicKey } = this.#user;
    const text = readKeyFile(publicKey)?.text;
    if (text !== undefined) this.#own = ownKey(() => readPublicKey(text, publicKey));
    else if (readKeyFile(privateKey) !== undefined) this.#own = this.#loadSigner();
    return this.#own;
  }

  #loadSigner(): SigningKey {
    this.#signer ??= ownKey(() => readPrivateKey(this.#readPrivate(), this.#user.privateKey));
    return this.#signer;
  }

  #readPrivate(): string {
    const text = readPrivateFile(this.#user.privateKey);
    if (text !== undefined) return text;
    throw new RyeError('key_missing', `no signing key in ${this.#user.signing}`, {
      hint: 'Create one: rye keys init',
      details: { path: this.#user.privateKey },
    });
  }

  #forget(): void {
    this.#signer = undefined;
    this.#own = undefined;
  }

  /** Limits a key that the project contains to that project, unless the user already trusts it everywhere. */
  #scoped({ key, owner }: TrustedKeyFile): TrustedKeyFile {
    const path = this.#user.trustedFile(key.keyId);
    const known = this.#readTrusted(key.keyId, path)?.file;
    const isTheProjects =
      this.#project.trusted !== this.#user.trusted &&
      readKeyFile(this.#project.trustedFile(key.keyId)) !== undefined;
    if (!isTheProjects || (known !== undefined && known.projects === undefined))
      return { key, owner };
    return {
      key,
      owner,
      projects: [...new Set([...(known?.projects ?? []), this.#realProject()])],
    };
  }

  async #writeTrusted(file: TrustedKeyFile, signer?: SigningKey): Promise<void> {
    const key = signer ?? (this.#ownKey() === undefined ? undefined : this.signer());
    const { keyId } = file.key;
    const text = renderTrustedKey(file);
    makeKeyDirectory(this.#user.trusted);
    const signed = key === undefined ? text : this.#signTrusted(keyId, text, key);
    writeKeyFile(this.#user.trustedFile(keyId), signed);
  }

  /** Signs the trusted keys of the old key with the new one, so that revoking the old one loses none of them. */
  async #resign(oldKeyId: string, next: SigningKey): Promise<void> {
    for (const name of keyFileNames(this.#user.trusted)) {
      const path = this.#user.trustedFile(name);
      const text = readKeyFile(path)?.text ?? '';
      const signedBy = parseSignatureLine(splitText(text, 'hash').line, 'hash')?.keyId;
      if (signedBy !== oldKeyId || name === next.keyId) continue;
      if (!checkTrustedKey(text, name, this).ok) continue;
      writeKeyFile(path, this.#signTrusted(name, text, next));
    }
  }

  #signTrusted(keyId: string, text: string, key: SigningKey): string {
    const subject = trustedKeySubject(keyId);
    return signText({ text, style: 'hash', subject, key, now: this.#now() });
  }

  #realProject(): string {
    try {
      return realpathSync(this.#projectPath);
    } catch {
      return this.#projectPath;
    }
  }

  #describe(keyId: string, source: KeyInfo['source'], path: string): KeyInfo {
    if (source === 'own') return this.#info(keyId, source, { owner: 'self', path });
    try {
      const entry = path.startsWith(this.#user.revoked) ? undefined : parseIfPresent(path);
      return this.#info(keyId, source, { owner: entry?.owner ?? 'unknown', path });
    } catch (error) {
      return this.#info(keyId, source, { owner: 'unknown', path, problem: messageOf(error) });
    }
  }

  #info(
    keyId: string,
    source: KeyInfo['source'],
    details: { readonly owner: string; readonly path: string; readonly problem?: string },
  ): KeyInfo {
    const found = this.find(keyId);
    const reason = details.problem ?? (found.status === 'unknown' ? found.reason : undefined);
    const date = found.status === 'revoked' ? found.revokedAt : null;
    return {
      key_id: keyId,
      owner: details.owner,
      source,
      trusted: found.status === 'trusted',
      revoked: found.status === 'revoked',
      ...(date === null ? {} : { revoked_at: date }),
      path: details.path,
      ...(reason === undefined ? {} : { problem: reason }),
    };
  }
}

function parseIfPresent(path: string): TrustedKeyFile | undefined {
  const text = readKeyFile(path)?.text;
  return text === undefined ? undefined : parseTrustedKey(text, path);
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
