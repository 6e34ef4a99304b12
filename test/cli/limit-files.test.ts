import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const FILE = '.ai/config/agent/resilience.yaml';
const DEFAULT_TOKENS = 1_000_000;

function put(here: Pick<Workspace, 'project'>, file: string, text: string): void {
  mkdirSync(path.dirname(path.join(here.project, file)), { recursive: true });
  writeFileSync(path.join(here.project, file), text);
}

/** A workspace with a key whose project has no lock file: that would refuse every changed guard. */
async function withoutLock(): Promise<Workspace> {
  const here = await workspace({ init: false });
  expect((await here.rye(['keys', 'init'])).code).toBe(0);
  return here;
}

/** Signs the project's limits with a key that this user does not trust. */
async function signAsStranger(here: Workspace): Promise<void> {
  const stranger = await workspace();
  const env = { HOME: stranger.home };
  const { code, stderr } = await here.rye(['sign', 'config', 'agent/resilience'], { env });
  expect(code, stderr).toBe(0);
}

/** Returns the tokens that a run of `hello` gets, which declares none. */
async function tokens(here: Workspace): Promise<unknown> {
  const plan = await here.json(['run', 'hello', '--dry-run']);
  const [, found] = /"limits":\{[^}]*"tokens":(\d+)/.exec(JSON.stringify(plan)) ?? [];
  return found === undefined ? plan : Number(found);
}

describe('a file of limits that no trusted key has signed', () => {
  it.each<[string, boolean]>([
    ['unsigned', false],
    ['signed by a stranger', true],
  ])('lowers the limits and never raises them: %s', async (_, isSigned) => {
    const here = await withoutLock();
    for (const [given, expected] of [
      [DEFAULT_TOKENS * 5, DEFAULT_TOKENS],
      [500, 500],
    ]) {
      put(here, FILE, `limits: { tokens: ${given} }\n`);
      if (isSigned) await signAsStranger(here);
      expect([given, await tokens(here)]).toEqual([given, expected]);
    }
  });

  it('leaves the defaults if it cannot be read, and is named', async () => {
    const here = await withoutLock();
    put(here, FILE, 'limits: { tokens: [\n');
    expect(await tokens(here)).toBe(DEFAULT_TOKENS);
    const { stderr } = await here.rye(['run', 'hello', '--dry-run']);
    expect(stderr).toMatch(
      /ignored: \.ai\/config\/agent\/resilience\.yaml: .* is not signed; only its lower limits apply \[unsigned\]/,
    );
  });
});

describe('a refused limit', () => {
  it('leaves no copy when a thread was to be resumed as a new one', async () => {
    const here = await workspace();
    const { thread_id: id } = await here.json(['run', 'hello']);
    const again = ['threads', 'resume', String(id), '--new', '--message', 'Again.'];
    const refused = await here.rye([...again, '--limit', 'turns=99']);
    expect([refused.code, refused.stderr]).toEqual([
      4,
      expect.stringContaining('raise_limits_required'),
    ]);
    expect((await here.json(['threads', 'list', '--all']))['threads']).toHaveLength(1);
  });
});

describe('the warnings of a document', () => {
  it('include those that concern no security', async () => {
    const here = await workspace();
    const text =
      '# Work\n\n```xml\n<directive name="work" version="1.0.0"><metadata><description>Work.</description><category></category><author>me</author><model provider="literal"/><permissions><execute><tool optional="true">no/such</tool><tool>rye/core/greet</tool></execute><acknowledge risk="elevated">test</acknowledge></permissions></metadata><process><step name="a"><execute item_type="tool" item_id="rye/core/greet"><param name="who">A</param></execute></step></process></directive>\n```\n';
    put(here, '.ai/directives/work.md', text);
    expect((await here.rye(['sign', 'directive', 'work'])).code).toBe(0);
    const ran = await here.json(['run', 'work', '-c', 'resilience.tools.sandbox=off']);
    expect(ran['error']).toBe(undefined);
    expect(ran['warnings']).toEqual([expect.stringContaining('no.such')]);
  });
});
