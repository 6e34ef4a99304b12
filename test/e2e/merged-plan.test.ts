import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const GOLDEN = path.resolve(import.meta.dirname, '../golden/plans/three-deep.json');

interface Plan {
  readonly chain: readonly { readonly space: string; readonly id: string }[];
  readonly context: readonly {
    readonly position: string;
    readonly id: string;
    readonly content: string;
  }[];
  readonly hooks: readonly {
    readonly layer: number;
    readonly event: string;
    readonly id: string;
    readonly enabled: boolean;
    readonly origin: string;
    readonly shipped?: boolean;
  }[];
  readonly tools: readonly { readonly name: string; readonly risk: string }[];
  readonly origins: Readonly<Record<string, string>>;
  readonly [member: string]: unknown;
}

test('three-deep extends and five hook layers merge into the plan that the golden file shows', async () => {
  const here = await workspace({ fixture: 'three-deep' });
  const { plan } = await here.json([
    'execute',
    'directive',
    'team/leaf',
    '--dry-run',
    '--input=path=data',
    '--input=token=s3cr3t-value',
  ]);
  expect(view(plan as Plan, here)).toEqual(JSON.parse(readFileSync(GOLDEN, 'utf8')));
  // rye may be installed elsewhere when the thread is resumed; shipped files are still recognized
  const { hooks } = plan as Plan;
  const mine = hooks.filter(({ shipped }) => shipped !== true);
  expect(mine.map(({ origin }) => origin)).not.toContainEqual(expect.stringContaining('/system/'));
  expect(hooks.find(({ id }) => id === 'ctx_directive_instruction')?.shipped).toBe(true);
  expect(mine.length).toBeGreaterThan(0);
});

test('a dry run prints where each value comes from, and changes nothing', async () => {
  const here = await workspace({ fixture: 'three-deep' });
  const { stdout, code } = await here.rye([
    'run',
    'team/leaf',
    '--dry-run',
    '--input',
    'path=data',
  ]);
  expect(code).toBe(0);
  expect(stdout).toMatch(/turns 12 \(.*team\/middle\.md:8/);
  expect(stdout).toMatch(/tokens 90000 \(.*mine\/base\.md:9/);
  expect(stdout).toMatch(/spend 0\.25 \(.*team\/leaf\.md:8/);
  expect(stdout).toMatch(/spawns 50 \(.*resilience\.yaml:/);
  const { total } = await here.json(['threads', 'list']);
  expect(total).toBe(0);
});

test('a secret input reaches the tool that declares it and nothing that is written', async () => {
  const here = await workspace({ fixture: 'three-deep' });
  const result = await here.json([
    'run',
    'team/leaf',
    '--input=path=.',
    '--input=token=s3cr3t-value',
  ]);
  expect(result['success']).toBe(true);
  const { thread, transcript, knowledge } = result['paths'] as Record<string, string>;
  const log = readFileSync(String(transcript), 'utf8');
  expect(log).toContain('"token_length":12');
  for (const file of [`${thread}/thread.json`, `${thread}/capabilities.md`, String(knowledge)]) {
    expect(readFileSync(file, 'utf8')).not.toContain('s3cr3t');
  }
  expect(log).not.toContain('s3cr3t');
});

/** The decisions of a plan, paths relative to their space. */
function view(plan: Plan, { project, home }: Workspace) {
  const relative = (text: string): string =>
    text
      .replace(`${project}/`, 'project:')
      .replace(`${home}/`, 'user:')
      .replace(/^\/.*\/\.ai\//, 'system:.ai/');
  const { limits, capabilities, risks, inputs, secret_inputs, warnings, suppress, model } = plan;
  return {
    chain: plan.chain.map(({ space, id }) => `${space}:${id}`),
    context: plan.context.map(({ position, id, content }) => [position, id, content]),
    suppress,
    inputs,
    secret_inputs,
    limits,
    capabilities,
    risks,
    tools: plan.tools.map(({ name, risk }) => [name, risk]),
    model: (model as { id: string }).id,
    hooks: plan.hooks.map(({ layer, event, id, enabled, origin }) => [
      layer,
      event,
      id,
      enabled ? 'on' : 'off',
      // shipped files change with releases; which file it is matters, not the line
      relative(origin).replace(/(system:.*):\d+$/, '$1'),
    ]),
    origins: Object.fromEntries(
      Object.entries(plan.origins)
        .filter(([name]) => /^(limits|capabilities|inputs|context)\b/.test(name))
        .map(([name, origin]) => [name, relative(origin).replace(/(system:.*):\d+$/, '$1')]),
    ),
    warnings,
  };
}
