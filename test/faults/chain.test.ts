import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import { systemClock, systemIds } from '../../src/kernel/app/system.ts';
import type { LogEvent, UnknownEvent } from '../../src/kernel/core/events.ts';
import { addCost } from '../../src/kernel/core/usage.ts';
import { isKnown } from '../../src/kernel/log/tree.ts';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import { startWireServer, type WireScript, type WireServer } from '../helpers/wire-server.ts';
import { temporaryWorkspace } from '../helpers/workspace.ts';
import { marksIn, marksModel } from './marks.ts';
import { copyOf, expectLegal, openWorld, ryeIn, type World } from './world.ts';

let prepared: Awaited<ReturnType<typeof temporaryWorkspace>>;

beforeAll(async () => {
  await cliPackage();
  prepared = await temporaryWorkspace({ fixture: 'faults' });
});

afterAll(() => prepared.remove());

interface Stage {
  readonly world: World;
  readonly rye: Rye;
  readonly server: WireServer;
}

async function stage(script: WireScript, configure?: (world: World) => void): Promise<Stage> {
  const server = await startWireServer(script);
  const world = copyOf(prepared, server.url);
  configure?.(world);
  const rye = openWorld(world);
  onTestFinished(async () => {
    rye.close();
    removeFolder(path.dirname(world.project));
    await server.close();
  });
  await rye.items.sign('config', 'agent/coordination');
  return { world, rye, server };
}

const state = ({ project }: World, ...parts: readonly string[]): string =>
  path.join(project, '.ai', 'state', 'threads', ...parts);

async function eventsOf(rye: Rye, id: string): Promise<readonly (LogEvent | UnknownEvent)[]> {
  const events: (LogEvent | UnknownEvent)[] = [];
  for await (const event of rye.threads.logs(id)) events.push(event);
  return events;
}

/** A window that is full after every turn. */
function handsOff({ project }: World): void {
  const file = path.join(project, '.ai', 'config', 'agent', 'coordination.yaml');
  writeFileSync(file, 'continuation:\n  mode: handoff\n  trigger_threshold: 0.0001\n');
}

describe('a chain of three threads', () => {
  // Requirement: handoff-loses-inputs
  it('is made by handing off, and followed by run, show, wait, tree, logs and search', async () => {
    const { world, rye, server } = await stage((request) => {
      const text = JSON.stringify(request.body.messages);
      const call = (mark: string) => ({
        steps: [
          {
            kind: 'tool' as const,
            name: 'rye_bash',
            chunks: [JSON.stringify({ command: `echo ${mark} >> marks.log` })],
          },
        ],
        usage: { input_tokens: 1000, output_tokens: 100 },
      });
      if (!text.includes('mark-1')) return call('mark-1');
      if (!text.includes('mark-2')) return call('mark-2');
      return { steps: [{ kind: 'text', chunks: ['Quokkas everywhere.'] }] };
    }, handsOff);
    const run = await ryeIn(
      world,
      '-c',
      'resilience.tools.sandbox=off',
      'run',
      'work',
      '--thread-id',
      't1',
      '--json',
    );
    const { code, stdout, stderr } = run;
    expect([code, stderr]).toEqual([0, '']);
    const result = JSON.parse(stdout) as Record<string, unknown>;
    const { chain } = await rye.threads.show('t1');
    const ids = chain.map(({ thread_id }) => thread_id);
    expect(chain.map(({ status }) => status)).toEqual(['continued', 'continued', 'completed']);
    expect(result).toMatchObject({
      success: true,
      thread_id: 't1',
      status: 'continued',
      continuation_thread_id: ids[2],
      result: 'Quokkas everywhere.',
      cost: { turns: 3, input_tokens: expect.toSatisfy((count) => count >= 2000) },
    });
    expect([...marksIn(world.project)]).toEqual([
      ['mark-1', 1],
      ['mark-2', 1],
    ]);
    await expectLegal(world, rye);

    const last = server.requests.at(-1)?.body;
    const messages = JSON.stringify(last?.messages);
    expect(messages).toContain('WORK: leave the marks');
    expect(messages).toContain(`This thread continues \`${ids[1]}\``);
    // the system text and the tools are the bytes that the first thread sent
    const first = server.requests[0]?.body;
    expect(JSON.stringify(last?.tools)).toBe(JSON.stringify(first?.tools));
    expect(JSON.stringify(last?.system)).toBe(JSON.stringify(first?.system));

    const store = openStore({ projectPath: world.project, clock: systemClock, ids: systemIds });
    const rows = await store.ledger.rows();
    store.close();
    // each link has what the one before it left
    const [a, b, c] = ids.map((id) => rows.find(({ thread_id }) => thread_id === id));
    expect(b?.max).toBe((a?.max ?? 0) - (a?.actual ?? 0));
    expect(c?.max).toBe((b?.max ?? 0) - (b?.actual ?? 0));

    const events = await eventsOf(rye, 't1');
    expect([...new Set(events.map(({ thread_id }) => thread_id))]).toEqual(ids);
    const finished = events.filter(({ event_type }) => event_type === 'thread_finished');
    expect(finished.map(({ payload }) => (payload as { status: string }).status)).toEqual([
      'continued',
      'continued',
      'completed',
    ]);

    expect((await ryeIn(world, 'threads', 'wait', 't1', '--json')).code).toBe(0);
    // what a person types, with the id that the run began with
    const typed = async (...args: readonly string[]): Promise<string> =>
      (await ryeIn(world, ...args)).stdout;
    const [show, logs, tree, search] = await Promise.all([
      typed('threads', 'show', 't1'),
      typed('threads', 'logs', 't1'),
      typed('threads', 'tree'),
      typed('search', 'knowledge', 'Quokkas'),
    ]);
    expect(show).toContain(`chain       ${ids.join(' → ')}`);
    expect(logs.match(/thread_finished (?:continued|completed)/g)).toEqual([
      'thread_finished continued',
      'thread_finished continued',
      'thread_finished completed',
    ]);
    expect(tree).toMatch(new RegExp(`✓ t1 .* completed .*↪ handed off to ${ids[2]}`));
    expect(search).toContain(ids[2]);
    const found = await rye.items.search('knowledge', 'Quokkas');
    expect(found.results.map(({ id }) => id)).toContain(`agent/threads/work/${ids[2]}`);
    const knowledge = readFileSync(
      path.join(world.project, '.ai/knowledge/agent/threads/work', `${ids[2]}.md`),
      'utf8',
    );
    expect(knowledge).toContain(`continuation_of: ${ids[1]}`);
    // each link exports its own part of the conversation
    expect(knowledge).not.toContain('mark-1');
    const oldest = await rye.items.search('knowledge', '"WORK: leave the marks"');
    expect(oldest.results.map(({ id }) => id)).toContain('agent/threads/work/t1');
  });
});

