import { existsSync } from 'node:fs';
import { RyeError } from '../core/errors.ts';
import { parseCertificate } from './certificates.ts';
import { createKeyFile, keyPaths, makeKeyDirectory } from './key-store-fs.ts';
import { isKeyId } from './keys.ts';

/** Writes certificates that a user space lacks. Whom they make trusted is decided when a key is looked up. */
export function keepCertificatesIn(
  userSpacePath: string,
  certificates: ReadonlyMap<string, string>,
): void {
  const { certified, certifiedFile } = keyPaths(userSpacePath);
  for (const [keyId, text] of certificates) {
    if (!isKeyId(keyId) || existsSync(certifiedFile(keyId)) || !isCertificate(text, keyId))
      continue;
    makeKeyDirectory(certified);
    createKeyFile(certifiedFile(keyId), text);
  }
}

function isCertificate(text: string, keyId: string): boolean {
  try {
    return parseCertificate(text, 'the certificate').key.keyId === keyId;
  } catch (error) {
    if (error instanceof RyeError) return false;
    throw error;
  }
}
