import { existsSync, realpathSync } from 'node:fs';
import { messageOf, RyeError } from '../core/errors.ts';
import { certificateOf, parseCertificate } from './certificates.ts';
import { type EnvironmentKeys, environmentKeys } from './environment-keys-fs.ts';
import { checkTrustedKey, parseTrustedKey, type TrustedKeyFile } from './key-files.ts';
import {
  isRevokedBy,
  parseRevocation,
  parseRotation,
  type Revocation,
  type Rotation,
  rotationTime,
} from './key-statements.ts';
import {
  keyFileNames,
  keyPaths,
  readKeyFile,
  readPrivateFile,
  readStatement,
  readTrustFile,
} from './key-store-fs.ts';
import {
  isKeyId,
  type KeyLookup,
  type KeyStatus,
  type RevokedKey,
  readPrivateKey,
  readPublicKey,
  type SigningKey,
  type VerifyingKey,
} from './keys.ts';
import type { FindRunKey } from './payloads.ts';
import { isProtected, openProtected } from './protected-key.ts';
import { FULL_SCOPE, WORKER_SCOPE } from './scope.ts';
import { type AskAgent, agentSigner, sshAgent } from './ssh-agent.ts';

export interface KeyringOptions {
  /** Folder that contains the user's `.ai`. */
  readonly userSpacePath: string;
  /** Folder that contains the project's `.ai`. */
  readonly projectPath: string;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** May have `RYE_SIGNING_KEY` and `RYE_TRUSTED_KEYS`. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** The key of a run without a signing key, or of an earlier one: it is valid for records of threads alone. */
  readonly recordKey?: VerifyingKey | SigningKey | undefined;
  /** Returns the key of a run whose record was signed afterwards. Absent: there are no such threads. */
  readonly runKey?: FindRunKey;
  /** Returns the passphrase of a protected signing key. May throw `key_unsafe`; absent: there is none. */
  readonly passphrase?: () => string;
}

/** A statement of rotation with its text. */
interface FoundRotation extends Rotation {
  readonly text: string;
  readonly path: string;
}

type Trusted = Extract<KeyStatus, { readonly status: 'trusted' }>;

/** Finds the keys of a user in a project; reads files only on demand, and sees changes by other processes. */
export class KeyFinder implements KeyLookup {
  readonly user: ReturnType<typeof keyPaths>;
  readonly project: ReturnType<typeof keyPaths>;
  readonly projectPath: string;
  readonly recordKey: VerifyingKey | SigningKey | undefined;
  readonly #now: () => number;
  #signer: SigningKey | undefined;
  #own: VerifyingKey | undefined;
  readonly #trusted = new Map<string, { readonly text: string; readonly file: TrustedKeyFile }>();

  readonly #askPassphrase: () => string;
  #passphrase: string | undefined;
  readonly environment: EnvironmentKeys;
  readonly agent: AskAgent;
  readonly #statements = new Map<string, { readonly text: string; readonly value: Rotation }>();

  constructor({ userSpacePath, projectPath, env = {}, now, ...options }: KeyringOptions) {
    const { passphrase, recordKey } = options;
    this.recordKey = recordKey;
    this.#askPassphrase = passphrase ?? noPassphrase;
    this.#now = now;
    this.environment = environmentKeys(env);
    this.agent = sshAgent(env);
    this.user = keyPaths(userSpacePath);
    this.project = keyPaths(projectPath);
    this.projectPath = projectPath;
  }

  find(keyId: string): KeyStatus {
    return this.#find(keyId, new Set());
  }

