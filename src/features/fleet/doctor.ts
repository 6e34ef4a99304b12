import type { DoctorLine } from '../../kernel/app/api/rye.ts';
import { configuredUrl } from '../../kernel/app/configured-store.ts';
import { namesStore } from '../../kernel/app/store-setting.ts';
import type { Workspace } from '../../kernel/app/workspace.ts';
import { messageOf, RyeError } from '../../kernel/core/errors.ts';
import type { FleetThreads } from '../../kernel/storage/fleet-threads.ts';
import { parseStoreUrl } from '../../kernel/storage/store-url.ts';
import { connectFleet, type FleetConnection } from './connection.ts';
import { loadEngine } from './dbos/engine.ts';
import { openPool } from './pool-key.ts';
import { inspectServer, openWorkerLeases, type ServerReport } from './postgres/open-postgres.ts';
import { isCertified, namedRoots, trustedCertificate } from './worker-proof.ts';

declare const __RYE_VERSION__: string;

type Finding = Omit<DoctorLine, 'check'>;

/** Differences of clocks that shift approvals and schedules noticeably. */
const CLOCK_MS = 2000;
const MANY_CONNECTIONS = 0.8;
/** A leg that waits for longer has no worker, or too few. */
const OLD_LEG_MS = 300_000;
const EXPIRES_MS = 7 * 86_400_000;
const INSTALL = 'Install them beside rye: npm install @dbos-inc/dbos-sdk pg';
/** Connections of one worker and a few of its legs. */
const CONNECTIONS_OF_WORKER = 10;

/** Looks at the fleet of a project: its server, workers, queues and keys. Returns nothing for a project without one. */
export async function examineFleet(workspace: Workspace): Promise<readonly DoctorLine[]> {
  const url = namesStore(workspace.options) ? await configuredUrl(workspace) : undefined;
  if (url === undefined) return [];
  const lines: DoctorLine[] = [];
  const add = async (check: string, look: () => Finding | Promise<Finding>): Promise<void> => {
    lines.push({ check: `fleet: ${check}`, ...(await foundBy(look)) });
  };
  await add('packages', () => {
    loadEngine();
    return { status: 'ok', detail: 'installed' };
  });
  if (lines.some(isFailed)) return lines;
  let server: ServerReport | undefined;
  await add('server', async () => {
    server = await inspected(url);
    return reachable(server, url);
  });
  if (!server) return lines;
  const found = server;
  await add('durability', () => durability(found));
  await add('pooler', () => pooler(found));
  await add('connections', () => connections(found));
  await add('clock', () => clock(found));
  await add('tables', () => tables(found));
  // another version's tables are not read
  if (found.isStandby || found.schema === null || found.schema > found.knownSchema) return lines;
  const connection = connectFleet({ url, clock: workspace.clock, ids: workspace.ids });
  try {
    await add('workers', async () => await workers(url, workspace, connection.threads));
    await add('queues', async () => await queues(connection, workspace.clock.now()));
    await add('root', async () => await root(connection.threads, workspace));
    await add('secret inputs', async () => {
      const { poolId } = openPool(await connection.threads.pools(), workspace.keyring);
      return { status: 'ok', detail: `sealed to the key ${poolId} of the workers` };
    });
  } finally {
    await connection.close();
  }
  return lines;
}

async function foundBy(look: () => Finding | Promise<Finding>): Promise<Finding> {
  try {
    return await look();
  } catch (error) {
    const hint = error instanceof RyeError ? error.hint : undefined;
    return { status: 'fail', detail: messageOf(error), ...(hint === undefined ? {} : { hint }) };
  }
}

function isFailed({ status }: DoctorLine): boolean {
  return status === 'fail';
}

/** The driver's errors may have the address with its password; their messages do not. */
async function inspected(url: string): Promise<ServerReport> {
  const { shown } = parseStoreUrl(url);
  try {
    return await inspectServer(url);
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : '';
    if (code === 'MODULE_NOT_FOUND')
      throw new RyeError('fleet_unavailable', 'the driver of PostgreSQL is missing', {
        hint: INSTALL,
      });
    const reason = messageOf(error) || code || 'no connection';
    throw new RyeError('fleet_unavailable', `${shown} cannot be used: ${reason}`, {
      hint: hintOf(code),
    });
  }
}

