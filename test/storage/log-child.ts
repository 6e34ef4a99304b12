// A writer process for fault tests: appends for ever, and tells on stdout what is durable.
import { writeSync } from 'node:fs';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import { delta, headerFor, testKey, userMessage } from '../log/support.ts';

const [projectPath = '', threadId = '', privatePem = ''] = process.argv.slice(2);
let ids = 0;
const nextId = (): string => {
  ids += 1;
  return `id${ids}`;
};
const store = openStore({
  projectPath,
  clock: { now: () => 1_771_322_456_000, monotonic: () => 0, sleep: async () => {} },
  ids: { entryId: nextId, uuid: nextId },
});
const writer = await store.logs.create(headerFor(threadId), {
  signer: testKey(privatePem).signer,
  durability: 'turn',
  owner: store.owners.self(),
  epoch: 1,
});

async function codeAndMessage(effect: () => unknown): Promise<{
  readonly code: string;
  readonly message: string;
}> {
  try {
    await effect();
  } catch (error) {
    const { code, message } = error as { code: string; message: string };
    return { code, message };
  }
  return { code: 'none', message: '' };
}

const failure = await codeAndMessage(async () => {
  for (let turn = 1; ; turn += 1) {
    writer.append([userMessage(`turn ${turn} ${'x'.repeat(turn % 700)}`), delta('a'), delta('b')]);
    if (turn % 5 === 0) writer.checkpoint();
    if (turn % 3 === 0) await writer.sync();
    writeSync(1, `${writer.state().events}\n`);
  }
});
const later = [
  () => writer.append([delta('x')]),
  async () => await writer.sync(),
  () => writer.checkpoint(),
];
const codes: string[] = [];
for (const effect of later) codes.push((await codeAndMessage(effect)).code);
const report = { ...failure, later: codes };
await writer.close();
writeSync(2, JSON.stringify(report));
