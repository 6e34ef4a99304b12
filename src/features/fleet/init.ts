import { existsSync, readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import type {
  EnrolledWorker,
  EnrollOptions,
  FleetInit,
  FleetMade,
  FleetRoot,
} from '../../kernel/app/api/fleet.ts';
import { configuredUrl } from '../../kernel/app/configured-store.ts';
import { ignoreFile } from '../../kernel/app/init.ts';
import { ensureKey } from '../../kernel/app/signing-key.ts';
import type { Workspace } from '../../kernel/app/workspace.ts';
import { isoSeconds, isoTime } from '../../kernel/core/clock.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import { writeInside } from '../../kernel/disk/inside.ts';
import type { FleetThreads } from '../../kernel/storage/fleet-threads.ts';
import { parseStoreUrl } from '../../kernel/storage/store-url.ts';
import { certificateText } from '../../kernel/trust/certificates.ts';
import {
  createKeyFile,
  keyPaths,
  makeKeyDirectory,
  readPrivateFile,
  writeKeyFile,
} from '../../kernel/trust/key-store-fs.ts';
import { generateKeyPair, readPrivateKey, type SigningKey } from '../../kernel/trust/keys.ts';
import { signText } from '../../kernel/trust/signature.ts';
import { connectFleet } from './connection.ts';
import { makePoolKey, poolStatement, readPoolKey } from './pool-key.ts';
import { tokenText } from './token.ts';
import { namedRoots } from './worker-proof.ts';

const NAME = 'store';
/** Threads that wait for longer than so many changes of the key lose their secret inputs. */
const MAX_POOL_KEYS = 5;
const PEM = /-----BEGIN PRIVATE KEY-----[^-]+-----END PRIVATE KEY-----\n/g;
const DAY_MS = 86_400_000;
const LABEL = /^[a-z0-9][a-z0-9._-]{0,39}$/;

/** Makes the tables of a fleet, its root key, and the configuration that names its store. Can be repeated. */
export async function initFleet(
  workspace: Workspace,
  { database, join: mayJoin = false }: FleetInit,
): Promise<FleetMade> {
  const url = parseStoreUrl(database);
  const path = join(workspace.options.projectPath, '.ai', 'config', `${NAME}.yaml`);
  await assertSameStore(workspace, path, url.href);
  await ensureKey(workspace);
  const { threads, queue, close } = connectFleet({
    url: url.href,
    clock: workspace.clock,
    ids: workspace.ids,
  });
  let root: SigningKey;
  try {
    const named = namedRoots(await threads.certificates(), await threads.pools());
    if (!mayJoin) await assertOwnFleet(workspace, url.shown, named);
    root = await rootKey(workspace, { isMade: true });
    await queue.queues();
    await poolKeys(workspace, { root, threads });
  } finally {
    await close();
  }
  const text = `# The store of the fleet. It applies only while it is signed: rye sign config store\nurl: ${JSON.stringify(url.href)}\n`;
  const signed = signText({
    text,
    style: 'yaml',
    subject: { kind: 'config', id: NAME },
    key: workspace.keyring.signer(),
    now: workspace.clock.now(),
  });
  writeInside(workspace.options.projectPath, path, signed, { mode: url.hasSecret ? 0o600 : 0o644 });
  if (url.hasSecret) await ignoreFile(workspace.options.projectPath, `.ai/config/${NAME}.yaml`);
  const { pinSigned } = await import('../../kernel/app/guards.ts');
  await pinSigned(workspace, [{ type: 'config', id: NAME }]);
  return { database: url.shown, root_key_id: root.keyId, config_path: path };
}

/** A second root is that of a stranger, or of a person who meant another database. */
async function assertOwnFleet(
  workspace: Workspace,
  database: string,
  named: ReadonlySet<string>,
): Promise<void> {
  const { fleetFile } = keyPaths(workspace.options.userSpacePath);
  const own = existsSync(fleetFile('root'))
    ? (await rootKey(workspace, { isMade: false })).keyId
    : undefined;
  if (named.size === 0 || (own !== undefined && named.has(own))) return;
  const roots = [...named].join(', ');
  throw new RyeError('already_exists', `${database} has the fleet of another root: ${roots}`, {
    hint: 'To use it, ask for its root.pem and run: rye keys trust root.pem --for certify. To add your root beside it: --join',
    details: { roots },
  });
}

/** A project whose threads are in another store would lose sight of them. */
async function assertSameStore(workspace: Workspace, path: string, url: string): Promise<void> {
  if (!existsSync(path)) return;
  const named = await configuredUrl(workspace);
  if (named === undefined || named === url) return;
  throw new RyeError('already_exists', `${path} names another store`, {
    hint: 'Remove the file to leave that store, then run the command again.',
    details: { path },
  });
}

/** Returns the root key of this user's fleets. Throws `key_missing` without one, unless it is to be made. */
async function rootKey(
  workspace: Workspace,
  { isMade }: { readonly isMade: boolean },
): Promise<SigningKey> {
  const { fleet, fleetFile } = keyPaths(workspace.options.userSpacePath);
  const path = fleetFile('root');
  if (!existsSync(path)) {
    if (!isMade) {
      throw new RyeError('key_missing', `${fleet} has no key of the fleet's root`, {
        hint: 'Make the fleet first: rye fleet init --database postgres://HOST/DATABASE',
      });
    }
    makeKeyDirectory(fleet);
    createKeyFile(path, generateKeyPair().privatePem);
  }
  const root = readPrivateKey(readPrivateFile(path) ?? '', path);
  const found = workspace.keyring.find(root.keyId);
  const isTrusted = found.status === 'trusted' && found.scope?.purposes.includes('certify');
  if (isTrusted !== true) {
    await workspace.keyring.trust(root.pem, {
      owner: `fleet of ${hostname()}`,
      purposes: ['certify'],
    });
  }
  return root;
}

/**
 * Returns the private keys that secret inputs are sealed to, the newest first. Makes the first one, or a new one, and keeps the
 * root's statement about the newest in the store.
 */
async function poolKeys(
  workspace: Workspace,
  {
    root,
    threads,
    isNew = false,
  }: { readonly root: SigningKey; readonly threads: FleetThreads; readonly isNew?: boolean },
): Promise<readonly string[]> {
  const path = keyPaths(workspace.options.userSpacePath).fleetFile('pool');
  const known = (readPrivateFile(path) ?? '').match(PEM) ?? [];
  const keys = known.length === 0 || isNew ? [makePoolKey(), ...known] : known;
  if (keys !== known) writeKeyFile(path, keys.slice(0, MAX_POOL_KEYS).join(''));
  const [newest = ''] = keys;
  const key = readPoolKey(newest);
  await threads.addPool(key.poolId, poolStatement(root, key, isoTime(workspace.clock.now())));
  return keys.slice(0, MAX_POOL_KEYS);
}

/** Makes the key and the certificate of a worker, and returns its token. */
export async function enrollWorker(
  workspace: Workspace,
  { label, days, newPoolKey = false }: EnrollOptions,
): Promise<EnrolledWorker> {
  if (!LABEL.test(label)) {
    throw new RyeError('invalid_input', `invalid label ${JSON.stringify(label)}`, {
      hint: 'Use up to 40 small letters, digits, dots, hyphens and underscores.',
    });
  }
  if (!Number.isInteger(days) || days < 1 || days > 3650) {
    throw new RyeError('invalid_input', `a worker cannot be enrolled for ${days} days`, {
      hint: 'Use a whole number from 1 to 3650.',
    });
  }
  const url = await storeOf(workspace);
  const root = await rootKey(workspace, { isMade: false });
  const pair = generateKeyPair();
  const key = readPrivateKey(pair.privatePem, 'the new key');
  const now = workspace.clock.now();
  const notAfter = now + days * DAY_MS;
  const certificate = certificateText(root, { key, labels: [label], notAfter, now });
  const { threads, close } = connectFleet({
    url,
    clock: workspace.clock,
    ids: workspace.ids,
  });
  let pool: readonly string[];
  try {
    await threads.addCertificate(key.keyId, certificate);
    pool = await poolKeys(workspace, { root, threads, isNew: newPoolKey });
  } finally {
    await close();
  }
  const { certified, certifiedFile } = keyPaths(workspace.options.userSpacePath);
  makeKeyDirectory(certified);
  writeKeyFile(certifiedFile(key.keyId), certificate);
  const token = tokenText({
    format: 1,
    url,
    label,
    key: pair.privatePem,
    certificate,
    root: root.pem,
    pool,
  });
  return { token, key_id: key.keyId, label, not_after: isoSeconds(notAfter) };
}

/** Returns the URL of the fleet's store. Throws `fleet_unavailable` if none is configured. */
export async function storeOf(workspace: Workspace): Promise<string> {
  const url = await configuredUrl(workspace);
  if (url !== undefined) return url;
  throw new RyeError('fleet_unavailable', 'the configuration names no store of a fleet', {
    hint: 'Make one: rye fleet init --database postgres://HOST/DATABASE, or try one here: rye fleet try',
  });
}

/** Reads a file with a token; `-` is not a file. */
export function readTokenFile(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new RyeError('file_not_found', `the token ${path} cannot be read`, {
      hint: 'Create one where the fleet was made: rye fleet enroll --label NAME > worker.token',
      cause: error,
    });
  }
}

/** Returns the public key of the root, in PEM form, for those who check what its workers signed. */
export async function rootOf(workspace: Workspace): Promise<FleetRoot> {
  const { keyId, pem } = await rootKey(workspace, { isMade: false });
  return { key_id: keyId, pem };
}
