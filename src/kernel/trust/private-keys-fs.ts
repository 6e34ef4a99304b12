import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { keyPaths } from './key-store-fs.ts';
import { privateKeyForms } from './private-key-forms.ts';

interface KeyPlaces {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly userSpacePath: string;
}

/**
 * Returns a look at every form of every private key that rye knows: the key of the environment, and the keys of the user space, of
 * earlier keys and of fleets. Files are read again when a key was made. Those that cannot be read hold none.
 */
export function knownPrivateKeys(): (places: KeyPlaces) => readonly string[] {
  let state: string | undefined;
  let forms: readonly string[] = [];
  return ({ env, userSpacePath }) => {
    const { signing, archive, fleet } = keyPaths(userSpacePath);
    const { RYE_SIGNING_KEY: given = '' } = env;
    const times = [signing, archive, fleet].map(timeOf);
    const now = [given, userSpacePath, ...times].join();
    if (now === state) return forms;
    const isPath = given.trim() !== '' && !given.includes('-----BEGIN');
    const texts = [
      isPath ? textOf(given.trim()) : given,
      ...[signing, archive, fleet].flatMap(pemFiles).map(textOf),
    ];
    state = now;
    forms = [...new Set(texts.flatMap(privateKeyForms))];
    return forms;
  };
}

function timeOf(path: string): number {
  try {
    return statSync(path).mtimeMs;
  } catch {
    return 0;
  }
}

function pemFiles(folder: string): readonly string[] {
  try {
    return readdirSync(folder, { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.pem'))
      .map((name) => join(folder, name));
  } catch {
    return [];
  }
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    return '';
  }
}
