import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import type { ErrorInfo } from '../../src/kernel/core/errors.ts';
import type { ThreadRecord, ThreadStatus } from '../../src/kernel/core/thread.ts';
import { NO_COST } from '../../src/kernel/core/usage.ts';
import { openMemoryStore } from '../../src/kernel/storage/memory-store.ts';
import type { Store } from '../../src/kernel/storage/store.ts';
import { recordEnd } from '../../src/kernel/threads/end.ts';
import { approvalPending, parked } from '../../src/kernel/threads/run/waiting.ts';
import { libraryLab } from '../app/library-lab.ts';
import { reply } from '../helpers/wire-server.ts';
import { portsDesk } from './ports-desk.ts';

const SUSPENDED: ErrorInfo = { code: 'thread_suspended', message: 'by a hook' };

it.each<[string, ThreadStatus, ErrorInfo | undefined, string]>([
  ['a success frees the rest', 'completed', undefined, 'released'],
  ['an error frees the rest', 'error', { code: 'thread_error', message: 'e' }, 'released'],
  ['a cancellation frees the rest', 'cancelled', undefined, 'released'],
  ['a thread that a hook suspended frees the rest', 'suspended', SUSPENDED, 'released'],
  ['a thread that waits for people keeps it', 'suspended', approvalPending(['a']), 'active'],
  ['a parked leg keeps it', 'suspended', parked('drained'), 'active'],
])('the end of a run and its budget: %s', async (_, status, error, left) => {
  const { env } = await portsDesk();
  const { registry, ledger } = env.store;
  const now = new Date().toISOString();
  const row = { threadId: 't', directive: 'd', parentId: null, model: 'm', now };
  const { epoch } = await registry.register({ ...row, owner: env.owner, isClaimed: true });
  await ledger.register('t', 100);
  const steps: string[] = [];
  await recordEnd(
    env,
    {
      threadId: 't',
      epoch,
      end: () => ({ status, error, cost: NO_COST, result: 'r' }),
      writeDocument: async () => void steps.push((await registry.get('t'))?.status ?? ''),
    },
    {},
  );
  expect(await ledger.rows({ thread_id: 't' })).toMatchObject([{ status: left }]);
  expect(await registry.get('t')).toMatchObject({ status, result: 'r' });
  // thread.json comes before the row
  expect(steps).toEqual(['running']);
});

type Part = 'ledger' | 'registry';

/** A store one of whose methods fails for `job`. */
function failing(store: Store, part: Part, method: string): Store {
  const target: object = store[part];
  const broken = new Proxy(target, {
    get(_target, name) {
      const value: unknown = Reflect.get(target, name);
      if (name !== method || typeof value !== 'function') return value;
      return async (...args: readonly unknown[]): Promise<unknown> => {
        if (args[0] === 'job') throw new Error('the disk is full');
        return await Reflect.apply(value, target, args);
      };
    },
  });
  return { ...store, [part]: broken };
}

/** Starts a thread, so that the budget is released after it. */
const SPENDS = {
  id: 'spends',
  event: 'after_complete',
  action: { primary: 'execute', item_type: 'directive', item_id: 'team/other', params: {} },
};

/** Reads a file of the project's `.ai`. */
type Read = (file: string) => string;
const RECORD = 'state/threads/job/thread.json';

/** Runs `team/work` to its end on a changed store. Returns the result, the faults that were told, and the records. */
async function ended(change: (store: Store, read: Read) => Store, hooks: readonly object[] = []) {
  const lab = await libraryLab(() => reply('Done.'));
  await lab.directive('other');
  await lab.directive('work');
  if (hooks.length > 0) {
    mkdirSync(path.join(lab.project, '.ai/config/agent'), { recursive: true });
    writeFileSync(path.join(lab.project, '.ai/config/agent/hooks.yaml'), JSON.stringify({ hooks }));
    await lab.open().items.sign('config', 'agent/hooks');
  }
  const notices: string[] = [];
  const read: Read = (file) => readFileSync(path.join(lab.project, '.ai', file), 'utf8');
  const rye = lab.open({
    onNotice: (text) => void notices.push(text),
    store: ({ clock, ids }) => change(openMemoryStore({ clock, ids }), read),
  });
  const request = { directiveId: 'team/work', threadId: 'job' };
  const result = await rye.threads.execute(request);
  return {
    result,
    faults: notices.filter((text) => text.includes('the disk is full')),
    entry: read('knowledge/agent/threads/team/work/job.md'),
    document: JSON.parse(read(RECORD)) as Record<string, unknown>,
  };
}

