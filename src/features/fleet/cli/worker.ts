import path from 'node:path';
import { defineCommand, integer, list, text as textOption } from '../../../faces/cli/command.ts';
import { durationMs } from '../../../faces/cli/duration.ts';
import { printDocument, printLine } from '../../../faces/cli/output.ts';
import { workerFolders } from '../../../faces/cli/session.ts';
import type { Io } from '../../../faces/ui/io.ts';
import { jsonText, oneLine, shown } from '../../../faces/ui/visible.ts';
import { EXIT, RyeError } from '../../../kernel/core/errors.ts';
import { SOURCE_PROTOCOLS, type SourceProtocol } from '../../../kernel/core/plan.ts';
import type { WorkerReport } from '../worker.ts';

declare const __RYE_VERSION__: string;

const DEFAULT_SLOTS = 4;
const DEFAULT_DRAIN = '60s';
const DEFAULT_WAIT = '20s';
const DEFAULT_SOURCES = 'https,ssh';
const SOURCES = SOURCE_PROTOCOLS.join(', ');

/** Runs the legs of a fleet's threads until it is told to leave. */
export const worker = defineCommand({
  details: [
    'Run it in an empty folder: it creates the projects of its threads there. It trusts the keys of its user space:',
    'rye keys trust KEY --for sign,approve. Provider keys come from its environment. Commands run in the sandbox; to',
    'allow others, add -c resilience.tools.sandbox=off. SIGTERM ends it: legs stop at the next safe point and',
    'continue on another worker.',
  ].join('\n'),
  options: {
    token: textOption('FILE', 'The token of the worker, from rye fleet enroll; - for stdin'),
    queue: list('NAMES', 'Queues to work on, separated by commas (default: default)'),
    slots: integer('N', `Legs at once (default: ${DEFAULT_SLOTS})`),
    label: list('TEXT', 'Also show this label in rye fleet workers'),
    drain: textOption(
      'TIME',
      `Time for legs to reach a safe point when it ends (default: ${DEFAULT_DRAIN})`,
    ),
    waitInline: textOption(
      'TIME',
      `Time that a call waits for threads before its leg ends (default: ${DEFAULT_WAIT})`,
    ),
    sources: textOption(
      'LIST',
      `Protocols by which source trees may be fetched: ${SOURCES} (default: ${DEFAULT_SOURCES})`,
    ),
    metrics: textOption('HOST:PORT', 'Serve Prometheus metrics, such as on 127.0.0.1:9464'),
  },
  examples: [
    'rye worker --token worker.token',
    'rye worker --token worker.token --queue default,gpu --slots 8 --drain 60s --metrics 127.0.0.1:9464',
  ],
  run: async (call) => {
    const { io, options, global } = call;
    const [folder, userSpacePath] = workerFolders(call);
    const [{ FleetWorker }, { readToken }, { readTokenFile }] = await Promise.all([
      import('../worker.ts'),
      import('../token.ts'),
      import('../init.ts'),
    ]);
    if (options.token === undefined) {
      throw new RyeError('usage', 'missing option --token', {
        hint: 'Create one where the fleet was made: rye fleet enroll --label NAME > worker.token',
      });
    }
    const given =
      options.token === '-'
        ? await io.readStdin()
        : readTokenFile(path.resolve(io.cwd, options.token));
    const slots = options.slots ?? DEFAULT_SLOTS;
    const queues = options.queue.flatMap((names) => names.split(',')).map((name) => name.trim());
    const fleetWorker = new FleetWorker({
      token: readToken(given),
      queues: queues.length === 0 ? ['default'] : [...new Set(queues)],
      slots,
      labels: options.label,
      version: __RYE_VERSION__,
      folder,
      userSpacePath,
      env: io.env,
      configOverrides: global.config,
      waitInlineMs: durationMs('--wait-inline', options.waitInline ?? DEFAULT_WAIT),
      drainMs: durationMs('--drain', options.drain ?? DEFAULT_DRAIN),
      sources: sourcesIn(options.sources ?? DEFAULT_SOURCES),
      report: (line) => show(io, line, global.json),
    });
    const { serveMetrics } = await import('./metrics.ts');
    const metrics =
      options.metrics === undefined ? undefined : await serveMetrics(options.metrics, fleetWorker);
    const signal = io.cancellation();
    const leave = (): void => void fleetWorker.leave();
    signal.addEventListener('abort', leave, { once: true });
    if (global.json) printDocument(io, { event: 'worker', worker_id: fleetWorker.workerId, slots });
    else
      printLine(
        io,
        shown`worker ${oneLine(fleetWorker.workerId)} runs up to ${slots} legs; Ctrl-C ends it`,
      );
    try {
      await fleetWorker.run();
    } finally {
      metrics?.close();
    }
    if (!global.json)
      printLine(io, shown`worker ${oneLine(fleetWorker.workerId)} has left the fleet`);
    return EXIT.ok;
  },
});

function sourcesIn(text: string): readonly SourceProtocol[] {
  const names = text.split(',').map((name) => name.trim());
  const known = SOURCE_PROTOCOLS.filter((name) => names.includes(name));
  if (known.length === new Set(names).size) return known;
  throw new RyeError(
    'usage',
    `--sources: expected some of ${SOURCES}, got ${JSON.stringify(text)}`,
  );
}

function show(io: Io, { kind, thread_id: id, message }: WorkerReport, isJson: boolean): void {
  if (isJson) {
    io.stdout.writeRaw(
      `${jsonText({ event: kind, ...(id ? { thread_id: id } : {}), ...(message ? { message } : {}) })}\n`,
    );
    return;
  }
  const text = message ?? (kind === 'leg_started' ? `runs ${id}` : `ended the leg of ${id}`);
  const line = oneLine(message !== undefined && id !== undefined ? `${id}: ${text}` : text);
  if (kind === 'notice') io.stderr.write(shown`rye: ${line}\n`);
  else printLine(io, line);
}
