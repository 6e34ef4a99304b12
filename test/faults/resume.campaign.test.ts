import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import {
  startWireServer,
  type WireBlock,
  type WireRequest,
  type WireScript,
  type WireServer,
  type WireTurn,
} from '../helpers/wire-server.ts';
import { temporaryWorkspace } from '../helpers/workspace.ts';
import { marksIn, marksModel } from './marks.ts';
import { copyOf, expectLegal, openWorld, startCli, type World } from './world.ts';

const WAIT = { timeout: 60_000, interval: 20 } as const;

let prepared: Awaited<ReturnType<typeof temporaryWorkspace>>;

beforeAll(async () => {
  await cliPackage();
  prepared = await temporaryWorkspace({ fixture: 'faults' });
});

afterAll(() => prepared.remove());

async function stage(
  script: WireScript,
  hooks?: string,
): Promise<{ readonly world: World; readonly rye: Rye; readonly server: WireServer }> {
  const server = await startWireServer(script);
  const world = copyOf(prepared, server.url);
  if (hooks !== undefined) {
    const folder = path.join(world.project, '.ai', 'config', 'agent');
    mkdirSync(folder, { recursive: true });
    writeFileSync(path.join(folder, 'hooks.yaml'), hooks);
  }
  const rye = openWorld(world);
  onTestFinished(async () => {
    rye.close();
    removeFolder(path.dirname(world.project));
    await server.close();
  });
  for (const name of ['agent/coordination', ...(hooks === undefined ? [] : ['agent/hooks'])]) {
    await rye.items.sign('config', name);
  }
  return { world, rye, server };
}

function blocksOf({ body }: WireRequest): readonly WireBlock[] {
  return body.messages.flatMap(({ content }) => (typeof content === 'string' ? [] : content));
}

/** Calls both waiting tools once, then tells what it was told. */
function waitingModel(request: WireRequest): WireTurn {
  const blocks = blocksOf(request);
  if (!blocks.some((block) => block['type'] === 'tool_use')) {
    const call = (name: string) => ({ kind: 'tool' as const, name, chunks: ['{}'] });
    return { steps: [call('wait_again'), call('wait_once')], usage: { input_tokens: 100 } };
  }
  return { steps: [{ kind: 'text', chunks: ['Both are answered.'] }] };
}

describe('a crash in the middle of tool calls', () => {
  it('is resumed by rerunning idempotent tools; the effects of others are reported as unknown', async () => {
    const { world, rye, server } = await stage(waitingModel);
    const run = ['run', 'waiting', '--thread-id', 't', '--input', 'token=hush-hush', '--json'];
    const running = await startCli(world, run);
    await expect.poll(() => marksIn(world.project).size, WAIT).toBe(2);
    running.child.kill('SIGKILL');
    await running.done;
    // the tools outlive the kill for a moment: they end by themselves
    writeFileSync(path.join(world.project, 'go'), '');

    await expect(rye.recovery.resume({ threadId: 't' })).rejects.toMatchObject({
      code: 'invalid_input',
      message: expect.stringContaining('token'),
    });
    const secrets = { token: 'hush-hush' };
    const result = await rye.recovery.resume({ threadId: 't', secrets });
    expect(result).toMatchObject({ success: true, result: 'Both are answered.' });
    expect([...marksIn(world.project)].toSorted(([a], [b]) => (a < b ? -1 : 1))).toEqual([
      ['mark-again', 2],
      ['mark-once', 1],
    ]);
    const last = server.requests.at(-1);
    const results = (last ? blocksOf(last) : [])
      .filter((block) => block['type'] === 'tool_result')
      .map((block) => JSON.stringify(block));
    expect(results).toHaveLength(2);
    expect(results.filter((text) => text.includes('may have had side effects'))).toHaveLength(1);
    expect(results.filter((text) => text.includes('done'))).toHaveLength(1);
    await expectLegal(world, rye);
    for (const name of ['plan.json', 'thread.json', 'transcript.jsonl']) {
      const file = path.join(world.project, '.ai', 'state', 'threads', 't', name);
      expect(readFileSync(file, 'utf8')).not.toContain('hush-hush');
    }
  });
});