describe('resuming', () => {
  // Requirement: run-needs-work, strict-resume-impossible
  it('resumes the whole conversation twice in one log, under the limits of all runs', async () => {
    const { world, rye, server } = await stage((request) => {
      const text = JSON.stringify(request.body.messages);
      return text.includes('And in French')
        ? {
            steps: [{ kind: 'text', chunks: ['Bonjour.'] }],
            usage: { input_tokens: 10, output_tokens: 1 },
          }
        : marksModel(request);
    });
    const first = await rye.threads.execute({ directiveId: 'work', threadId: 't' });
    const second = await rye.recovery.resume({ threadId: 't', message: 'And in French?' });
    expect(second).toMatchObject({ success: true, result: 'Bonjour.', status: 'completed' });
    const request = server.requests.at(-1)?.body;
    expect(request?.messages.at(-1)).toMatchObject({ role: 'user' });
    expect(JSON.stringify(request?.messages.at(-1))).toContain('And in French?');
    expect(JSON.stringify(request?.messages)).toContain('All marks are left.');
    const { document } = await rye.threads.show(second.thread_id);
    expect(second).toMatchObject({ thread_id: 't', cost: { turns: first.cost.turns + 1 } });
    expect(second).not.toHaveProperty('continuation_thread_id');
    expect(document).toMatchObject({ inputs: {}, limits: { turns: 12, spawns: 5 } });
    const third = await rye.recovery.resume({
      threadId: 't',
      message: 'And in French, once more?',
    });
    const { chain, document: last } = await rye.threads.show('t');
    expect(chain.map(({ thread_id }) => thread_id)).toEqual(['t']);
    const runs = last?.runs ?? [];
    const plan_sha256 = last?.plan_sha256;
    expect(runs.map(({ run, reason, status }) => [run, reason, status])).toEqual([
      [1, 'started', 'completed'],
      [2, 'resumed', 'completed'],
      [3, 'resumed', 'completed'],
    ]);
    const { own: _own, total: _total, ...cost } = third.cost;
    expect(runs.map((run) => run.cost).reduce(addCost)).toEqual(cost);
    const started = (await eventsOf(rye, 't')).flatMap((event) =>
      isKnown(event, 'run_started') ? [event.payload] : [],
    );
    expect(started).toMatchObject([
      { run: 2, reason: 'resumed', limits: { turns: 12 }, plan_sha256 },
      { run: 3, reason: 'resumed', limits: { turns: 12 }, plan_sha256 },
    ]);
    await expectLegal(world, rye);
  });

  it('resumes from an earlier entry', async () => {
    const { world, rye, server } = await stage(marksModel);
    await rye.threads.execute({ directiveId: 'work', threadId: 't' });
    const events = await eventsOf(rye, 't');
    const opening = events.find(({ event_type }) => event_type === 'message')?.id ?? '';
    const result = await rye.recovery.resume({
      threadId: 't',
      from: opening.slice(0, 8),
      message: 'Leave none after all.',
    });
    expect(result.success).toBe(true);
    const request = server.requests.find(({ body }) =>
      JSON.stringify(body.messages).includes('Leave none after all.'),
    );
    expect(JSON.stringify(request?.body.messages)).not.toContain('mark-a');
    await expectLegal(world, rye);
    await expect(rye.recovery.resume({ threadId: 't', from: 'zzz' })).rejects.toMatchObject({
      code: 'entry_not_found',
    });
  });

  // Requirement: edited-log-resumed
  it('refuses tampered state: the log, thread.json, the plan', async () => {
    const { world, rye } = await stage(marksModel);
    await rye.threads.execute({ directiveId: 'work', threadId: 't' });
    const spoil = async (name: string, code: string): Promise<void> => {
      const file = state(world, 't', name);
      const text = readFileSync(file, 'utf8');
      writeFileSync(file, text.replace('mark', 'park').replace('"depth":3', '"depth":9'));
      if (name === 'thread.json') writeFileSync(file, text.replace('"completed"', '"cancelled"'));
      await expect(rye.recovery.resume({ threadId: 't' })).rejects.toMatchObject({
        code,
        exitCode: 3,
      });
      writeFileSync(file, text);
    };
    await spoil('transcript.jsonl', 'transcript_tampered');
    await spoil('thread.json', 'thread_tampered');
    await spoil('plan.json', 'thread_tampered');
    appendFileSync(state(world, 't', 'transcript.jsonl'), '{"seq":1}\n');
    await expect(rye.recovery.resume({ threadId: 't' })).rejects.toMatchObject({
      code: 'transcript_tampered',
    });
    expect(await rye.threads.list()).toHaveLength(2);
  });

  it('refuses where nothing is left, and takes more from the command line', async () => {
    const { rye } = await stage(marksModel);
    await rye.threads.execute({ directiveId: 'work', threadId: 't', limits: { turns: 1 } });
    await expect(rye.recovery.resume({ threadId: 't' })).rejects.toMatchObject({
      code: 'limit_turns',
      exitCode: 5,
      hint: expect.stringContaining('--limit turns='),
    });
    expect(await rye.recovery.resume({ threadId: 't', limits: { turns: 9 } })).toMatchObject({
      success: true,
    });
  });
});

