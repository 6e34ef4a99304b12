import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FEATURES } from '../../src/features/shipped.ts';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import { codeOf, directive, type Lab, openLab } from '../attacks/lab.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';

let lab: Lab;
beforeEach(async () => {
  lab = await openLab();
});
afterEach(async () => {
  await lab.remove();
});

/** Opens rye without these features; with no name, the kernel alone. */
function without(...names: readonly string[]): Rye {
  const features = FEATURES.filter(({ name }) => names.length > 0 && !names.includes(name));
  return lab.rye({ features });
}

async function codeOfRun(rye: Rye, id: string, options: object = {}): Promise<string> {
  return await rye.threads.execute({ directiveId: id, ...options }).then(codeOf, codeIn);
}

const codeIn = (error: unknown): string => String((error as { code?: unknown }).code);

function write(permissions: string): void {
  lab.signed(
    'directives/note.md',
    directive('note', { limits: 'turns="3" spend="0.50"', permissions, body: 'Write a note.' }),
  );
}

const WRITE = '<execute><tool>rye/file-system/write</tool></execute>';
const WRITES = () => [
  calls(toolUse('rye_file_system_write', { path: 'x.txt', content: 'x' }, 'a')),
  reply('Done.'),
];

it('the kernel alone runs, verifies, exports and lists threads', async () => {
  await lab.model(WRITES());
  write(WRITE);
  const rye = without();
  const result = await rye.threads.execute({ directiveId: 'note', threadId: 'n' });
  expect(result.status).toBe('completed');
  expect(await rye.threads.verify('n')).toMatchObject({ ok: true });
  expect(await rye.exports.export('n', { format: 'md' })).toMatchObject({ entries: 7 });
  expect(await rye.threads.list()).toHaveLength(1);
  const doctor = await rye.doctor();
  expect(doctor.filter(({ status }) => status === 'fail').map(({ check }) => check)).toEqual([]);
});

describe('a missing feature', () => {
  it.each<readonly [string, (rye: Rye) => Promise<unknown>]>([
    ['approvals', async (rye) => await rye.approvals.list()],
    ['approvals', async (rye) => await anyOf(rye.approvals.watch({ signal: aborted() }))],
    ['fleet', async (rye) => await rye.fleet.status()],
    ['html', async (rye) => await rye.exports.export('n', { format: 'html' })],
    ['mcp', async (rye) => await rye.mcpServers()],
    ['pi', async (rye) => await rye.exports.export('n', { format: 'pi' })],
    ['pi', async (rye) => await rye.trees.importSession({ path: 'x.jsonl' })],
    ['rules', async (rye) => await rye.rules.list()],
    ['schedules', async (rye) => await rye.schedules.list()],
    ['search', async (rye) => await rye.items.search('knowledge', 'word')],
    ['sessions', async (rye) => await rye.trees.view('n')],
  ])('%s is named by the call that needs it', async (name, call) => {
    await lab.run('hello', { inputs: { who: 'Ada' }, threadId: 'n' });
    await expect(call(without(name))).rejects.toMatchObject({
      code: 'feature_missing',
      message: expect.stringContaining(name) as string,
    });
  });

  it('is no lifted guard: rules of the project', async () => {
    await lab.model([...WRITES(), ...WRITES(), ...WRITES()]);
    write(WRITE);
    expect(await codeOfRun(without('rules'), 'note')).toBe('completed');
    lab.signed('rules/no-x.md', '---\ndescription: No x.\ncondition: xyz\n---\nDo not.\n');
    expect(await codeOfRun(without('rules'), 'note')).toBe('feature_missing');
  });

  it('is no lifted guard: rules that a resumed thread was planned with', async () => {
    await lab.model([...WRITES(), ...WRITES(), ...WRITES()]);
    write(WRITE);
    await lab.run('note', { threadId: 'n' });
    const resumed = without('rules').recovery.resume({ threadId: 'n', message: 'Again.' });
    expect(await resumed.then(codeOf, codeIn)).toBe('feature_missing');
  });

  it('is no lifted guard: policies of approvals', async () => {
    await lab.model([...WRITES(), ...WRITES(), ...WRITES()]);
    write(WRITE);
    lab.signed(
      'config/agent/approvals.yaml',
      JSON.stringify({
        approvers: { me: { key: lab.key().keyId } },
        rules: [{ tool: 'rye/file-system/write', ask: ['me'] }],
      }),
    );
    expect(await codeOfRun(without('approvals'), 'note')).toBe('feature_missing');
    lab.write('config/agent/approvals.yaml', '{}');
    expect(await codeOfRun(without('approvals'), 'note')).toBe('unsigned');
  });

  it('is no lifted guard: what a directive asks for', async () => {
    await lab.model([...WRITES(), ...WRITES(), ...WRITES()]);
    write('<execute><tool ask="true">rye/file-system/write</tool></execute>');
    const rye = without('approvals');
    const result = await rye.threads.execute({ directiveId: 'note', threadId: 'n' });
    expect(codeOf(result)).toBe('feature_missing');
    const types = (await lab.events('n')).map(({ event_type: type }) => type);
    expect(types).not.toContain('tool_call_start');
  });

  it('refuses isolation, and a store of other machines', async () => {
    await lab.model([...WRITES(), ...WRITES(), ...WRITES()]);
    write(WRITE);
    const isolated = { isolation: { kind: 'worktree' } };
    expect(await codeOfRun(without('worktrees'), 'note', isolated)).toBe('feature_missing');
    lab.signed('config/store.yaml', 'url: postgres://127.0.0.1:1/none\n');
    expect(await codeOfRun(without('fleet'), 'note')).toBe('feature_missing');
  });
});

const aborted = (): AbortSignal => AbortSignal.abort();

async function anyOf(stream: AsyncIterable<unknown>): Promise<unknown> {
  for await (const one of stream) return one;
  return undefined;
}
