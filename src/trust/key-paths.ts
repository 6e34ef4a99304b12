import { join } from 'node:path';

/** Where a space keeps its keys. */
export function keyPaths(spacePath: string) {
  const root = join(spacePath, '.ai', 'config', 'keys');
  const signing = join(root, 'signing');
  return {
    signing,
    privateKey: join(signing, 'private_key.pem'),
    publicKey: join(signing, 'public_key.pem'),
    trusted: join(root, 'trusted'),
    revoked: join(root, 'revoked'),
    archive: join(root, 'archive'),
    trustedFile: (keyId: string) => join(root, 'trusted', `${keyId}.toml`),
    revokedFile: (keyId: string) => join(root, 'revoked', `${keyId}.toml`),
  };
}