describe('collecting', () => {
  it('archives what is old with its whole chain, readable and resumable as before', async () => {
    const { world, rye } = await stage(marksModel);
    await rye.threads.execute({ directiveId: 'work', threadId: 't' });
    const before = await eventsOf(rye, 't');
    expect((await rye.recovery.collect({ olderThanMs: 3_600_000 })).archived).toEqual([]);
    const dry = await rye.recovery.collect({ olderThanMs: 0, dryRun: true });
    expect(dry.archived.map(({ thread_id }) => thread_id)).toContain('t');
    const { archived, failures } = await rye.recovery.collect({ olderThanMs: 0 });
    expect(failures).toEqual([]);
    expect(archived).toHaveLength(2);
    for (const { bytes_before, bytes_after } of archived)
      expect(bytes_after).toBeLessThan(bytes_before ?? 0);
    expect(await eventsOf(rye, 't')).toEqual(before);
    expect((await rye.threads.verify('t')).ok).toBe(true);
    expect((await rye.recovery.collect({ olderThanMs: 0 })).archived).toEqual([]);
    const next = await rye.recovery.resume({ threadId: 't', message: 'Continue.' });
    expect(next.success).toBe(true);
    // the chain has a young member now
    const kept = await rye.recovery.collect({ olderThanMs: 3_600_000 });
    expect(kept.archived).toEqual([]);
    await expectLegal(world, rye).catch((error: unknown) => {
      // an archived log has no plain file, which is all that this check reads
      if (!String(error).includes('has no log')) throw error;
    });
  });
});
