import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { defineTool } from '../../src/kernel/app/program/define-tool.ts';
import type { Clock } from '../../src/kernel/core/clock.ts';
import type { IdSource } from '../../src/kernel/core/ids.ts';
import type { RunEvent } from '../../src/kernel/hooks/handlers.ts';
import { openMemoryStore } from '../../src/kernel/storage/memory-store.ts';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import type { Store } from '../../src/kernel/storage/store.ts';
import { mockModel } from '../../testing/index.ts';
import { libraryLab } from './library-lab.ts';

const WORK = 'team/work';
const MOCKED = { directiveId: WORK, provider: 'mock', behavior: { nudge: false } } as const;
const NOON = Date.UTC(2030, 0, 1, 12);

const frozen: Clock = {
  now: () => NOON,
  monotonic: () => 0,
  sleep: () => Promise.resolve(),
};

function counted(): IdSource {
  let next = 0;
  const id = (): string => String((next += 1));
  return {
    entryId: () => id().padStart(16, '0'),
    uuid: () => `00000000-0000-4000-8000-${id().padStart(12, '0')}`,
  };
}

describe('openRye', () => {
  it('runs a provider of the program by its kind', async () => {
    const lab = await libraryLab();
    await lab.directive('work', ['rye/file-system/ls']);
    const model = mockModel([
      { calls: [{ tool: 'rye/file-system/ls', input: { path: '.' } }] },
      ({ messages }) => `I saw ${messages.length} messages.`,
    ]);
    const outcome = await lab.open({ providers: { mock: model.kind } }).run(MOCKED);
    expect(outcome).toMatchObject({ kind: 'completed', result: 'I saw 3 messages.' });
    expect(model.requests).toHaveLength(2);
    expect(lab.server.requests).toEqual([]);
  });

  it('reports the request that the script of a mock model has no answer for', async () => {
    const lab = await libraryLab();
    await lab.directive('work');
    const { kind } = mockModel([]);
    const outcome = await lab.open({ providers: { mock: kind } }).run(MOCKED);
    expect(outcome).toMatchObject({
      kind: 'failed',
      error: { message: expect.stringContaining('no answer for request 1') as string },
    });
  });

  it('takes time and ids from the program', async () => {
    const lab = await libraryLab();
    await lab.directive('work');
    const providers = { mock: mockModel(['Done.']).kind };
    const rye = lab.open({ providers, clock: frozen, ids: counted() });
    const { threadId } = await rye.run(MOCKED);
    const folder = path.join(lab.project, '.ai/state/threads', threadId ?? '');
    const document = JSON.parse(readFileSync(path.join(folder, 'thread.json'), 'utf8')) as object;
    expect(document).toMatchObject({
      created_at: '2030-01-01T12:00:00.000Z',
      updated_at: '2030-01-01T12:00:00.000Z',
    });
    const ids: string[] = [];
    for await (const { id } of rye.threads.logs(threadId ?? '')) if (id) ids.push(id);
    expect(ids.length).toBeGreaterThan(1);
    expect(ids.every((id) => /^0{12}\d{4}$/.test(id))).toBe(true);
    expect(ids).toEqual(ids.toSorted());
  });

  it.each([
    ['files', openStore],
    ['memory', openMemoryStore],
  ])('keeps threads in the store of %s that the program opens, and closes it', async (_, open) => {
    const lab = await libraryLab();
    await lab.directive('work');
    const stores: Store[] = [];
    let isClosed = false;
    const rye = lab.open({
      providers: { mock: mockModel(['Done.']).kind },
      store: (setup) => {
        expect(setup.projectPath).toBe(lab.project);
        const store = open(setup);
        stores.push(store);
        const close = (): void => {
          store.close();
          isClosed = true;
        };
        return { ...store, close };
      },
    });
    const { threadId, ...outcome } = await rye.run(MOCKED);
    expect(outcome).toMatchObject({ kind: 'completed' });
    expect(stores).toHaveLength(1);
    expect(await stores[0]?.registry.get(threadId ?? '')).toMatchObject({ status: 'completed' });
    rye.close();
    expect(isClosed).toBe(true);
  });

  it('sends every event of a run and its tools to its subscribers, also if one throws', async () => {
    const lab = await libraryLab();
    await lab.directive('work', ['shop/price']);
    const events: RunEvent[] = [];
    const notices: string[] = [];
    const model = mockModel([{ calls: [{ tool: 'shop/price', input: { item: 'tea' } }] }, 'Done.']);
    const price = defineTool({
      description: 'Returns the price of an item in cents.',
      inputSchema: {
        type: 'object',
        properties: { item: { type: 'string' }, count: { type: 'integer' } },
        required: ['item'],
      },
      execute: ({ item, count = 1 }) => ({ cents: item.length * 100 * count }),
    });
    const rye = lab.open({
      providers: { mock: model.kind },
      tools: { 'shop/price': price },
      onNotice: (notice) => notices.push(notice),
      subscribers: [
        () => {
          throw new Error('the subscriber is broken');
        },
        (event) => void events.push(event),
      ],
    });
    const outcome = await rye.run({ ...MOCKED, acknowledge: ['elevated'] });
    expect(outcome).toMatchObject({ kind: 'completed', result: 'Done.' });
    const logged: string[] = [];
    for await (const { event_type } of rye.threads.logs(outcome.threadId ?? '')) {
      logged.push(event_type);
    }
    const [opening, ...rest] = logged;
    expect(opening).toBe('checkpoint'); // it opens the log before the thread runs
    expect(events.map(({ event_type }) => event_type)).toEqual(rest);
    expect(notices.filter((notice) => notice.includes('the subscriber is broken'))).not.toEqual([]);
  });

  it('refuses a misspelled option', async () => {
    const lab = await libraryLab();
    // @ts-expect-error `subscriber` is not an option
    expect(() => lab.open({ subscriber: [] })).toThrow(
      expect.objectContaining({
        code: 'usage',
        message: 'unknown option "subscriber" of openRye()',
        hint: expect.stringContaining('subscribers') as string,
      }),
    );
    await expect(
      // @ts-expect-error `limit` is not an option
      lab.open().run({ directiveId: WORK, limit: { turns: 1 } }),
    ).resolves.toMatchObject({
      kind: 'failed',
      error: { code: 'usage', message: 'unknown option "limit" of run()' },
    });
  });
});

