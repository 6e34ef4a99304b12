import { realpathSync } from 'node:fs';
import { isAbsolute, join, relative, sep } from 'node:path';
import { CREDENTIALS } from './credentials.ts';
import { compileGlob } from './glob-pattern.ts';

/** Lists what no tool reads unless a signed `!pattern` of `tools.deny_read` opens it: the last pattern that fits decides. */
const DENY_READ: readonly string[] = [
  '.env*',
  '!.env.example',
  '*.pem',
  '*.key',
  '*.p12',
  '*.pfx',
  '*.ppk',
  '*.jks',
  '*.keystore',
  'id_rsa',
  'id_dsa',
  'id_ecdsa',
  'id_ecdsa_sk',
  'id_ed25519',
  'id_ed25519_sk',
  '.netrc',
  '.git-credentials',
  '.pypirc',
  '.htpasswd',
  '.git/config',
  ...CREDENTIALS.map((path) => `~/${path}`),
];

/** True for a file or folder that tools must not read. Both are real paths. */
export type DeniesRead = (real: string, project: string) => boolean;

interface Rule {
  readonly isOpen: boolean;
  readonly matches: (path: string) => boolean;
}

/** A rule about a path below a folder; undefined: below the project. */
interface PathRule extends Rule {
  readonly folder: string | undefined;
}

/** Names that are remembered: a search meets the same ones again and again. */
const MAX_NAMES = 10_000;

/**
 * Compiles patterns such as `.env*`, `secrets/**`, `~/.ssh` and `!.env.example`. A pattern without a slash fits a file or
 * folder of that name anywhere, one with a slash a path of the project, `~/` one of the homes. Letter case does not count.
 */
export function deniesRead(patterns: readonly string[], homes: readonly string[]): DeniesRead {
  const names: Rule[] = [];
  const paths: PathRule[] = [];
  for (const pattern of [...DENY_READ, ...patterns]) {
    const isOpen = pattern.startsWith('!');
    const plain = pattern
      .slice(isOpen ? 1 : 0)
      .replace(/\/+$/, '')
      .toLowerCase();
    if (plain === '') continue;
    if (!plain.includes('/')) names.push({ isOpen, matches: compileGlob(plain) });
    else for (const rule of pathRules(plain, homes)) paths.push({ isOpen, ...rule });
  }
  const known = new Map<string, boolean>();
  const isDeniedName = (name: string): boolean => {
    const before = known.get(name);
    if (before !== undefined) return before;
    const last = names.findLast(({ matches }) => matches(name));
    const isDenied = last?.isOpen === false;
    if (known.size >= MAX_NAMES) known.clear();
    known.set(name, isDenied);
    return isDenied;
  };
  return (real, project) => {
    const inside = below(real, project);
    const segments = (inside ?? real).toLowerCase().split('/');
    const last = paths.findLast(({ folder, matches }) => {
      const path = folder === undefined ? inside : below(real, folder);
      return path !== undefined && prefixes(path.toLowerCase()).some(matches);
    });
    if (last) return !last.isOpen;
    return segments.some(isDeniedName);
  };
}

function pathRules(plain: string, homes: readonly string[]): readonly Omit<PathRule, 'isOpen'>[] {
  if (plain.startsWith('~/')) {
    const matches = compileGlob(plain.slice(2));
    return homes.map((home) => ({ folder: realFolder(home), matches }));
  }
  if (plain.startsWith('/')) return [{ folder: sep, matches: compileGlob(plain.slice(1)) }];
  return [{ folder: undefined, matches: compileGlob(plain) }];
}

/** The path and the folders that it is in: what denies a folder denies what it holds. */
function prefixes(path: string): readonly string[] {
  const parts = path.split('/');
  return parts.map((_, at) => parts.slice(0, at + 1).join('/'));
}

/** The path below a folder with forward slashes; undefined if it is not in it. */
function below(path: string, folder: string): string | undefined {
  const rest = relative(folder, path);
  if (rest === '' || rest.startsWith(`..${sep}`) || rest === '..' || isAbsolute(rest))
    return undefined;
  return rest.split(sep).join('/');
}

function realFolder(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return join(path);
  }
}