  #find(keyId: string, seen: ReadonlySet<string>): KeyStatus {
    if (!isKeyId(keyId)) return { status: 'unknown' };
    const found = this.#unrevoked(keyId, seen);
    const key = found.status === 'trusted' ? found.key : undefined;
    const revocation = this.#revocationOf(keyId, key);
    if (revocation === undefined) return found;
    if (found.status !== 'trusted') return { status: 'revoked', ...revocation };
    return {
      status: 'revoked',
      ...revocation,
      key: found.key,
      ...(found.scope && { scope: found.scope }),
    };
  }

  /** Returns the status without a look at revocations. */
  #unrevoked(keyId: string, seen: ReadonlySet<string>): KeyStatus {
    const own = this.ownKey();
    if (own?.keyId === keyId) return { status: 'trusted', key: own };
    if (this.recordKey?.keyId === keyId)
      return { status: 'trusted', key: this.recordKey, scope: WORKER_SCOPE };
    const home = this.environment.hasSigner ? this.#homeKey() : undefined;
    if (home?.keyId === keyId) return { status: 'trusted', key: home };
    const given = this.environment.trusted().get(keyId);
    if (given !== undefined) return { status: 'trusted', key: given.key, scope: given.scope };
    // keys that vouch for each other in a cycle are not trusted
    if (seen.has(keyId)) return { status: 'unknown', reason: 'its key files vouch for each other' };
    const vouching = new Set([...seen, keyId]);
    let direct: KeyStatus;
    try {
      direct = this.#findTrusted(keyId, vouching);
    } catch (error) {
      direct = { status: 'unknown', reason: messageOf(error) };
    }
    if (direct.status === 'trusted') return direct;
    return this.#successor(keyId, vouching) ?? this.#certified(keyId, vouching) ?? direct;
  }

  /** Returns the key of a fleet's worker that a trusted root has certified, for records of threads alone. */
  #certified(keyId: string, seen: ReadonlySet<string>): KeyStatus | undefined {
    let expired: KeyStatus | undefined;
    for (const space of [this.user, this.project]) {
      const path = space.certifiedFile(keyId);
      const text = readStatement(path);
      const found = text && readOrUndefined(() => parseCertificate(text, path));
      if (!text || !found || found.key.keyId !== keyId || seen.has(found.root)) continue;
      const root = this.#find(found.root, seen);
      if (root.status !== 'trusted' || root.scope?.purposes.includes('certify') !== true) continue;
      if (!certificateOf(text, found, root.key)) continue;
      const { key, notAfter } = found;
      if (this.#now() < Date.parse(notAfter))
        return { status: 'trusted', key, scope: WORKER_SCOPE };
      // what it signed in time counts for ever; another space may have a renewed certificate
      expired ??= { status: 'revoked', revokedAt: notAfter, key, scope: WORKER_SCOPE };
    }
    return expired;
  }

  /** Returns a key that a trusted key named as its successor, with the scope of the old key. */
  #successor(keyId: string, seen: ReadonlySet<string>): KeyStatus | undefined {
    const found = this.rotations().flatMap((rotation): Trusted[] => {
      if (rotation.successor.keyId !== keyId || seen.has(rotation.keyId)) return [];
      const old = this.#find(rotation.keyId, seen);
      if (old.status === 'unknown' || old.key === undefined) return [];
      // once the old key is revoked, someone else may have it
      if (old.status === 'revoked' && old.successor !== keyId) return [];
      if (rotationTime(rotation.text, rotation, old.key) === undefined) return [];
      const { scope = FULL_SCOPE } = old;
      return [{ status: 'trusted', key: rotation.successor, scope, rotatedFrom: rotation.keyId }];
    });
    // a limited key must not narrow what another key vouches for
    const first =
      found.find(({ scope }) => scope?.ids === undefined && scope?.types === undefined) ?? found[0];
    if (first === undefined || !existsSync(this.user.untrustedFile(keyId))) return first;
    return { status: 'unknown', reason: 'you stopped trusting it' };
  }

  /** Returns statements of rotation, not yet checked; one that the user space keeps comes before the project's. */
  rotations(): readonly FoundRotation[] {
    const known = new Map<string, FoundRotation>();
    for (const space of [this.user, this.project]) {
      for (const name of keyFileNames(space.rotated).slice(0, MAX_ROTATIONS)) {
        const found = known.has(name) ? undefined : this.#rotation(name, space.rotatedFile(name));
        if (found !== undefined) known.set(name, found);
      }
    }
    return [...known.values()];
  }

  #rotation(keyId: string, path: string): FoundRotation | undefined {
    const text = readStatement(path);
    if (text === undefined) return undefined;
    const cached = this.#statements.get(path);
    try {
      const value = cached?.text === text ? cached.value : parseRotation(text, path);
      this.#statements.set(path, { text, value });
      return value.keyId === keyId ? { ...value, text, path } : undefined;
    } catch (error) {
      if (error instanceof RyeError) return undefined;
      throw error;
    }
  }

  /** Returns the revocation of a key: the user's own counts always, one of the project if it proves its origin. */
  #revocationOf(
    keyId: string,
    key: VerifyingKey | undefined,
  ): Pick<RevokedKey, 'revokedAt' | 'successor'> | undefined {
    const path = this.user.revokedFile(keyId);
    const own = readKeyFile(path)?.text;
    const published = key && this.publishedRevocation(key);
    if (own === undefined) return published?.revocation;
    const mine = readOrUndefined(() => parseRevocation(own, path));
    const { revokedAt: theirs = null } = published?.revocation ?? {};
    const { revokedAt = null, successor } = mine ?? {};
    const isEarlier =
      theirs !== null && revokedAt !== null && Date.parse(theirs) < Date.parse(revokedAt);
    return { revokedAt: isEarlier ? theirs : revokedAt, ...(successor && { successor }) };
  }

  /** True if the user knows the old key and it named `next` in its statement. */
  isSuccessor(keyId: string, next: string): boolean {
    const found = this.find(keyId);
    const old = found.status === 'unknown' ? undefined : found.key;
    const rotation = this.rotations().find((one) => one.keyId === keyId);
    if (old === undefined || rotation?.successor.keyId !== next) return false;
    return rotationTime(rotation.text, rotation, old) !== undefined;
  }

  /** Returns the project's revocation of a key if the key or one of its successors signed it. */
  publishedRevocation(
    key: VerifyingKey,
  ): { readonly revocation: Revocation; readonly text: string } | undefined {
    const path = this.project.revokedFile(key.keyId);
    const text = readStatement(path);
    const revocation = text && readOrUndefined(() => parseRevocation(text, path));
    return text && revocation && this.provesRevocation(text, revocation, key)
      ? { revocation, text }
      : undefined;
  }

  /** True if the key itself or one of its successors signed the revocation. */
  provesRevocation(text: string, { keyId }: Revocation, key: VerifyingKey): boolean {
    if (keyId !== key.keyId) return false;
    const rotations = this.rotations();
    const seen = new Set<string>();
    let signer: VerifyingKey | undefined = key;
    while (signer !== undefined && !seen.has(signer.keyId)) {
      if (isRevokedBy(text, keyId, signer)) return true;
      seen.add(signer.keyId);
      const old: VerifyingKey = signer;
      signer = rotations.find(
        (one) => one.keyId === old.keyId && rotationTime(one.text, one, old) !== undefined,
      )?.successor;
    }
    return false;
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
    this.#own ??= this.environment.signer() ?? this.#homeKey();
    return this.#own;
  }

  /** Returns the key of the user space. */
  #homeKey(): VerifyingKey | undefined {
    const { privateKey, publicKey } = this.user;
    const text = readKeyFile(publicKey)?.text;
    if (text !== undefined) return ownKey(() => readPublicKey(text, publicKey));
    return readKeyFile(privateKey) === undefined ? undefined : this.#homeSigner();
  }

  #homeSigner(): SigningKey {
    if (this.isInAgent()) {
      const text = readKeyFile(this.user.publicKey)?.text ?? '';
      return agentSigner(
        ownKey(() => readPublicKey(text, this.user.publicKey)),
        this.agent,
      );
    }
    return ownKey(() => readPrivateKey(this.openPrivate(), this.user.privateKey));
  }

  loadSigner(): SigningKey {
    this.#signer ??= this.environment.signer() ?? this.#homeSigner();
    return this.#signer;
  }

  /** True if the signing key of the user space is one of ssh-agent. */
  isInAgent(): boolean {
    return readKeyFile(this.user.agentKey) !== undefined;
  }

  /** Returns the passphrase, asked for once. */
  passphrase(): string {
    this.#passphrase ??= this.#askPassphrase();
    return this.#passphrase;
  }

  /** Returns the private key of the user space without protection. */
  openPrivate(): string {
    const text = this.readPrivate();
    return isProtected(text) ? openProtected(text, this.passphrase()) : text;
  }

  readPrivate(): string {
    const text = readPrivateFile(this.user.privateKey);
    if (text !== undefined) return text;
    throw new RyeError('key_missing', `no signing key in ${this.user.signing}`, {
      hint: 'Create one: rye keys init. A run can do without: rye run --unsigned-record',
      details: { path: this.user.privateKey },
    });
  }

  forget(): void {
    this.#signer = undefined;
    this.#own = undefined;
  }

  realProject(): string {
    try {
      return realpathSync(this.projectPath);
    } catch {
      return this.projectPath;
    }
  }
}

function noPassphrase(): never {
  throw new RyeError('key_unsafe', 'the signing key is protected by a passphrase', {
    hint: 'Use the command line, or remove the protection: rye keys protect --off',
  });
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

/** Bounds the work for statements, which a project brings along. */
const MAX_ROTATIONS = 200;

/** A statement counts only if it can be read; the user's own revocation counts even if its date is unknown. */
function readOrUndefined<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof RyeError) return undefined;
    throw error;
  }
}
