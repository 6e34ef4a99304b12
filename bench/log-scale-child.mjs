// One sample of `log-scale.mjs`: opens a log, as rye does or with the least that any reader must do, and prints what it took.
import { createReadStream } from 'node:fs';
import process from 'node:process';
import readline from 'node:readline';
import { pathToFileURL } from 'node:url';

const [kind, ...args] = process.argv.slice(2);

async function floor([file]) {
  const lines = [];
  const input = createReadStream(file);
  for await (const line of readline.createInterface({ input, crlfDelay: Infinity })) {
    lines.push(JSON.parse(line));
  }
  return lines;
}

async function rye(
  [, folder, threadId],
  { createFileLogStore, buildTree, foldContext, startedCallIds },
) {
  const store = createFileLogStore({ threadsPath: folder });
  const { events } = await store.readEntries(threadId);
  return foldContext(buildTree(events), { startedCalls: startedCallIds(events) });
}

const parts = kind === 'rye' ? await import(pathToFileURL(args[0]).href) : undefined;
const startedCpu = process.cpuUsage();
const started = performance.now();
const kept = await (kind === 'rye' ? rye(args, parts) : floor(args));
const elapsed = performance.now() - started;
const { user, system } = process.cpuUsage(startedCpu);
const { maxRSS } = process.resourceUsage();
if (kept === undefined) throw new Error('nothing was read');
process.stdout.write(
  JSON.stringify({ ms: elapsed, cpu: (user + system) / 1000, mb: maxRSS / 1024 }),
);
