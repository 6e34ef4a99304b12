import { createHash } from 'node:crypto';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import { LIMITS } from '../../src/kernel/core/limits.ts';
import { handoverOf } from '../../src/kernel/threads/family/spawn.ts';
import { signDocument } from '../../src/kernel/trust/signature.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { reply } from '../helpers/wire-server.ts';

const FOLDER = 'state/threads/one';

/** A lab in which the thread `one` has completed. */
async function labWithThread(): Promise<Lab> {
  const lab = await openLab();
  onTestFinished(async () => await lab.remove());
  await lab.model(() => reply('Done.'));
  lab.signed('directives/work.md', directive('work'));
  await lab.run('work', { threadId: 'one' });
  return lab;
}

function json(lab: Lab, file: string): JsonObject {
  return JSON.parse(lab.read(`${FOLDER}/${file}`));
}

/** Replaces members of thread.json and signs it with the user's own key, as another version of rye would. */
function rewriteDocument(lab: Lab, change: JsonObject): void {
  const document: JsonObject = JSON.parse(
    JSON.stringify({ ...json(lab, 'thread.json'), ...change }),
  );
  const signing = { subject: { kind: 'thread', id: 'one' }, key: lab.key(), now: 0 };
  lab.write(`${FOLDER}/thread.json`, JSON.stringify(signDocument(document, signing)));
}

/** Replaces the plan, and its hash in the signed thread.json. */
function rewritePlan(lab: Lab, plan: string, change: JsonObject = {}): void {
  lab.write(`${FOLDER}/plan.json`, plan);
  const plan_sha256 = createHash('sha256').update(plan).digest('hex');
  rewriteDocument(lab, { ...change, plan_sha256 });
}

it.each([
  ['lacks its capabilities', { capabilities: undefined }, 'capabilities'],
  ['has an unknown status', { status: 'paused' }, 'status'],
  ['has a limit that is no number', { limits: { turns: 'many' } }, 'limits.turns'],
  ['names its log by a path', { transcript: 'transcript.jsonl' }, 'transcript'],
])('a signed thread.json is refused when it %s', async (_case, change, member) => {
  const lab = await labWithThread();
  rewriteDocument(lab, change);
  const resumed = lab.rye().recovery.resume({ threadId: 'one', message: 'Go on.' });
  await expect(resumed).rejects.toMatchObject({
    code: 'log_malformed',
    message: 'thread.json of one has an unknown format',
    details: { member },
  });
});

it.each<[string, JsonObject, string]>([
  ['has another format', { format: 2 }, 'format'],
  ['has no limits', { limits: undefined }, 'limits'],
  ['has a limit that is no number', { limits: { turns: '5' } }, 'limits.turns'],
  ['has a model without an id', { model: { provider: 'anthropic' } }, 'model.kind'],
  ['has an unknown durability', { settings: { tools_parallel: 1 } }, 'settings.durability'],
  ['has a hook for no event', { hooks: [{ id: 'x', event: 'never' }] }, 'hooks.0.event'],
])('a stored plan is refused when it %s', async (_case, change, member) => {
  const lab = await labWithThread();
  rewritePlan(lab, JSON.stringify({ ...json(lab, 'plan.json'), ...change }));
  const resumed = lab.rye().recovery.resume({ threadId: 'one', message: 'Go on.' });
  await expect(resumed).rejects.toMatchObject({
    code: 'log_malformed',
    message: `plan.json of one has an unknown format: the member ${member} is missing or wrong`,
    hint: expect.stringContaining('Update rye'),
  });
});

it.each(['[]', '{"format":1', ''])('a stored plan is refused when its text is %j', async (text) => {
  const lab = await labWithThread();
  rewritePlan(lab, text);
  const resumed = lab.rye().recovery.resume({ threadId: 'one', message: 'Go on.' });
  await expect(resumed).rejects.toMatchObject({
    code: 'log_malformed',
    message: 'plan.json of one has an unknown format: it is not an object',
  });
});

it('a thread resumes with the default of each limit that did not exist when it was planned', async () => {
  const lab = await labWithThread();
  const plan = json(lab, 'plan.json');
  const { spawns: _spawns, duration_seconds: _duration, ...limits } = plan['limits'] as JsonObject;
  rewritePlan(lab, JSON.stringify({ ...plan, limits }), { limits });
  const { thread_id: id, success } = await lab
    .rye()
    .recovery.resume({ threadId: 'one', message: 'Go on.' });
  expect(success).toBe(true);
  const resumed: { limits: Record<string, number> } = JSON.parse(
    lab.read(`state/threads/${id}/thread.json`),
  );
  expect(resumed.limits['spawns']).toBe(LIMITS.spawns.shipped);
  expect(resumed.limits['duration_seconds']).toBeGreaterThan(LIMITS.duration_seconds.shipped - 60);
});

it.each([
  ['is no JSON', '{'],
  ['has another format', '{"format":2,"options":{"allow_unsigned":false}}'],
  ['has no options', '{"format":1}'],
  [
    'has a holder without a host',
    '{"format":1,"options":{"allow_unsigned":false},"holder":{"pid":1,"processStart":"x"}}',
  ],
  [
    'has a secret that is no text',
    '{"format":1,"options":{"allow_unsigned":false},"secrets":{"key":1}}',
  ],
])('a handover is refused when it %s', async (_case, text) => {
  const folder = mkdtempSync(join(tmpdir(), 'rye-handover-'));
  onTestFinished(() => removeFolder(folder));
  writeFileSync(join(folder, 'handover.json'), text);
  await expect(handoverOf({ folder: () => folder }, 'one')).rejects.toMatchObject({
    code: 'thread_tampered',
    message: 'the handover of one is not one of this version',
  });
});
