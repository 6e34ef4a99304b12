import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { main } from '../../../src/faces/cli/main.ts';
import { openRye } from '../../../src/open-rye.ts';
import { directive, type Lab, openLab } from '../../attacks/lab.ts';
import { createFakeIo } from '../../helpers/fake-io.ts';
import { calls, reply, toolUse } from '../../helpers/wire-server.ts';

interface Output {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

let lab: Lab;
/** The threads of one session: two handoffs, then the answer. */
let ids: readonly string[] = [];
const at = (index: number): string => ids[index] ?? '';

/** Runs a command line in this process on the real project. */
async function rye(...args: readonly string[]): Promise<Output> {
  const io = createFakeIo({ cwd: lab.project, env: { ...lab.env, HOME: lab.home } });
  const open = (request: Parameters<typeof openRye>[0]) => Promise.resolve(openRye(request));
  const opening = { openRye: open, openThreadList: open };
  const code = await main(args, { ...io, env: { ...io.env, HOME: lab.home }, ...opening });
  return { code, out: io.out(), err: io.err() };
}

async function json(...args: readonly string[]): Promise<Record<string, unknown>> {
  return JSON.parse((await rye('--json', ...args)).out) as Record<string, unknown>;
}

interface Entry {
  readonly id: string;
  readonly kind: string;
  readonly text: string;
}

async function entriesOf(id: string): Promise<readonly Entry[]> {
  return (await json('threads', 'entries', id, '--filter', 'all'))['entries'] as readonly Entry[];
}

/** Returns an entry that only one thread of the session has. */
async function ownEntry(index: number, kind = 'custom'): Promise<string> {
  const others = await Promise.all(ids.filter((_, one) => one !== index).map(entriesOf));
  const elsewhere = new Set(others.flat().map(({ id }) => id));
  const own = (await entriesOf(at(index))).filter(({ id }) => !elsewhere.has(id));
  return own.find((entry) => entry.kind === kind)?.id ?? '';
}

const texts = (drawn: string): string[] =>
  drawn.split('\n').map((line) => line.slice(21).trimEnd());

beforeAll(async () => {
  lab = await openLab();
  for (const name of ['one', 'two']) writeFileSync(path.join(lab.project, name), `${name}!\n`);
  await lab.model(({ body }) => {
    const text = JSON.stringify(body.messages);
    if (text.includes('Once more')) return reply('Two quolls.');
    const next = ['one', 'two'].find((name) => !text.includes(`${name}!`));
    if (next === undefined) return reply('Quolls, one and two.');
    return calls(toolUse('rye_file_system_read', { path: next }, `toolu_${next}`));
  });
  lab.signed(
    'config/agent/coordination.yaml',
    'continuation: { mode: handoff, trigger_threshold: 0.0001 }\n',
  );
  lab.signed(
    'directives/work.md',
    directive('work', {
      permissions: '<execute><tool>rye/file-system/*</tool></execute>',
      limits: 'turns="10" spend="1.00"',
      metadata: '<model id="claude-haiku-5-5" provider="anthropic" />',
    }),
  );
  await lab.run('work');
  const { threads } = await json('threads', 'list');
  const listed = threads as readonly { thread_id: string }[];
  ids = listed.map(({ thread_id: id }) => id).toReversed();
});
afterAll(async () => await lab.remove());

describe('a session that was handed off twice', () => {
  it('is one row of the list, with its last status and the cost of all', async () => {
    expect(ids).toHaveLength(3);
    const { out } = await rye('threads', 'list');
    const [, row = '', ...others] = out.trimEnd().split('\n');
    expect(others).toEqual([]);
    expect(row).toMatch(new RegExp(`^${at(0)} +completed, 2 handoffs .* 3 +\\$.*Quolls`));
    expect((await rye('threads', 'list', '--limit', '1')).out).toBe(out);
    const links = await rye('threads', 'list', '--status', 'continued');
    expect(links.out.trimEnd().split('\n')).toHaveLength(3);
  });

  it('is one line of the tree, whichever of its ids is given', async () => {
    const { out } = await rye('threads', 'tree');
    expect(out).toMatch(new RegExp(`^✓ ${at(0)} .* completed .*↪ handed off to ${at(2)}\n$`));
    for (const id of ids) {
      expect((await rye('threads', 'tree', id)).out).toBe(out.replace(/\ds ago  /, ''));
    }
  });

  it('shows its result and total cost', async () => {
    const { out } = await rye('threads', 'show', at(0));
    expect(out).toContain(`chain       ${ids.join(' → ')}\n`);
    expect(out).toMatch(/^session +completed, 3 turns.* in 3 threads$/m);
    expect(out).toContain('\nQuolls, one and two.\n');
  });

  it('is one list of entries with a line for each handoff, whichever of its ids is given', async () => {
    const { out, err } = await rye('threads', 'entries', at(0));
    const handoff = (index: number): RegExp =>
      new RegExp(`^── handed off to ${at(index)} · [-0-9]{10} [0-9:]{5} ──$`);
    expect(texts(out)).toEqual([
      '● user: Do the work.',
      '● tool: read one → 1 one!',
      expect.stringMatching(handoff(1)),
      expect.stringContaining('● user: '),
      '● tool: read two → 1 two!',
      expect.stringMatching(handoff(2)),
      expect.stringContaining('● user: '),
      '◆ model: Quolls, one and two.',
      '',
    ]);
    expect(err).toMatch(/^6 of \d+ entries\n$/);
    for (const id of ids) expect((await rye('threads', 'entries', id)).out).toBe(out);
    const found = await rye('threads', 'entries', at(2), '--search', 'one!');
    expect(texts(found.out)).toEqual(['● tool: read one → 1 one!', '']);
    expect((await json('threads', 'entries', at(1)))['chain']).toEqual(ids);
  });

  it('is named by the start of an id that only its threads share', async () => {
    expect((await json('threads', 'show', 'work'))['thread']).toMatchObject({ thread_id: at(0) });
  });

  it('is named by the results of a search', async () => {
    const { out } = await rye('search', 'knowledge', 'quolls');
    expect(out).toContain(`  thread ${at(2)} of session ${at(0)}\n`);
    expect(out).toContain(`  open: rye threads open ${at(0)}\n`);
    const { results } = await json('search', 'knowledge', 'quolls');
    expect(results).toMatchObject([{ thread_id: at(2), session_id: at(0) }]);
  });

  it('shows and labels an entry of any of its threads', async () => {
    for (const index of [0, 1, 2]) {
      const entry = await ownEntry(index);
      const shown = await json('threads', 'entries', at(0), '--entry', entry);
      expect(shown).toMatchObject({ thread_id: at(index), entry: { id: entry } });
      expect(await json('threads', 'label', at(0), entry, `in ${index}`)).toMatchObject({
        thread_id: at(index),
      });
    }
    const { out } = await rye('threads', 'entries', at(1), '--filter', 'labeled-only');
    expect(out.match(/\[in \d\]/g)).toEqual(['[in 0]', '[in 1]', '[in 2]']);
    expect(await rye('threads', 'label', at(0), '0000000000000000', 'x')).toMatchObject({
      code: 6,
      err: expect.stringContaining('[entry_not_found]'),
    });
  });

  it('is exported, verified, replayed and logged as one, whichever of its ids is given', async () => {
    const first = await rye('threads', 'logs', at(0));
    for (const id of ids) {
      const exported = await rye('threads', 'export', id);
      expect(exported.out).toContain('Quolls, one and two.');
      expect(exported.err).toContain(`${at(2)}, the last of 3 threads`);
      expect(await json('threads', 'export', id)).toMatchObject({ thread_id: at(2) });
      const verified = await json('verify', 'thread', id);
      const checked = (verified['checks'] as { thread_id: string }[]).map((one) => one.thread_id);
      expect([...new Set(checked)]).toEqual(ids);
      const replayed = await json('threads', 'replay', id, '--verify');
      expect(replayed).toMatchObject({ success: true, thread_id: at(2), answers: 3 });
      expect((await rye('threads', 'logs', id)).out).toBe(first.out);
      expect((await rye('threads', 'logs', id, '--tail', '2')).out).toBe(
        (await rye('threads', 'logs', at(2), '--tail', '2')).out,
      );
      expect(await json('threads', 'logs', id, '--unverified')).toMatchObject({ total: 0 });
      expect((await rye('threads', 'deliveries', id)).code).toBe(0);
      expect((await rye('approvals', '--thread', id)).code).toBe(0);
      expect(await json('threads', 'list', '--parent', id)).toMatchObject({ total: 0 });
      expect((await rye('threads', 'wait', id)).code).toBe(0);
    }
    const entry = await ownEntry(0);
    expect(await json('threads', 'export', at(2), '--branch', entry)).toMatchObject({
      thread_id: at(0),
    });
  });

  it('does not verify by any of its ids after one of its logs was changed', async () => {
    const log = path.join(lab.project, '.ai/state/threads', at(2), 'transcript.jsonl');
    const whole = readFileSync(log, 'utf8');
    appendFileSync(log, 'x');
    for (const id of ids) {
      const { code, out } = await rye('verify', 'thread', id);
      expect([code, out]).toEqual([3, expect.stringContaining(`FAIL ${at(2)}: transcript`)]);
    }
    writeFileSync(log, whole);
    expect((await rye('verify', 'thread', at(0))).code).toBe(0);
  });

  it('refuses to continue from an entry of an earlier thread, and names the fork', async () => {
    const entry = await ownEntry(0);
    const branched = await rye('threads', 'branch', at(0), '--at', entry);
    expect(branched).toMatchObject({ code: expect.toSatisfy((code) => code !== 0) });
    expect(branched.err).toContain(`thread ${at(0)} was continued by ${at(2)}`);
    expect(branched.err).toContain(`rye threads branch ${at(0)} --at`);
    const resumed = await rye('threads', 'resume', at(2), '--from', entry, '--message', 'On.');
    expect(resumed).toMatchObject({ code: 6, err: expect.stringContaining('[entry_not_found]') });
    expect(resumed.err).toContain(`Fork it: rye threads branch ${at(0)} --at ${entry} --new --run`);
    expect(await json('threads', 'branch', at(2), '--at', entry, '--new')).toMatchObject({
      branched_from: at(0),
    });
  });

  it('branches, is renamed and resumes in its last thread', async () => {
    const entry = await ownEntry(2, 'user');
    expect((await rye('threads', 'branch', at(0), '--at', entry)).out).toBe(
      `the head of ${at(2)} is now ${entry}\n`,
    );
    const root = await json('threads', 'branch', at(0), '--at', 'root', '--message', 'Once more.');
    expect(root).toMatchObject({ thread_id: at(2) });
    expect((await rye('threads', 'rename', at(0), 'Counting quolls')).out).toBe(
      `${at(2)}: Counting quolls\n`,
    );
    expect(await json('threads', 'entries', at(2))).toMatchObject({ title: 'Counting quolls' });
    const resumed = await rye('threads', 'resume', at(0), '--from', entry, '-m', 'Once more.');
    expect(resumed).toMatchObject({ code: 0, out: expect.stringContaining('Two quolls.') });
    const { out } = await rye('threads', 'entries', at(0));
    expect(texts(out)).toContainEqual(expect.stringMatching(/^[│├─ ]*◆ model: Two quolls\.$/));
  });
});