function hintOf(code: string): string {
  switch (code) {
    case '28P01':
    case '28000':
      return 'Check the user and the password, also in ~/.pgpass, then run: rye doctor';
    case '3D000':
      return 'Make the database: createdb NAME. Then: rye fleet init --database URL';
    case '53300':
      return 'Raise max_connections of the server, or stop workers: rye fleet drain WORKER';
    case '08P01':
      return 'A pooler refuses options of the connection: connect to the server itself, or to a pool by session.';
    default:
      return 'Start the server, or correct the address: rye config get store.url';
  }
}

function reachable({ version, roundTripMs, isStandby }: ServerReport, url: string): Finding {
  const { shown } = parseStoreUrl(url);
  const detail = `PostgreSQL ${version} at ${shown}, ${roundTripMs} ms away`;
  if (!isStandby) return { status: 'ok', detail };
  return {
    status: 'fail',
    detail: `${detail}, is a standby, which takes no writes`,
    hint: 'Name the primary: target_session_attrs=read-write in the URL, then rye sign config store',
  };
}

function durability({ synchronousCommit, synchronousStandbys, standbys }: ServerReport): Finding {
  if (synchronousCommit === 'off' || synchronousCommit === 'local')
    return {
      status: synchronousCommit === 'off' ? 'fail' : 'warn',
      detail: `synchronous_commit is ${synchronousCommit}: a crash may lose what threads were told is durable`,
      hint: "In psql: ALTER DATABASE NAME SET synchronous_commit = 'on'",
    };
  const detail = `synchronous_commit is ${synchronousCommit}`;
  if (synchronousStandbys > 0)
    return { status: 'ok', detail: `${detail}, with ${synchronousStandbys} synchronous standby` };
  const has = standbys === 0 ? 'no standby' : 'no synchronous standby';
  return {
    status: 'warn',
    detail: `${detail}, ${has}: losing the server, or a failover, may lose the last commits`,
    hint: 'For money and approvals set synchronous_standby_names; see docs/fleet.md.',
  };
}

function pooler({ isPooledByTransaction }: ServerReport): Finding {
  if (!isPooledByTransaction) return { status: 'ok', detail: 'none, or one by session' };
  return {
    status: 'fail',
    detail:
      'a pooler hands connections out by transaction: notices and settings of a session are lost',
    hint: 'Set pool_mode = session for this database, or connect to the server itself.',
  };
}

function connections({ connections: { used, limit } }: ServerReport): Finding {
  const detail = `${used} of ${limit} in use`;
  if (used < limit * MANY_CONNECTIONS && limit - used >= CONNECTIONS_OF_WORKER)
    return { status: 'ok', detail };
  return {
    status: 'warn',
    detail: `${detail}: the next worker may find none`,
    hint: 'Raise max_connections of the server, or give workers fewer --slots.',
  };
}

function clock({ clock: { server, here } }: ServerReport): Finding {
  const ahead = Math.round(server - here);
  const detail = `the server is ${Math.abs(ahead)} ms ${ahead < 0 ? 'slow' : 'fast'}`;
  if (Math.abs(ahead) < CLOCK_MS) return { status: 'ok', detail };
  return {
    status: 'warn',
    detail: `${detail}; leases use its clock alone, approvals and certificates that of each machine`,
    hint: 'Synchronize the clocks, such as with: timedatectl set-ntp true',
  };
}

function tables({ schema, knownSchema }: ServerReport): Finding {
  if (schema === null)
    return {
      status: 'fail',
      detail: 'the database has no tables of rye',
      hint: 'Make them: rye fleet init --database URL',
    };
  if (schema === knownSchema) return { status: 'ok', detail: `version ${schema}` };
  if (schema < knownSchema)
    return {
      status: 'warn',
      detail: `version ${schema}; this rye has ${knownSchema} and changes them with its next use, which older workers refuse`,
      hint: 'Update the workers: rye fleet workers',
    };
  return {
    status: 'fail',
    detail: `version ${schema} is newer than ${knownSchema}, which this rye knows`,
    hint: 'Update rye: npm install --global --ignore-scripts ./rye-threads-VERSION.tgz',
  };
}

const STRANGERS =
  'If they are yours, update and enroll them again. If not, change the password of the database.';

