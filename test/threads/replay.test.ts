import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { runCli } from '../helpers/run-cli.ts';
import { calls, says, text, toolUse } from '../helpers/wire-server.ts';

const WRITE = '<execute><tool>rye/file-system/write</tool></execute>';
const RULE = '---\ncondition: FORBIDDEN\n---\nDo not say so.\n';

async function lab(): Promise<Lab> {
  const made = await openLab();
  onTestFinished(async () => await made.remove());
  return made;
}

/** A thread that says a word and writes a file, under the permissions and rules of now. */
async function recorded(here: Lab, permissions = WRITE): Promise<string> {
  await here.model([
    calls(
      text('This is FORBIDDEN.'),
      toolUse('rye_file_system_write', { path: 'a.txt', content: 'one\n' }, 'toolu_1'),
    ),
    says('Done.'),
    says('Done again.'),
  ]);
  here.signed('directives/job.md', directive('job', { permissions }));
  const { thread_id, status } = await here.run('job');
  expect(status).toBe('completed');
  return thread_id;
}

async function replay(here: Lab, id: string) {
  return await here.rye().trees.replay(id);
}

it('shows where a rule of today would cut the recorded answer', async () => {
  const here = await lab();
  const id = await recorded(here);
  expect(await replay(here, id)).toMatchObject({ difference: null, answers: 2 });
  here.signed('rules/no-word.md', RULE);
  const { difference } = await replay(here, id);
  expect(difference).toMatchObject({
    recorded: { kind: 'answer', text: 'This is FORBIDDEN.' },
    replayed: { kind: 'rules', rules: ['no-word'] },
  });
});

it('cuts again what a rule cut, and shows that the rule is gone', async () => {
  const here = await lab();
  const file = here.signed('rules/no-word.md', RULE);
  const id = await recorded(here);
  const events = await here.events(id);
  expect(events.filter(({ event_type }) => event_type === 'rule_injection')).toHaveLength(1);
  expect(await replay(here, id)).toMatchObject({ difference: null });
  here.signed('rules/no-word.md', RULE.replace('FORBIDDEN', 'something else'));
  expect(readFileSync(file, 'utf8')).toContain('something else');
  expect((await replay(here, id)).difference).toMatchObject({ recorded: { kind: 'rules' } });
});

it('judges each recorded call by the permissions and hooks of today', async () => {
  const here = await lab();
  const id = await recorded(here);
  const steps = (await replay(here, id)).matched;
  here.signed(
    'config/agent/hooks.yaml',
    'hooks:\n  - id: no_notes\n    event: tool_gate\n    condition: {path: input.path, op: eq, value: a.txt}\n    action: {control: fail, error: not there}\n',
  );
  const gated = await replay(here, id);
  expect(gated.difference).toMatchObject({
    path: 'result.outcome',
    recorded: 'ok',
    replayed: 'blocked',
  });
  expect(gated.matched).toBeLessThan(steps);
  here.signed('config/agent/hooks.yaml', 'hooks: []\n');
  here.signed('directives/job.md', directive('job', { permissions: '' }));
  // the model is offered one tool less, which is the first thing that differs
  expect((await replay(here, id)).difference).toMatchObject({ path: 'system.tools', step: 0 });
});

it('gives the same report each time, whatever has become of the files', async () => {
  const here = await lab();
  const id = await recorded(here);
  const first = await replay(here, id);
  writeFileSync(path.join(here.project, 'a.txt'), 'of somebody else\n');
  for (let again = 0; again < 3; again += 1) expect(await replay(here, id)).toEqual(first);
  expect(readFileSync(path.join(here.project, 'a.txt'), 'utf8')).toBe('of somebody else\n');
});

it('takes no recording that somebody edited', async () => {
  const here = await lab();
  const id = await recorded(here);
  const file = here.path(`state/threads/${id}/transcript.jsonl`);
  writeFileSync(file, readFileSync(file, 'utf8').replace('Done.', 'Gone.'));
  await expect(replay(here, id)).rejects.toMatchObject({ code: 'transcript_tampered' });
});

it('is a failure on the command line only where that is asked for', async () => {
  const here = await lab();
  const id = await recorded(here);
  const run = async (...args: readonly string[]) =>
    await runCli(['threads', 'replay', id, ...args], {
      cwd: here.project,
      env: { HOME: here.home },
    });
  expect(await run('--verify')).toMatchObject({ code: 0 });
  here.signed('directives/job.md', directive('job', { permissions: WRITE, body: 'Other work.' }));
  const told = await run();
  expect(told).toMatchObject({ code: 0 });
  expect(told.stdout).toMatch(/first difference at step \d+, entry \S+: user\.text/);
  const verified = await run('--verify', '--json');
  expect(verified.code).toBe(1);
  expect(JSON.parse(verified.stdout)).toMatchObject({
    success: false,
    same: false,
    thread_id: id,
    difference: { path: 'user.text' },
  });
  expect(await run('--from', 'zzz')).toMatchObject({ code: 6 });
});
