// Writes a large log, or reads it, in a process whose heap has no room for the log as one text.
import { foldContext } from '../../src/kernel/log/context.ts';
import { buildTree } from '../../src/kernel/log/tree.ts';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import { delta, headerFor, testKey, userMessage } from '../log/support.ts';

const [kind, projectPath = '', bytes = '0'] = process.argv.slice(2);
const THREAD = 'memory/large';
const PIECE = 32 * 1024;
let ids = 0;
const nextId = (): string => {
  ids += 1;
  return `id${ids}`;
};
const { logs, owners } = openStore({
  projectPath,
  clock: { now: () => 1_771_322_456_000, monotonic: () => 0, sleep: async () => {} },
  ids: { entryId: nextId, uuid: nextId },
});
const { signer, verifier } = testKey();
const owner = owners.self();
const options = { signer, verifier, durability: 'off', owner, epoch: 1 } as const;

/** Answers that streamed in, each with its message. */
async function write(): Promise<void> {
  const writer = await logs.create(headerFor(THREAD), options);
  for (let turn = 1; writer.state().bytes < Number(bytes); turn += 1) {
    writer.append([userMessage(`turn ${turn}`)]);
    for (let piece = 0; piece < 16; piece += 1)
      writer.append([delta(`${turn}`.padEnd(PIECE, '.'))]);
    writer.checkpoint();
  }
  await writer.close();
}

async function countOf(events: AsyncIterable<unknown>): Promise<number> {
  let count = 0;
  for await (const _ of events) count += 1;
  return count;
}

/** Readers that need not keep the events. */
async function stream(): Promise<object> {
  const verified = await logs.verify(THREAD, { verifier });
  const { events } = await logs.readEntries(THREAD);
  const [last] = await logs.tail(THREAD, 1);
  const all = await countOf(logs.since(THREAD, 0));
  const found = await logs.lookUp(THREAD, 'id1');
  const writer = await logs.reopen(THREAD, options);
  writer.append([userMessage('one more')]);
  await writer.close();
  return {
    verified: verified.ok,
    all: all === last?.seq,
    messages: foldContext(buildTree(events)).messages.length === ids - 1,
    found: 'opened' in found && found.opened.events.length === events.length,
    // the entry and its checkpoint
    reopened: (await logs.tail(THREAD, 1))[0]?.seq === all + 2,
  };
}

/** Readers that keep all events. */
async function keep(): Promise<object> {
  const { events, problems } = await logs.read(THREAD);
  return { all: events.at(-1)?.seq === events.length, problems: problems.length };
}

if (kind === 'stream') await write();
process.stdout.write(JSON.stringify(await (kind === 'stream' ? stream() : keep())));
