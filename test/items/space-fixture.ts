import { mkdirSync, mkdtempSync, realpathSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { systemManifest } from '../../scripts/system-manifest.mjs';
import type { GlobCompiler } from '../../src/kernel/items/signing-fs.ts';
import { openSpaces, type Spaces } from '../../src/kernel/items/spaces-fs.ts';
import type { VerifyContext } from '../../src/kernel/items/verified-fs.ts';
import { compileGlob as compile } from '../../src/kernel/tools/glob-pattern.ts';
import { openKeyring } from '../../src/kernel/trust/keyring-fs.ts';
import type { Keyring, SigningKey } from '../../src/kernel/trust/keys.ts';
import { signText } from '../../src/kernel/trust/signature.ts';
import { signatureStyle } from '../../src/kernel/trust/signature-line.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { subjectOfPath } from '../helpers/signed-files.ts';

export const NOW = Date.UTC(2026, 0, 2, 3, 4, 5);

export const compileGlob: GlobCompiler = async (pattern) => compile(pattern);

/** Three real spaces in a temporary folder, with a keyring. */
export interface SpaceFixture {
  readonly base: string;
  readonly projectPath: string;
  readonly userSpacePath: string;
  readonly systemPath: string;
  readonly spaces: Spaces;
  readonly keyring: Keyring;
  /** Writes below a space's `.ai` and returns the path. */
  write(space: 'project' | 'user' | 'system', path: string, text: string | Uint8Array): string;
  /** Like `write`, signed by `key`, or by the user's own. */
  writeSigned(space: 'project' | 'user', path: string, text: string, key?: SigningKey): string;
  /** Keyring, spaces and the manifest of the system space as it is now. */
  context(): VerifyContext;
  remove(): void;
}

export function makeSpaces(): SpaceFixture {
  const base = realpathSync(mkdtempSync(join(tmpdir(), 'rye-spaces-')));
  const folders = {
    project: join(base, 'project'),
    user: join(base, 'home'),
    system: join(base, 'system'),
  };
  for (const folder of Object.values(folders)) mkdirSync(join(folder, '.ai'), { recursive: true });
  const paths = {
    projectPath: folders.project,
    userSpacePath: folders.user,
    systemPath: folders.system,
  };
  const spaces = openSpaces(paths);
  const keyring = openKeyring({ ...paths, now: () => NOW });
  const fixture: SpaceFixture = {
    base,
    ...paths,
    spaces,
    keyring,
    write(space, path, text) {
      const target = join(folders[space], '.ai', path);
      mkdirSync(dirname(target), { recursive: true });
      writeFileSync(target, text);
      return target;
    },
    writeSigned(space, path, text, key = keyring.signer()) {
      const style = signatureStyle(path.slice(path.lastIndexOf('.'))) ?? 'hash';
      const subject = subjectOfPath(path);
      return fixture.write(space, path, signText({ text, style, subject, key, now: NOW }));
    },
    context: () => ({ spaces, keyring, manifest: systemManifest(folders.system) }),
    remove: () => removeFolder(base),
  };
  return fixture;
}
