import { createServer } from 'node:http';
import { RyeError } from '../../../kernel/core/errors.ts';
import type { FleetWorker } from '../worker.ts';

/** Serves the counts of a worker in the text format of Prometheus. Throws `usage` for an address that cannot be used. */
export async function serveMetrics(
  address: string,
  worker: FleetWorker,
): Promise<{ close(): void }> {
  const [, host = '', port = ''] = /^(.+):(\d{1,5})$/.exec(address) ?? [];
  if (host === '' || Number(port) > 65_535) {
    throw new RyeError('usage', `--metrics: ${JSON.stringify(address)} is not HOST:PORT`, {
      hint: 'Use an address such as 127.0.0.1:9464.',
    });
  }
  const server = createServer((request, response) => {
    if (request.method !== 'GET' || request.url !== '/metrics') {
      response.writeHead(404).end();
      return;
    }
    void (async () => {
      try {
        const text = await metricsOf(worker);
        response.writeHead(200, { 'content-type': 'text/plain; version=0.0.4' }).end(text);
      } catch {
        response.writeHead(503).end();
      }
    })();
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) => {
      reject(
        new RyeError('usage', `--metrics: ${address} cannot be used: ${error.message}`, {
          hint: 'Choose another port.',
        }),
      );
    });
    server.listen(Number(port), host, resolve);
  });
  return {
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}

async function metricsOf(worker: FleetWorker): Promise<string> {
  const { counts, running } = worker;
  const queues = await worker.queues();
  const lines = [
    '# TYPE rye_legs_running gauge',
    `rye_legs_running ${running}`,
    ...Object.entries(counts).flatMap(([name, value]) => [
      `# TYPE rye_${name}_total counter`,
      `rye_${name}_total ${value}`,
    ]),
    '# TYPE rye_queue_legs gauge',
    ...queues.flatMap(({ name, queued, delayed, running: busy }) => [
      `rye_queue_legs{queue="${name}",state="queued"} ${queued}`,
      `rye_queue_legs{queue="${name}",state="delayed"} ${delayed}`,
      `rye_queue_legs{queue="${name}",state="running"} ${busy}`,
    ]),
  ];
  return `${lines.join('\n')}\n`;
}
