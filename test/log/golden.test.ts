import { cpSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock, systemIds } from '../../src/kernel/app/system.ts';
import { LOG_VERSION } from '../../src/kernel/log/codec.ts';
import { foldContext, type SessionContext, startedCallIds } from '../../src/kernel/log/context.ts';
import { buildTree } from '../../src/kernel/log/tree.ts';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import { type Lab, openLab } from '../attacks/lab.ts';
import { reply, type WireServer } from '../helpers/wire-server.ts';

// Made once by the first rye that wrote a version, and never again: what people have on their disks does not change
// either. `whole` is a completed thread with every edit, `part` a suspended copy of its beginning, `entries.jsonl`
// has every type of entry; contexts.json has the context of each for a model.
const GOLDEN = path.resolve(import.meta.dirname, '../golden/logs');
const versions = readdirSync(GOLDEN);

const THREADS = { whole: 'completed', part: 'suspended' } as const;

interface Golden {
  readonly leaf_id: string;
  readonly labels: Record<string, string>;
  readonly context: Pick<SessionContext, 'system' | 'tools' | 'settings' | 'messages'>;
}

let lab: Lab;
let server: WireServer;
beforeEach(async () => {
  lab = await openLab();
  server = await lab.model(() => reply('Going on.'));
});
afterEach(async () => await lab.remove());

function contexts(version: string): Record<string, Golden> {
  const text = readFileSync(path.join(GOLDEN, version, 'contexts.json'), 'utf8');
  return JSON.parse(text) as Record<string, Golden>;
}

/** Puts a golden thread into the lab as if it had been run there. */
async function install(version: string, name: keyof typeof THREADS): Promise<string> {
  const threadId = `demo/${name}`;
  const target = lab.path(`state/threads/${threadId}`);
  mkdirSync(path.dirname(target), { recursive: true });
  cpSync(path.join(GOLDEN, version, name), target, { recursive: true });
  await lab.rye().keys.trust(readFileSync(path.join(GOLDEN, version, 'public_key.pem'), 'utf8'));
  await register(threadId, THREADS[name]);
  return threadId;
}

async function register(threadId: string, status: 'completed' | 'suspended'): Promise<void> {
  const store = openStore({ projectPath: lab.project, clock: systemClock, ids: systemIds });
  const document = JSON.parse(lab.read(`state/threads/${threadId}/thread.json`));
  const now = document.updated_at;
  const owner = store.owners.self();
  await store.registry.register({
    threadId,
    directive: document.directive,
    parentId: null,
    model: document.model,
    now,
    owner,
  });
  const { epoch } = await store.registry.claim(threadId, owner, now);
  await store.registry.finish(threadId, {
    status,
    now,
    cost: document.cost,
    result: document.result ?? '',
    epoch,
  });
  await store.ledger.register(threadId, document.limits.spend * 1_000_000);
  store.close();
}

it('has golden logs of every version up to today', () => {
  expect(versions).toEqual(Array.from({ length: LOG_VERSION }, (_, index) => `${index + 1}`));
});

describe.each(versions)('a log of version %s', (version) => {
  it('with every type of entry folds to what it was', async () => {
    const target = lab.path('state/threads/demo/count-1771322456/transcript.jsonl');
    mkdirSync(path.dirname(target), { recursive: true });
    cpSync(path.join(GOLDEN, version, 'entries.jsonl'), target);
    const store = openStore({ projectPath: lab.project, clock: systemClock, ids: systemIds });
    const { events, problems } = await store.logs.read('demo/count-1771322456');
    store.close();
    expect(problems).toEqual([]);
    const tree = buildTree(events);
    const { sources: _sources, ...context } = foldContext(tree, {
      startedCalls: startedCallIds(events),
    });
    const golden = contexts(version)['entries'];
    expect(context).toEqual(golden?.context);
    expect(tree.leafId).toBe(golden?.leaf_id);
    expect(Object.fromEntries(tree.labels)).toEqual(golden?.labels);
  });

  it.each(['whole', 'part'] as const)('(%s) verifies, folds and is edited', async (name) => {
    const id = await install(version, name);
    const rye = lab.rye();
    expect((await rye.threads.verify(id)).checks.filter(({ ok }) => !ok)).toEqual([]);
    const golden = contexts(version)[name];
    const { system, messages } = await rye.trees.context(id);
    expect({ system, messages }).toEqual({
      system: golden?.context.system,
      messages: golden?.context.messages,
    });
    await rye.trees.title(id, 'Touched today');
    expect((await rye.threads.verify(id)).ok).toBe(true);
  });

  it.each(['whole', 'part'] as const)('(%s) is resumed', async (name) => {
    const id = await install(version, name);
    const resumed = await lab.rye().recovery.resume({ threadId: id, message: 'Go on today.' });
    expect(resumed).toMatchObject({ status: 'completed', result: 'Going on.' });
    expect(resumed.thread_id).toBe(id);
    const sent = JSON.stringify(server.requests[0]?.body.messages);
    expect(sent).toContain('Go on today.');
    expect(sent).toContain('rye_file_system_read');
    expect((await lab.rye().threads.verify(resumed.thread_id)).ok).toBe(true);
  });

  it.each(['whole', 'part'] as const)('(%s) is branched and continued there', async (name) => {
    const id = await install(version, name);
    const rye = lab.rye();
    const { rows } = await rye.trees.view(id, { filter: 'all' });
    const opening = rows.find(({ kind }) => kind === 'user')?.entry.id ?? '';
    await rye.trees.branch(id, { at: opening, message: 'Another way.' });
    const resumed = await rye.recovery.resume({ threadId: id });
    expect(resumed).toMatchObject({ thread_id: id, status: 'completed', result: 'Going on.' });
    const sent = JSON.stringify(server.requests[0]?.body.messages);
    expect(sent).toContain('Another way.');
    expect(sent).not.toContain('rye_file_system_read');
    const { thread, document } = await rye.threads.show(id);
    expect(thread.status).toBe('completed');
    expect(document?.runs?.map(({ run, reason, status }) => [run, reason, status])).toEqual([
      [1, 'started', THREADS[name]],
      [2, 'branched', 'completed'],
    ]);
    expect((await rye.threads.verify(id)).checks.filter(({ ok }) => !ok)).toEqual([]);
  });
});
