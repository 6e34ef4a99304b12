import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const LIMITS = '.ai/config/agent/resilience.yaml';

async function ceiling(here: Workspace, text: string, isSigned = true): Promise<void> {
  for (const folder of [here.project, here.home]) {
    mkdirSync(path.dirname(path.join(folder, LIMITS)), { recursive: true });
  }
  writeFileSync(path.join(here.project, LIMITS), text);
  if (isSigned) expect((await here.rye(['sign', 'config', 'agent/resilience'])).code).toBe(0);
}

const run = (...options: readonly string[]): readonly string[] => ['run', 'hello', ...options];

describe('limits of the command line', () => {
  it('lower the limits of a signed directive, and raise them only with --raise-limits, which is recorded', async () => {
    const here = await workspace();
    expect((await here.rye(run('--limit', 'spend=0.01'))).code).toBe(0);
    for (const option of [
      ['--limit', 'spend=1'],
      ['--max-budget-usd', '1'],
      ['--max-turns', '7'],
      ['--limit', 'tokens=1000001'],
    ]) {
      const { code, stderr } = await here.rye(run(...option));
      expect([code, option], stderr).toEqual([4, option]);
      expect(stderr).toMatch(/ exceeds the .* that hello allows.*\[raise_limits_required\]/);
      expect(stderr).toMatch(/hint: Pass at most .*, or add --raise-limits, which the log records/);
    }
    const raised = run('--limit', 'spend=1', '--limit', 'turns=3', '--raise-limits');
    const { thread_id: id } = await here.json([...raised, '--thread-id', 'raised']);
    expect(id).toBe('raised');
    const folder = path.join(here.project, '.ai/state/threads/raised');
    const document = JSON.parse(readFileSync(path.join(folder, 'thread.json'), 'utf8'));
    expect(document).toMatchObject({ limits: { spend: 1, turns: 3 } });
    expect(document['raised_limits']).toEqual({ spend: 0.05 });
    const log = readFileSync(path.join(folder, 'transcript.jsonl'), 'utf8').split('\n');
    const started = log.find((line) => line.includes('"thread_started"')) ?? '{}';
    expect(JSON.parse(started)['payload']['raised_limits']).toEqual({ spend: 0.05 });
    expect((await here.rye(['verify', 'thread', 'raised'])).code).toBe(0);
    const { threads } = await here.json(['threads', 'list']);
    expect(threads).toHaveLength(2);
  });

  it('stay below the ceiling of a signed file, also with --raise-limits', async () => {
    const here = await workspace();
    await ceiling(here, 'limits:\n  spend: 1.00\n  ceiling: { spend: 2, turns: 9 }\n');
    expect((await here.rye(run('--max-budget-usd', '2', '--limit', 'turns=9'))).code).toBe(0);
    for (const flag of [[], ['--raise-limits']]) {
      const { code, stderr } = await here.rye(run('--max-budget-usd', '2.01', ...flag));
      expect(code, stderr).toBe(4);
      expect(stderr).toMatch(
        /spend=2.01 exceeds the ceiling of \$2.00 \(.*resilience\.yaml:\d.*\)/,
      );
      expect(stderr).toContain('[ceiling_exceeded]');
    }
  });

  it('no ceiling counts that no trusted key has signed', async () => {
    const here = await workspace({ init: false });
    expect((await here.rye(['keys', 'init'])).code).toBe(0);
    await ceiling(here, 'limits: { ceiling: { spend: 2 } }\n', false);
    const project = await here.rye(run('--limit', 'spend=1'));
    expect([project.code, project.stderr.includes('raise_limits_required')]).toEqual([4, true]);
    rmSync(path.join(here.project, LIMITS));
    writeFileSync(path.join(here.home, LIMITS), 'limits: { ceiling: { spend: 2 } }\n');
    const user = await here.rye(run('--limit', 'spend=1'));
    expect([user.code, user.stderr.includes('raise_limits_required')]).toEqual([4, true]);
    expect(user.stderr).toContain('limits.ceiling applies only in a signed file');
    expect((await here.rye(['sign', 'config', 'agent/resilience'])).code).toBe(0);
    expect((await here.rye(run('--limit', 'spend=1'))).code).toBe(0);
  });

  it('the lower of two signed ceilings counts', async () => {
    const here = await workspace();
    await ceiling(here, 'limits: { ceiling: { spend: 10 } }\n');
    writeFileSync(path.join(here.home, LIMITS), 'limits: { ceiling: { spend: 2 } }\n');
    expect((await here.rye(['sign', 'config', '*'])).code).toBe(0);
    expect((await here.rye(run('--limit', 'spend=2'))).code).toBe(0);
    expect((await here.rye(run('--limit', 'spend=3'))).stderr).toContain('[ceiling_exceeded]');
  });

  it('-c lowers default limits, and neither raises one nor sets a ceiling', async () => {
    const here = await workspace();
    for (const key of [
      'resilience.limits.tokens=1000001',
      'resilience.limits.ceiling.spend=9',
      'resilience.limits={"tokens": 2000000}',
      'agent.resilience.limits.max_tokens=1000001',
    ]) {
      const { code, stderr } = await here.rye(['-c', key, ...run()]);
      expect([key, code], stderr).toEqual([key, 4]);
      expect(stderr).toContain('[raise_limits_required]');
    }
    expect((await here.rye(['-c', 'resilience.limits.tokens=1000', ...run()])).code).toBe(0);
  });

  it('a resume is granted as much as a new run; more needs the flag', async () => {
    const here = await workspace();
    const { thread_id: id } = await here.json(run('--limit', 'turns=1'));
    const resume = ['threads', 'resume', String(id), '--message', 'Again.'];
    const refused = await here.rye([...resume, '--limit', 'turns=7']);
    expect([refused.code, refused.stderr.includes('raise_limits_required')]).toEqual([4, true]);
    const { code, stderr } = await here.rye([...resume, '--limit', 'turns=6']);
    expect(code, stderr).toBe(0);
    const raised = await here.rye([...resume, '--limit', 'turns=7', '--raise-limits']);
    expect(raised.code, raised.stderr).toBe(0);
    const { stdout } = await here.rye(['threads', 'logs', String(id), '--json']);
    expect(stdout).toMatch(/"raised_limits":\{"turns":6\}/);
  });
});