async function workers(
  url: string,
  { keyring, clock: time }: Workspace,
  threads: FleetThreads,
): Promise<Finding> {
  const leases = openWorkerLeases(url);
  try {
    const rows = await leases.list();
    const living = rows.filter(({ is_expired: isExpired }) => !isExpired);
    if (living.length === 0)
      return {
        status: 'warn',
        detail: rows.length === 0 ? 'none' : `none alive; ${rows.length} silent`,
        hint: 'Start one: rye fleet enroll --label NAME > worker.token; rye worker --token worker.token',
      };
    const silent = rows.length - living.length;
    const known = { certificates: await threads.certificates(), keys: keyring, now: time.now() };
    const strangers = living.filter((row) => !isCertified(row, known));
    const others = [...new Set(living.map(({ version }) => version))].filter(
      (version) => version !== __RYE_VERSION__,
    );
    const detail = [
      `${living.length} alive`,
      ...(silent > 0 ? [`${silent} silent, removed soon`] : []),
      ...(others.length > 0
        ? [`some run rye ${others.join(', ')}, this is ${__RYE_VERSION__}`]
        : []),
      ...(strangers.length > 0
        ? [`not certified by a root you trust: ${strangers.map((row) => row.worker_id).join(', ')}`]
        : []),
    ].join(', ');
    if (strangers.length > 0) return { status: 'warn', detail, hint: STRANGERS };
    return others.length === 0
      ? { status: 'ok', detail }
      : { status: 'warn', detail, hint: 'Update them one by one: rye fleet drain WORKER' };
  } finally {
    leases.close();
  }
}

async function queues({ queue }: FleetConnection, now: number): Promise<Finding> {
  const states = await queue.queues();
  const sum = (count: (state: (typeof states)[number]) => number): number =>
    states.reduce((total, state) => total + count(state), 0);
  const paused = states.filter(({ limits }) => limits.global === 0).map(({ name }) => name);
  const oldest = states.flatMap(({ oldestAt, name }) =>
    oldestAt === null ? [] : [{ name, ageMs: now - Date.parse(oldestAt) }],
  );
  const worst = oldest.toSorted((a, b) => b.ageMs - a.ageMs)[0];
  const failed = sum((state) => state.failed);
  const detail = [
    `${sum((state) => state.queued)} queued, ${sum((state) => state.running)} running`,
    ...(worst ? [`the oldest waits for ${Math.round(worst.ageMs / 1000)} s in ${worst.name}`] : []),
    ...(failed > 0 ? [`${failed} failed`] : []),
    ...(paused.length > 0 ? [`paused: ${paused.join(', ')}`] : []),
  ].join('; ');
  const [first] = paused;
  if (first !== undefined)
    return { status: 'warn', detail, hint: `Start its legs again: rye fleet pause ${first} --off` };
  if (worst && worst.ageMs > OLD_LEG_MS)
    return {
      status: 'warn',
      detail,
      hint: `Start a worker: rye worker --token FILE --queue ${worst.name}`,
    };
  return failed === 0
    ? { status: 'ok', detail }
    : { status: 'warn', detail, hint: 'See: rye fleet queues' };
}

async function root(threads: FleetThreads, workspace: Workspace): Promise<Finding> {
  const { keyring, clock: time } = workspace;
  const roots = new Set<string>();
  const unknown = new Set<string>();
  let next: number | undefined;
  for (const [keyId, text] of await threads.certificates()) {
    const certificate = trustedCertificate(text, keyId, keyring);
    if (!certificate) {
      const [named = 'of a damaged certificate'] = namedRoots(new Map([[keyId, text]]), []);
      unknown.add(named);
      continue;
    }
    roots.add(certificate.root);
    const end = Date.parse(certificate.notAfter);
    if (end > time.now()) next = Math.min(next ?? end, end);
  }
  if (roots.size === 0)
    return unknown.size === 0
      ? {
          status: 'warn',
          detail: 'no worker was enrolled yet',
          hint: 'Enroll one: rye fleet enroll --label NAME > worker.token',
        }
      : {
          status: 'fail',
          detail: `you do not trust the root ${[...unknown].join(', ')}, so nothing that its workers sign is accepted here`,
          hint: 'Where the fleet was made: rye fleet root > root.pem. Here: rye keys trust root.pem --for certify',
        };
  const detail = `${[...roots].join(', ')} certifies the workers`;
  if (next !== undefined && next - time.now() < EXPIRES_MS)
    return {
      status: 'warn',
      detail: `${detail}; a certificate ends ${new Date(next).toISOString().slice(0, 10)}`,
      hint: 'Enroll the worker again: rye fleet enroll --label NAME > worker.token',
    };
  return { status: 'ok', detail };
}
