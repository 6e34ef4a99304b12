// Large logs. Opening one and folding its context beside a readline + JSON.parse loop that keeps every line; each sample
// is a separate process that reads the same file. Target: 1.1×, and no more memory. The tail of 100 MB beside doing nothing:
// 60 ms. Its verification beside sha256sum: 2×.
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { build } from 'esbuild';
import { interleave, median, ms, record, row, times } from './harness.mjs';

const CHILD = fileURLToPath(new URL('log-scale-child.mjs', import.meta.url));
const ROOT = fileURLToPath(new URL('..', import.meta.url));
const SIZES = [
  { entries: 10_000, rounds: 9 },
  { entries: 100_000, rounds: 5 },
  { entries: 500_000, rounds: 3 },
];
const HUNDRED_MB = 100 * 1024 * 1024;
const TURN = 12;

const OPENING = [
  "export { createFileLogStore } from './src/kernel/storage/files/log-store.ts';",
  "export { buildTree } from './src/kernel/log/tree.ts';",
  "export { foldContext, startedCallIds } from './src/kernel/log/context.ts';",
];
const SIGNING = [
  "export { generateKeyPair, readPrivateKey } from './src/kernel/trust/keys.ts';",
  "export { payloadSigner, payloadVerifier } from './src/kernel/trust/payloads.ts';",
];

/** The rooms under test as one file, so that a child loads nothing else. */
async function bundle(outfile, contents) {
  await build({
    stdin: { contents: contents.join('\n'), resolveDir: ROOT },
    outfile,
    bundle: true,
    platform: 'node',
    target: 'node20',
    format: 'esm',
    logLevel: 'warning',
    banner: {
      js: "import{createRequire as make}from'node:module';const require=make(import.meta.url);",
    },
  });
}

function storeIn(folder, { createFileLogStore }) {
  let now = Date.parse('2026-02-17T10:00:56.123Z');
  let ids = 0;
  // ids are random in life: neighbors have nothing in common
  const entryId = () => {
    ids += 1;
    return Math.imul(ids, 0x9e3779b1).toString(16).replace('-', 'f').padStart(16, '5');
  };
  return createFileLogStore({
    threadsPath: folder,
    clock: {
      now: () => {
        now += 7;
        return now;
      },
    },
    ids: { entryId, uuid: entryId },
    owners: { state: () => 'gone' },
  });
}

function text(value) {
  return [{ type: 'text', text: value }];
}

/** The events of the `at`th entry of a working agent: a question, then calls with their results, then an answer. */
function entryDrafts(at) {
  const step = at % TURN;
  const message = (value) => ({ event_type: 'message', payload: { message: value, turn: at } });
  const name = 'rye_file_system_read';
  if (step === 0) {
    return [
      message({ role: 'user', content: text(`Question ${at}. ${'What is wrong? '.repeat(9)}`) }),
    ];
  }
  if (step === TURN - 1) {
    const content = text('Nothing has to be changed there, as the tests show. '.repeat(5));
    return [message({ role: 'assistant', content, stop_reason: 'end_turn' })];
  }
  if (step % 2 === 0) {
    const content = text('export const value = compute(input);\n'.repeat(12));
    return [
      message({ role: 'tool_result', call_id: `call_${at - 1}`, name, content, outcome: 'ok' }),
    ];
  }
  const input = { path: `src/file${at}.ts`, limit: 200 };
  const call = { type: 'tool_call', call_id: `call_${at}`, name, input };
  const content = [...text('I look at the next file first.'), call];
  const started = { call_id: call.call_id, tool: 'rye/file-system/read', name, input, turn: at };
  return [
    message({ role: 'assistant', content, stop_reason: 'tool_use' }),
    { event_type: 'tool_call_start', payload: started },
  ];
}

function entriesOfTurn(at) {
  return [Array.from({ length: TURN }, (_, step) => entryDrafts(at + step)).flat()];
}

/** The batches of a turn as a thread writes them, each with its signature: streamed text, a call, and a result as long as a source file. */
function streamedTurn(at) {
  const delta = { event_type: 'token_delta', payload: { text: 'some words of the answer, ' } };
  const [answer, started] = entryDrafts(1 + TURN * at);
  const [result] = entryDrafts(2 + TURN * at);
  const { message } = result.payload;
  const content = [{ type: 'text', text: message.content[0].text.repeat(24) }];
  const long = { ...result, payload: { ...result.payload, message: { ...message, content } } };
  return [[...Array.from({ length: 40 }, () => delta), answer], [started], [long]];
}

/** Writes a log until `isDone` returns true, signed as a thread signs its log. */
async function writeLog(store, signer, threadId, { isDone, turnBatches }) {
  const header = {
    event_type: 'thread',
    version: 1,
    thread_id: threadId,
    directive: 'bench',
    created_at: '2026-02-17T10:00:56.123Z',
  };
  const owner = { id: `bench/${process.pid}/0` };
  const writer = await store.create(header, { signer, durability: 'off', owner, epoch: 1 });
  for (let at = 0; !isDone(at, writer); at += TURN) {
    for (const batch of turnBatches(at)) writer.append(batch);
    writer.checkpoint();
  }
  writer.close();
}