it.each<[string, Part, string, readonly object[], string]>([
  ['the release of its budget', 'ledger', 'release', [], 'error'],
  ['its row', 'registry', 'finish', [], 'error'],
  ['what comes after its row', 'ledger', 'release', [SPENDS], 'completed'],
])(
  'a success whose end could not be recorded is an error until its row has it: %s',
  async (_, part, method, hooks, status) => {
    const broken = (store: Store): Store => failing(store, part, method);
    const { result, faults, document, entry } = await ended(broken, hooks);
    expect([result.status, faults.length]).toEqual([status, 1]);
    if (method !== 'finish') expect(document['status']).toBe(status);
    // the export is the one of the end that was told
    expect(entry).toContain(`status: ${status}`);
  },
);

it.each<[string, readonly object[], boolean]>([
  ['no hook acts after it', [], true],
  ['a hook may still add to the log', [SPENDS], false],
])(
  'while %s, the row of an end follows a thread.json that names the end of the log: %o',
  async (_, hooks, isNamed) => {
    let first = {};
    const { result, document } = await ended((store, read) => {
      const { registry } = store;
      const finish: typeof registry.finish = async (threadId, end) => {
        first = JSON.parse(read(RECORD)) as object;
        return await registry.finish(threadId, end);
      };
      return { ...store, registry: { ...registry, finish } };
    }, hooks);
    expect(result.status).toBe('completed');
    expect(Object.hasOwn(first, 'transcript')).toBe(isNamed);
    expect(document).toHaveProperty('transcript');
  },
);

it('the children of earlier runs are told to stop before the end of a run is on record', async () => {
  const lab = await libraryLab(() => reply('Done.'));
  await lab.directive('work');
  const policy = 'child_policy: { on_parent_complete: cancel }\n';
  mkdirSync(path.join(lab.project, '.ai/config/agent'), { recursive: true });
  writeFileSync(path.join(lab.project, '.ai/config/agent/coordination.yaml'), policy);
  await lab.open().items.sign('config', 'agent/coordination');
  const ends: string[] = [];
  let memory: Store | undefined;
  const rye = lab.open({
    store: ({ clock, ids }) => {
      memory = openMemoryStore({ clock, ids });
      const { registry } = memory;
      const finish: typeof registry.finish = async (threadId, end) => {
        const kid = await registry.get('kid');
        if (threadId === 'job') ends.push(kid?.status ?? 'none');
        return await registry.finish(threadId, end);
      };
      return { ...memory, registry: { ...registry, finish } };
    },
  });
  const row = { directive: 'd', parentId: 'job', model: 'm', owner: null } as const;
  const kid = { ...row, threadId: 'kid', now: new Date().toISOString() };
  await rye.threads.execute({ directiveId: 'team/work', threadId: 'job' });
  await memory?.registry.register(kid);
  await rye.recovery.resume({ threadId: 'job', message: 'Again.' });
  expect(ends).toEqual(['none', 'cancelled']);
});

it.each<[string, (row: ThreadRecord) => ThreadRecord | undefined, boolean]>([
  ['has lost its row', () => undefined, true],
  ['was taken over by another process', (row) => ({ ...row, epoch: row.epoch + 1 }), false],
])('a run that %s when its model has answered', async (_, seen, isOwn) => {
  let hasAnswered = false;
  const lab = await libraryLab(() => {
    hasAnswered = true;
    return reply('Done.');
  });
  await lab.directive('work');
  const rye = lab.open({
    store: ({ clock, ids }) => {
      const store = openMemoryStore({ clock, ids });
      const { registry } = store;
      const get: typeof registry.get = async (id) => {
        const row = await registry.get(id);
        return hasAnswered && row ? seen(row) : row;
      };
      return { ...store, registry: { ...registry, get } };
    },
  });
  const request = { directiveId: 'team/work', threadId: 'job' };
  const result = await rye.threads.execute(request);
  const read = (file: string): string => readFileSync(path.join(lab.project, '.ai', file), 'utf8');
  const document = JSON.parse(read(RECORD)) as object;
  const place = 'knowledge/agent/threads/team/work/job.md';
  const entry = existsSync(path.join(lab.project, '.ai', place)) ? read(place) : '';
  expect(result.error?.code).toBe(isOwn ? undefined : 'thread_locked');
  expect(document).toMatchObject({ status: isOwn ? 'completed' : 'running' });
  // only a whole entry is signed
  expect(entry.includes('rye:signed')).toBe(isOwn);
});
