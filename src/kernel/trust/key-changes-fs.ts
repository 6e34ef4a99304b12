import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { isoSeconds } from '../core/clock.ts';
import { RyeError } from '../core/errors.ts';
import { compact } from '../core/json.ts';
import { makeFolders } from '../disk/folders.ts';
import { writeWhole } from '../disk/whole-file.ts';
import type { KeyFinder } from './key-finder-fs.ts';
import {
  parseRevocation,
  renderRevocation,
  revocationSubject,
  rotationText,
} from './key-statements.ts';
import {
  createKeyFile,
  keyFileNames,
  makeKeyDirectory,
  readKeyFile,
  readStatement,
  writeKeyFile,
} from './key-store-fs.ts';
import type { KeyInfo, RevokeOptions, SigningKey } from './keys.ts';
import { signText } from './signature.ts';

interface ChangeOptions {
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  readonly signer: () => SigningKey;
}

/** Writes the statements about keys: rotations and revocations, in the user space and in the project. */
export class KeyChanges {
  readonly #finder: KeyFinder;
  readonly #now: () => number;
  readonly #signer: () => SigningKey;

  constructor(finder: KeyFinder, { now, signer }: ChangeOptions) {
    this.#finder = finder;
    this.#now = now;
    this.#signer = signer;
  }

  /** Keeps the statement of a rotation in the user space. A revoked key can no longer name its successor. */
  recordRotation(old: SigningKey, next: SigningKey): void {
    const { user } = this.#finder;
    if (this.#finder.find(old.keyId).status === 'revoked') return;
    makeKeyDirectory(user.rotated);
    writeKeyFile(user.rotatedFile(old.keyId), rotationText(old, next, this.#now()));
  }

  /** Writes a revocation that names the present successor of the key, and publishes that of an own key. */
  revoke({ key_id: keyId, revoked, revoked_at: before }: KeyInfo, options: RevokeOptions): void {
    const { user } = this.#finder;
    const now = this.#now();
    const since = readSince(options.since, now);
    const isEarlier = before !== undefined && Date.parse(since) < Date.parse(before);
    if (!revoked || (options.since !== undefined && isEarlier)) {
      const text = renderRevocation(
        compact({
          keyId,
          revokedAt: since,
          reason: options.reason ?? '',
          successor: this.#successorOf(keyId),
        }),
      );
      const subject = revocationSubject(keyId);
      const signed = signText({ text, style: 'hash', subject, key: this.#signer(), now });
      makeKeyDirectory(user.revoked);
      writeKeyFile(user.revokedFile(keyId), signed);
    }
    this.publish();
  }

  /** Obeys a revocation that its key or a successor signed; returns the fingerprint. */
  import(text: string): string {
    const revocation = parseRevocation(text, 'the revocation');
    const { keyId } = revocation;
    const found = this.#finder.find(keyId);
    const key = found.status === 'unknown' ? undefined : found.key;
    if (key === undefined) {
      throw new RyeError('key_not_found', `unknown key ${keyId}`, {
        hint: 'You do not trust this key, so nothing has to be revoked.',
      });
    }
    if (!this.#finder.provesRevocation(text, revocation, key)) {
      const message = `neither key ${keyId} nor its successor signed this revocation`;
      throw new RyeError('signature_invalid', message, {
        hint: `To revoke the key for yourself: rye keys revoke ${keyId}`,
      });
    }
    this.#keepRevocation(keyId, text);
    return keyId;
  }

  /** Writes the statements about own keys that the project does not have; returns their paths. */
  publish(): readonly string[] {
    const { user, project, projectPath } = this.#finder;
    if (user.trusted === project.trusted || !existsSync(join(projectPath, '.ai'))) return [];
    const written: string[] = [];
    const write = (from: string, to: string, folder: string): void => {
      const text = readKeyFile(from)?.text;
      if (text === undefined || readStatement(to) === text) return;
      makeFolders(folder);
      writeWhole(to, text, { follow: false });
      written.push(to);
    };
    for (const name of keyFileNames(user.rotated)) {
      if (this.#isOwn(name))
        write(user.rotatedFile(name), project.rotatedFile(name), project.rotated);
    }
    for (const name of keyFileNames(user.revoked)) {
      if (this.#isOwn(name))
        write(user.revokedFile(name), project.revokedFile(name), project.revoked);
    }
    return written;
  }

  adopt(): void {
    const { user, project } = this.#finder;
    for (const rotation of this.#finder.rotations()) {
      const { keyId, successor, text, path } = rotation;
      if (path !== project.rotatedFile(keyId) || path === user.rotatedFile(keyId)) continue;
      const found = this.#finder.find(successor.keyId);
      if (found.status !== 'trusted' || found.rotatedFrom !== keyId) continue;
      makeKeyDirectory(user.rotated);
      writeKeyFile(user.rotatedFile(keyId), text);
    }
    for (const name of keyFileNames(project.revoked)) {
      const found = this.#finder.find(name);
      const key = found.status === 'revoked' ? found.key : undefined;
      const published = key && this.#finder.publishedRevocation(key);
      if (published) this.#keepRevocation(name, published.text);
    }
  }

  /** Keeps a revocation of someone else unless an own one is there already. */
  #keepRevocation(keyId: string, text: string): void {
    const { user } = this.#finder;
    const path = user.revokedFile(keyId);
    if (readKeyFile(path) !== undefined) return;
    makeKeyDirectory(user.revoked);
    createKeyFile(path, text);
  }

  #successorOf(keyId: string): string | undefined {
    return this.#finder
      .rotations()
      .map(({ successor }) => successor.keyId)
      .find((next) => {
        const found = this.#finder.find(next);
        const isOwn = this.#finder.ownKey()?.keyId === next;
        const isNamed = this.#finder.isSuccessor(keyId, next);
        return isNamed && (isOwn || found.status === 'trusted');
      });
  }

  /** True for the signing key, and for those that were rotated away here. */
  #isOwn(keyId: string): boolean {
    const { user } = this.#finder;
    return this.#finder.ownKey()?.keyId === keyId || existsSync(join(user.archive, keyId));
  }
}

/** Reads the time from which a key no longer counts. */
function readSince(text: string | undefined, now: number): string {
  if (text === undefined) return isoSeconds(now);
  const time = /^\d{4}-\d\d-\d\d(?:T|$)/.test(text) ? Date.parse(text) : Number.NaN;
  if (!Number.isNaN(time) && time <= now) return isoSeconds(time);
  const problem = Number.isNaN(time) ? 'is not a date' : 'is in the future';
  throw new RyeError('invalid_input', `${JSON.stringify(text)} ${problem}`, {
    hint: 'Write the date or time of the first misuse, such as 2026-01-31 or 2026-01-31T08:00:00Z.',
  });
}