describe('a start', () => {
  it('ends threads whose process is gone, quietly and before its own', async () => {
    const { world, rye } = await stage(waitingModel);
    const running = await startCli(world, ['run', 'waiting', '--thread-id', 't', '--json']);
    await expect.poll(() => marksIn(world.project).size, WAIT).toBe(2);
    running.child.kill('SIGKILL');
    await running.done;
    writeFileSync(path.join(world.project, 'go'), '');
    const next = await startCli(world, ['run', 'hello', '--json']);
    expect((await next.done).stderr).toBe('');
    expect((await rye.threads.show('t')).thread).toMatchObject({
      status: 'error',
      error: { code: 'thread_crashed', hint: expect.stringContaining('rye threads resume t') },
    });
    await expectLegal(world, rye);
  });

  it('leaves them to `rye threads recover` if recovery.mode is resume, which resumes them', async () => {
    const { world, rye } = await stage(marksModel);
    const file = path.join(world.project, '.ai', 'config', 'agent', 'coordination.yaml');
    writeFileSync(file, 'recovery:\n  mode: resume\n');
    await rye.items.sign('config', 'agent/coordination');
    const log = path.join(world.project, '.ai/state/threads/t/transcript.jsonl');
    const running = await startCli(world, ['run', 'work', '--thread-id', 't', '--json']);
    await expect
      .poll(() => existsSync(log) && readFileSync(log, 'utf8').includes('"cost"'), WAIT)
      .toBe(true);
    running.child.kill('SIGKILL');
    await running.done;
    const next = await startCli(world, ['run', 'hello', '--json']);
    expect((await next.done).stderr).toContain('rye threads recover');
    const recover = await startCli(world, ['threads', 'recover', '--json']);
    const { code, stdout } = await recover.done;
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({
      success: true,
      results: [{ success: true, result: 'All marks are left.' }],
    });
    await expectLegal(world, rye);
    const again = await startCli(world, ['threads', 'recover']);
    expect((await again.done).stdout).toBe('No crashed threads\n');
  });
});

const SUSPEND = `hooks:
  - id: pause
    event: after_step
    condition: { path: cost.turns, op: eq, value: 1 }
    action: { control: suspend, reason: a person must look }
  - id: remember
    event: thread_continued
    position: before
    action: { primary: fetch, item_type: knowledge, item_id: continued }
`;

describe('a suspended thread', () => {
  // Requirement: run-needs-work
  it('is resumed under its own id, with the text of its thread_continued hooks', async () => {
    const { world, rye, server } = await stage(marksModel, SUSPEND);
    const paused = await rye.threads.execute({ directiveId: 'work', threadId: 't' });
    expect(paused).toMatchObject({ success: false, status: 'suspended' });
    await expectLegal(world, rye);
    const asked = server.requests.length;
    const result = await rye.recovery.resume({ threadId: 't', message: 'Looked at.' });
    expect(result).toMatchObject({ success: true, thread_id: 't', status: 'completed' });
    expect(result.cost.turns).toBeGreaterThan(paused.cost.turns);
    const request = server.requests[asked]?.body;
    const told = JSON.stringify(request?.messages.at(-1));
    expect(told).toContain('REMEMBER: it continues.');
    expect(told).toContain('Looked at.');
    // the prompt cache stays warm: what was sent before is sent in the same bytes
    const before = server.requests[0]?.body;
    expect(JSON.stringify(request?.tools)).toBe(JSON.stringify(before?.tools));
    expect((await rye.threads.show('t')).chain).toHaveLength(1);
    await expectLegal(world, rye);
  });
});

/** Runs the helper, resumes its thread by the orchestrator tool, and ends with its result. */
function bossWithoutChild(request: WireRequest): WireTurn {
  const text = JSON.stringify(request.body.messages);
  if (text.includes('HELP: leave the mark') && !text.includes('BOSS')) return marksModel(request);
  const results = blocksOf(request).filter((block) => block['type'] === 'tool_result');
  const call = (name: string, input: object) => ({
    steps: [{ kind: 'tool' as const, name, chunks: [JSON.stringify(input)] }],
  });
  const [child, resumed] = results.map((block) => JSON.stringify(block));
  if (child === undefined) {
    return call('rye_execute', { item_type: 'directive', item_id: 'helper', parameters: {} });
  }
  const [, id = ''] = /thread_id\\+": \\+"([^"\\]+)/.exec(child) ?? [];
  if (resumed === undefined) {
    const input = { operation: 'resume_thread', thread_id: id, message: 'One more word?' };
    return call('rye_agent_threads_orchestrator', input);
  }
  return { steps: [{ kind: 'text', chunks: [resumed.includes('A word.') ? 'Heard.' : resumed] }] };
}

describe('the orchestrator tool', () => {
  it("resumes a child in the caller's budget", async () => {
    const { world, rye } = await stage((request) => {
      const last = JSON.stringify(request.body.messages.at(-1));
      const isChild = last.includes('One more word') && !last.includes('tool_result');
      return isChild
        ? { steps: [{ kind: 'text', chunks: ['A word.'] }] }
        : bossWithoutChild(request);
    });
    const result = await rye.threads.execute({ directiveId: 'boss', threadId: 't' });
    expect(result).toMatchObject({ success: true, result: 'Heard.' });
    const { children } = await rye.threads.show('t');
    expect(children.map(({ status }) => status)).toEqual(['completed']);
    await expectLegal(world, rye);
  });
});