describe('start', () => {
  it('iterates over the events of the run', async () => {
    const lab = await libraryLab();
    await lab.directive('work');
    const rye = lab.open({ providers: { mock: mockModel(['Done.']).kind } });
    const run = rye.start(MOCKED);
    const types: string[] = [];
    for await (const { event_type } of run) types.push(event_type);
    expect(types[0]).toBe('thread_started');
    expect(types).toContain('thread_finished');
    expect(types.at(-1)).toBe('checkpoint');
    expect(await run.outcome).toMatchObject({ kind: 'completed' });
  });

  it('ends an iteration at once if the run is over', async () => {
    const lab = await libraryLab();
    const run = lab.open().start({ directiveId: 'team/none' });
    await run.outcome;
    const types: string[] = [];
    for await (const { event_type } of run) types.push(event_type);
    expect(types).toEqual([]);
  });
});

describe('defineTool', () => {
  it('types the input and the result by their schemas', () => {
    const inputSchema = {
      type: 'object',
      properties: {
        unit: { enum: ['g', 'kg'] },
        tags: { type: 'array', items: { type: 'string' } },
      },
      required: ['unit'],
    } as const;
    const outputSchema = {
      type: 'object',
      properties: { grams: { type: 'number' } },
      required: ['grams'],
    } as const;
    const description = 'Weighs.';
    defineTool({
      description,
      inputSchema,
      outputSchema,
      execute: ({ unit, tags = [] }) => ({ grams: unit === 'kg' ? 1000 : tags.length }),
    });
    // @ts-expect-error `weight` is not a parameter
    defineTool({ description, inputSchema, execute: ({ weight }) => String(weight) });
    // @ts-expect-error the result has no `grams`
    defineTool({ description, inputSchema, outputSchema, execute: () => ({ kilograms: 1 }) });
  });
});
