import { rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { isoSeconds } from '../core/clock.ts';
import { messageOf, RyeError } from '../core/errors.ts';
import { compact } from '../core/json.ts';
import type { PayloadSigner, PayloadVerifier } from '../core/signing.ts';
import { didYouMean } from '../core/text.ts';
import { KeyChanges } from './key-changes-fs.ts';
import {
  assertKeyId,
  checkTrustedKey,
  type OfferOptions,
  parseTrustedKey,
  readOfferedKey,
  renderTrustedKey,
  type TrustedKeyFile,
  trustedKeySubject,
} from './key-files.ts';
import { KeyFinder, type KeyringOptions } from './key-finder-fs.ts';
import {
  createKeyFile,
  keyFileNames,
  makeKeyDirectory,
  readKeyFile,
  writeKeyFile,
} from './key-store-fs.ts';
import {
  generateKeyPair,
  type InitOptions,
  type KeyInfo,
  type KeyRotation,
  type Keyring,
  type KeyStatus,
  type OfferedKey,
  type RevokeOptions,
  readPrivateKey,
  type SigningKey,
  type TrustOptions,
} from './keys.ts';
import { payloadSigner, payloadVerifier } from './payloads.ts';
import { isProtected, protectKey } from './protected-key.ts';
import { describeScope, FULL_SCOPE } from './scope.ts';
import { signText } from './signature.ts';
import { parseSignatureLine, splitText } from './signature-line.ts';
import { agentKeyNamed } from './ssh-agent.ts';

/** Opens the keyring of a user in a project; reads files only on demand. */
export function openKeyring(options: KeyringOptions): Keyring {
  return new DiskKeyring(options);
}

class DiskKeyring implements Keyring {
  readonly payloadVerifier: PayloadVerifier;
  readonly #finder: KeyFinder;
  readonly #user: KeyFinder['user'];
  readonly #project: KeyFinder['project'];
  readonly #now: () => number;
  readonly #changes: KeyChanges;

  constructor(options: KeyringOptions) {
    this.#finder = new KeyFinder(options);
    this.#user = this.#finder.user;
    this.#project = this.#finder.project;
    this.#now = options.now;
    this.#changes = new KeyChanges(this.#finder, { now: options.now, signer: () => this.signer() });
    this.payloadVerifier = payloadVerifier(this, options.runKey);
  }

  find(keyId: string): KeyStatus {
    return this.#finder.find(keyId);
  }

  signer(): SigningKey {
    const signer = this.#finder.loadSigner();
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

  recordSigner(): SigningKey {
    const { recordKey } = this.#finder;
    return recordKey !== undefined && 'sign' in recordKey ? recordKey : this.signer();
  }

  payloadSigner(): PayloadSigner {
    return payloadSigner(this.recordSigner());
  }

  async init({ agent }: InitOptions = {}): Promise<KeyInfo> {
    if (this.#finder.environment.hasSigner) {
      throw new RyeError('already_exists', 'RYE_SIGNING_KEY already holds your signing key', {
        hint: 'Unset RYE_SIGNING_KEY to create one in your user space.',
      });
    }
    const { signing, privateKey, publicKey, agentKey } = this.#user;
    const held = agent === undefined ? undefined : agentKeyNamed(agent, this.#finder.agent);
    const { privatePem, publicPem } = held
      ? { privatePem: `${held.fingerprint}\n`, publicPem: held.key.pem }
      : generateKeyPair();
    makeKeyDirectory(signing);
    // a public key without its private key is the rest of a lost key; never overwrite it
    const isThere = [publicKey, privateKey, agentKey].some((path) => readKeyFile(path));
    if (isThere || !createKeyFile(held ? agentKey : privateKey, privatePem)) {
      throw new RyeError('already_exists', `a signing key already exists in ${signing}`, {
        hint: 'To replace it, run: rye keys rotate',
        details: { path: signing },
      });
    }
    writeKeyFile(publicKey, publicPem);
    this.#finder.forget();
    return this.#info(this.signer().keyId, 'own', { owner: 'self', path: publicKey });
  }

  list(): readonly KeyInfo[] {
    const own = this.#finder.ownKey();
    const listed = new Set<string>();
    const keys: KeyInfo[] = [];
    const add = (keyId: string, source: KeyInfo['source'], path: string): void => {
      if (listed.has(keyId)) return;
      listed.add(keyId);
      keys.push(this.#describe(keyId, source, path));
    };
    const { environment } = this.#finder;
    if (own !== undefined)
      add(own.keyId, 'own', environment.hasSigner ? 'RYE_SIGNING_KEY' : this.#user.publicKey);
    for (const name of environment.trusted().keys()) add(name, 'environment', 'RYE_TRUSTED_KEYS');
    for (const name of keyFileNames(this.#user.trusted))
      add(name, 'user', this.#user.trustedFile(name));
    for (const name of keyFileNames(this.#project.trusted))
      add(name, 'project', this.#project.trustedFile(name));
    for (const name of keyFileNames(this.#user.revoked))
      add(name, 'user', this.#user.revokedFile(name));
    for (const space of [this.#user, this.#project])
      for (const name of keyFileNames(space.certified)) {
        if (this.find(name).status === 'unknown') continue;
        add(name, space === this.#user ? 'user' : 'project', space.certifiedFile(name));
      }
    for (const { successor, path } of this.#finder.rotations())
      add(successor.keyId, path.startsWith(this.#user.rotated) ? 'user' : 'project', path);
    return keys;
  }

  export(): { readonly key_id: string; readonly pem: string } {
    const own = this.#finder.ownKey() ?? this.#finder.loadSigner();
    return { key_id: own.keyId, pem: own.pem };
  }

  inspect(text: string, options: OfferOptions = {}): OfferedKey {
    const { key, owner, scope, projects } = this.#scoped(readOfferedKey(text, options, this));
    return {
      key_id: key.keyId,
      owner,
      scope: describeScope(scope),
      ...(projects === undefined ? {} : { projects }),
    };
  }

  async trust(text: string, options: TrustOptions = {}): Promise<KeyInfo> {
    const offered = readOfferedKey(text, options, this);
    const { keyId } = offered.key;
    const before = this.find(keyId);
    if (before.status === 'revoked') {
      throw new RyeError('key_revoked', `key ${keyId} was revoked and cannot be trusted again`, {
        hint: 'Ask its owner for their new key.',
      });
    }
    if (this.#finder.ownKey()?.keyId === keyId)
      return this.#describe(keyId, 'own', this.#user.publicKey);
    const path = this.#user.trustedFile(keyId);
    await this.#writeTrusted(this.#scoped(offered));
    rmSync(this.#user.untrustedFile(keyId), { force: true });
    return this.#describe(keyId, 'user', path);
  }

  async untrust(keyId: string): Promise<KeyInfo> {
    const { source, trusted } = this.#known(keyId);
    if (source === 'own' || source === 'environment') {
      const hint = source === 'own' ? 'rye keys rotate, then rye keys revoke' : 'RYE_TRUSTED_KEYS';
      throw new RyeError(
        'usage',
        `${keyId} is ${source === 'own' ? 'your own key' : 'a key of the environment'}`,
        {
          hint: `To stop using it: ${hint}`,
        },
      );
    }
    // first, because a statement of rotation may still vouch for the key
    makeKeyDirectory(this.#user.untrusted);
    writeKeyFile(this.#user.untrustedFile(keyId), `# ${isoSeconds(this.#now())}\n`);
    const path = this.#user.trustedFile(keyId);
    rmSync(path, { force: true });
    return this.#describe(keyId, trusted ? 'user' : source, path);
  }

  async revoke(keyId: string, options: RevokeOptions = {}): Promise<KeyInfo> {
    const info = this.#known(keyId);
    this.#changes.revoke(info, options);
    return this.#describe(keyId, info.source, info.path);
  }

  async importRevocation(text: string): Promise<KeyInfo> {
    const info = this.#known(this.#changes.import(text));
    return this.#describe(info.key_id, info.source, info.path);
  }

  async rotate(): Promise<KeyRotation> {
    if (this.#finder.environment.hasSigner) {
      throw new RyeError('usage', 'the signing key comes from RYE_SIGNING_KEY', {
        hint: 'Rotate it where it was made, then change the variable.',
      });
    }
    // another process may have rotated it
    this.#finder.forget();
    const old = this.#finder.loadSigner();
    const { archive, privateKey, publicKey, agentKey } = this.#user;
    const kept = this.#finder.isInAgent() ? undefined : this.#finder.readPrivate();
    const pair = generateKeyPair();
    const next = readPrivateKey(pair.privatePem, 'the new key');
    // The keyring works after each step: the new key is trusted before it signs anything.
    makeKeyDirectory(join(archive, old.keyId));
    if (kept) writeKeyFile(join(archive, old.keyId, 'private_key.pem'), kept);
    writeKeyFile(join(archive, old.keyId, 'public_key.pem'), old.pem);
    await this.#writeTrusted({ key: next, owner: 'self', scope: FULL_SCOPE }, old);
    const before = { key: old, owner: 'self (until rotated)', scope: FULL_SCOPE };
    await this.#writeTrusted(before, next);
    this.#changes.recordRotation(old, next);
    writeKeyFile(privateKey, kept ? this.#asProtectedAs(kept, pair.privatePem) : pair.privatePem);
    writeKeyFile(publicKey, pair.publicPem);
    rmSync(agentKey, { force: true });
    this.#finder.forget();
    await this.#resign(old.keyId, next);
    const statement = this.#changes.publish().find((path) => path.includes(old.keyId));
    return compact({ old_key_id: old.keyId, key_id: next.keyId, statement });
  }

  async protect(passphrase: string | undefined): Promise<KeyInfo> {
    if (this.#finder.environment.hasSigner) {
      throw new RyeError('usage', 'the signing key comes from RYE_SIGNING_KEY', {
        hint: 'Unset RYE_SIGNING_KEY to protect the key in your user space.',
      });
    }
    if (this.#finder.isInAgent()) {
      throw new RyeError('usage', 'the signing key is in ssh-agent: rye has no private key', {
        hint: 'Protect its file: ssh-keygen -p -f FILE',
      });
    }
    const { privateKey, publicKey } = this.#user;
    const open = this.#finder.openPrivate();
    const { keyId, pem } = readPrivateKey(open, privateKey);
    // the public key alone tells whom to trust, so that only signing asks for the passphrase
    if (readKeyFile(publicKey) === undefined) writeKeyFile(publicKey, pem);
    writeKeyFile(privateKey, passphrase === undefined ? open : protectKey(open, passphrase));
    this.#finder.forget();
    return this.#info(keyId, 'own', { owner: 'self', path: publicKey });
  }

  #asProtectedAs(before: string, pem: string): string {
    return isProtected(before) ? protectKey(pem, this.#finder.passphrase()) : pem;
  }

  async publish(): Promise<readonly string[]> {
    return this.#changes.publish();
  }

  adopt(): void {
    this.#changes.adopt();
  }

  #known(keyId: string): KeyInfo {
    assertKeyId(keyId);
    const known = this.list();
    const info = known.find(({ key_id }) => key_id === keyId);
    if (info !== undefined) return info;
    const ids = known.map(({ key_id }) => key_id);
    throw new RyeError('key_not_found', `unknown key ${keyId}`, {
      hint: didYouMean(keyId, ids) ?? 'Run: rye keys list',
    });
  }

  /** Limits a key that the project contains to that project, unless the user already trusts it everywhere. */
  #scoped(offered: TrustedKeyFile): TrustedKeyFile {
    const { key, owner, scope } = offered;
    const path = this.#user.trustedFile(key.keyId);
    const known = this.#finder.readTrusted(key.keyId, path)?.file;
    const isTheProjects =
      this.#project.trusted !== this.#user.trusted &&
      readKeyFile(this.#project.trustedFile(key.keyId)) !== undefined;
    if (!isTheProjects || (known !== undefined && known.projects === undefined))
      return { key, owner, scope };
    return {
      key,
      owner,
      scope,
      projects: [...new Set([...(known?.projects ?? []), this.#finder.realProject()])],
    };
  }

  async #writeTrusted(file: TrustedKeyFile, signer?: SigningKey): Promise<void> {
    const key = signer ?? (this.#finder.ownKey() === undefined ? undefined : this.signer());
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

  #describe(keyId: string, source: KeyInfo['source'], path: string): KeyInfo {
    if (source === 'own') return this.#info(keyId, source, { owner: 'self', path });
    try {
      const { owner = 'unknown', projects } = this.#fileOf(keyId, path) ?? {};
      return this.#info(keyId, source, { owner, path, ...(projects && { projects }) });
    } catch (error) {
      return this.#info(keyId, source, { owner: 'unknown', path, problem: messageOf(error) });
    }
  }

  /** Returns the file with the owner of a key; a successor belongs to the owner of the old key. */
  #fileOf(keyId: string, path: string): Pick<TrustedKeyFile, 'owner' | 'projects'> | undefined {
    const given = this.#finder.environment.trusted().get(keyId);
    if (given !== undefined) return given;
    const found = this.find(keyId);
    const old = found.status === 'trusted' ? found.rotatedFrom : undefined;
    if (old === this.#finder.ownKey()?.keyId && old !== undefined) return { owner: 'self' };
    if (old !== undefined) return this.#fileOf(old, this.#user.trustedFile(old));
    const isKey = [this.#user.trusted, this.#project.trusted].includes(dirname(path));
    const text = isKey ? readKeyFile(path)?.text : undefined;
    return text === undefined ? undefined : parseTrustedKey(text, path);
  }

  #info(
    keyId: string,
    source: KeyInfo['source'],
    details: Pick<KeyInfo, 'owner' | 'path' | 'problem' | 'projects'>,
  ): KeyInfo {
    const found = this.find(keyId);
    const reason = details.problem ?? (found.status === 'unknown' ? found.reason : undefined);
    const date = found.status === 'revoked' ? found.revokedAt : null;
    const from = found.status === 'trusted' ? found.rotatedFrom : undefined;
    const { ids, types } = (found.status === 'trusted' && found.scope) || FULL_SCOPE;
    return {
      key_id: keyId,
      owner: details.owner,
      source,
      trusted: found.status === 'trusted',
      revoked: found.status === 'revoked',
      ...(date === null ? {} : { revoked_at: date }),
      path: details.path,
      purposes: found.status === 'trusted' ? (found.scope ?? FULL_SCOPE).purposes : [],
      ...(ids === undefined ? {} : { only: ids }),
      ...(types === undefined ? {} : { types }),
      ...(details.projects === undefined ? {} : { projects: details.projects }),
      ...(from === undefined ? {} : { rotated_from: from }),
      ...(reason === undefined ? {} : { problem: reason }),
    };
  }
}