function sample(args) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [CHILD, ...args], {
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(stderr);
  return JSON.parse(stdout);
}

async function openRow(folder, bundled, { entries, rounds }) {
  const threadId = `open-${entries}`;
  const file = path.join(folder, threadId, 'transcript.jsonl');
  const samples = await interleave(
    {
      floor: () => sample(['floor', file]),
      rye: () => sample(['rye', bundled, folder, threadId]),
    },
    rounds,
  );
  const of = (name, member) => median(samples[name].map((each) => each[member]));
  record(`${entries} entries, CPU over readline`, of('rye', 'cpu') / of('floor', 'cpu'));
  const cell = (member, print) =>
    `${print(of('rye', member))} ${times(of('rye', member) / of('floor', member))}`;
  row(
    `  ${entries} entries, ${(statSync(file).size / 1e6).toFixed(0)} MB`,
    ms(of('floor', 'ms')),
    cell('ms', ms),
    cell('cpu', ms),
    cell('mb', (value) => `${value.toFixed(0)} MB`),
  );
}

async function timed(action) {
  const started = performance.now();
  await action();
  return performance.now() - started;
}

/** A key as a thread signs with it. */
function signingKey({ generateKeyPair, readPrivateKey, payloadSigner, payloadVerifier }) {
  const key = readPrivateKey(generateKeyPair().privatePem, 'bench');
  const keys = { find: () => ({ status: 'trusted', key }) };
  return { signer: payloadSigner(key), verifier: payloadVerifier(keys) };
}

/** Measures the tail, the events after a seq, one entry by its id, and verification of 100 MB. */
async function largeRows(folder, parts, { signer, verifier }) {
  const store = storeIn(folder, parts);
  await writeLog(store, signer, 'large', {
    isDone: (_, writer) => writer.state().bytes >= HUNDRED_MB,
    turnBatches: streamedTurn,
  });
  const file = store.location('large');
  const { events, checkpoints } = await store.verify('large', { verifier });
  const ids = (await store.readEntries('large')).events.flatMap(({ id }) => id ?? []);
  const someId = ids[Math.floor(ids.length / 2)];
  const index = path.join(path.dirname(file), 'transcript.index');
  const taken = await interleave(
    {
      sha256sum: () =>
        timed(() => {
          if (spawnSync('sha256sum', [file]).status !== 0) throw new Error('no sha256sum');
        }),
      verify: () =>
        timed(async () => {
          const verdict = await store.verify('large', { verifier });
          if (!verdict.ok) throw new Error(verdict.reason);
        }),
      scan: () =>
        timed(async () => {
          rmSync(index, { force: true });
          if ('entry' in (await store.lookUp('large', someId))) throw new Error('not scanned');
        }),
      indexed: () =>
        timed(async () => {
          if (!('entry' in (await store.lookUp('large', someId)))) throw new Error('no index');
        }),
      tail: () => timed(async () => await store.tail('large', 20)),
      since: () =>
        timed(async () => {
          let seen = 0;
          for await (const _ of store.since('large', events - 20)) seen += 1;
          if (seen !== 20) throw new Error(`${seen} events after the seq`);
        }),
    },
    9,
  );
  const of = (name) => median(taken[name]);
  row(`a log of 100 MB, ${checkpoints} checkpoints`, 'time', 'sha256sum', 'ratio');
  record('verify over sha256sum', of('verify') / of('sha256sum'));
  row('  verify', ms(of('verify')), ms(of('sha256sum')), times(of('verify') / of('sha256sum')));
  row('  tail 20', ms(of('tail')));
  row('  since, 20 events before the end', ms(of('since')));
  row('  an entry by its id, which makes the index', ms(of('scan')));
  const size = `${(statSync(index).size / 1e6).toFixed(1)} MB`;
  row(`  an entry by its id, through ${size} of index`, ms(of('indexed')));
}

export async function run() {
  const folder = mkdtempSync(path.join(tmpdir(), 'rye-bench-logs-'));
  try {
    const bundled = path.join(folder, 'bundle.mjs');
    await bundle(bundled, OPENING);
    const own = path.join(folder, 'own.mjs');
    await bundle(own, [...OPENING, ...SIGNING]);
    const parts = await import(pathToFileURL(own).href);
    const key = signingKey(parts);
    mkdirSync(path.join(folder, 'logs'));
    const logs = path.join(folder, 'logs');
    row('open a log and fold its context', 'floor', 'rye', 'CPU', 'memory');
    for (const size of SIZES) {
      const store = storeIn(logs, parts);
      await writeLog(store, key.signer, `open-${size.entries}`, {
        isDone: (at) => at >= size.entries,
        turnBatches: entriesOfTurn,
      });
      await openRow(logs, bundled, size);
    }
    await largeRows(logs, parts, key);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
