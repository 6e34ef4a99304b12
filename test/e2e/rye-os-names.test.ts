import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const KEY = { ANTHROPIC_API_KEY: 'sk-test' };

function directive(name: string, metadata: string, attributes = ''): string {
  return [
    '```xml',
    `<directive name="${name}" version="1.0.0"${attributes}>`,
    `<metadata><description>d</description><category></category><author>a</author>${metadata}</metadata>`,
    '</directive>',
    '```',
    '',
    'Do it.',
    '',
  ].join('\n');
}

async function project(files: Readonly<Record<string, string>>): Promise<Workspace> {
  const here = await workspace();
  for (const [name, text] of Object.entries(files)) {
    const file = path.join(here.project, '.ai', name);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, text);
    const [folder = '', ...rest] = name.split('/');
    const id = rest.join('/').replace(/\.\w+$/, '');
    const { code, stderr, stdout } = await here.rye(['sign', folder.replace(/s$/, ''), id]);
    if (code !== 0) throw new Error(stdout + stderr);
  }
  return here;
}

async function plan(here: Workspace, id: string, ...options: string[]) {
  return await here.json(['run', id, '--dry-run', ...options], { env: KEY });
}

describe('a model that no provider file lists', () => {
  test('runs without a price where its provider is clear, and is refused with both ways otherwise', async () => {
    const here = await project({ 'directives/a.md': directive('a', '') });
    const old = 'claude-3-5-haiku-20241022';
    const refused = await plan(here, 'a', '--model', old);
    expect(refused).toMatchObject({ error: { code: 'model_not_found' } });
    const text = JSON.stringify(refused);
    expect(text).toContain('.ai/config/agent/providers/anthropic.yaml');
    expect(text).toContain('--allow-unpriced');
    for (const options of [
      ['--model', old],
      ['--model', `anthropic/${old}`],
      ['--model', old, '--provider', 'anthropic'],
      ['--model', old, '--provider', 'rye/agent/providers/anthropic/anthropic'],
    ]) {
      expect(await plan(here, 'a', ...options, '--allow-unpriced')).toMatchObject({
        plan: { model: { id: old, provider: 'anthropic', pricing: null, max_output_tokens: 4096 } },
      });
    }
    const zen = await plan(here, 'a', '--model', 'glm-5', '--provider', 'zen/zen');
    expect(JSON.stringify(zen)).toContain('.ai/config/agent/providers/zen-zen.yaml');
  });

  test('gives way to the tier that the directive names beside it, with a warning', async () => {
    const model = '<model tier="fast" id="claude-3-haiku-20240307" provider="zen"/>';
    const here = await project({ 'directives/a.md': directive('a', model) });
    const { stdout } = await here.rye(['run', 'a', '--dry-run'], { env: KEY });
    expect(stdout).toMatch(/the directive's tier "fast" is used instead: anthropic\//);
    expect(await plan(here, 'a')).toMatchObject({ plan: { model: { tier: 'fast' } } });
  });
});

describe('an id of Rye OS', () => {
  test('means its own id here in permissions, extends and fetch, and grants no more', async () => {
    const grants = [
      'rye/bash/bash',
      'rye/file-system/fs_write',
      'rye/agent/threads/thread_directive',
    ];
    const permissions = `<permissions><acknowledge risk="elevated">t</acknowledge><execute>${grants.map((id) => `<tool>${id}</tool>`).join('')}</execute></permissions>`;
    const here = await project({
      'directives/a.md': directive('a', permissions),
      'directives/b.md': directive('b', '', ' extends="rye/agent/core/base_review"'),
    });
    const planned = await plan(here, 'a');
    expect(planned).toMatchObject({
      plan: {
        capabilities: [
          'rye.execute.tool.rye.bash',
          'rye.execute.tool.rye.file-system.write',
          'rye.execute.directive.*',
        ],
      },
    });
    expect(JSON.stringify(planned)).toContain(
      'rye/bash/bash of Rye OS grants rye.execute.tool.rye.bash',
    );
    const extended = await plan(here, 'b');
    expect(JSON.stringify(extended)).toContain('rye/core/base_review');
    const echo = [
      'execute',
      'tool',
      'rye/bash/bash',
      '--param',
      'command=echo hi',
      '--acknowledge',
      'elevated',
    ];
    expect((await here.rye(echo)).stdout).toContain('hi');
  });

  test('keeps its meaning where the project has an item of that id', async () => {
    const tool = '# rye:tool\n# version: 1.0.0\n# description: d\n# /rye:tool\necho own\n';
    const permissions =
      '<permissions><acknowledge risk="elevated">t</acknowledge><execute><tool>rye/bash/bash</tool></execute></permissions>';
    const here = await project({
      'tools/rye/bash/bash.sh': tool,
      'directives/a.md': directive('a', permissions),
    });
    expect(await plan(here, 'a')).toMatchObject({
      plan: { capabilities: ['rye.execute.tool.rye.bash.bash'] },
    });
    const run = ['execute', 'tool', 'rye/bash/bash', '--acknowledge', 'elevated'];
    expect((await here.rye(run)).stdout).toContain('own');
  });
});

describe('configuration in the layout of Rye OS', () => {
  test('sets what rye has, names what it ignores, and names all unknown settings at once', async () => {
    const here = await project({
      'directives/a.md': directive('a', ''),
      'config/agent/resilience.yaml': `schema_version: "1.0.0"
category: agent
tool_type: config
version: "1.0.0"
description: d
retry: { max_retries: 2, policies: { fixed: { type: fixed } } }
limits:
  defaults: { turns: 7, spend: 1.5, spend_currency: USD }
  enforcement: { on_exceed: escalate }
child_policy: { on_parent_cancel: cascade_cancel }
`,
      'config/agent/coordination.yaml': `schema_version: "1.0.0"
coordination:
  continuation: { trigger_threshold: 0.8, summary_model: fast }
  transcript_integrity: lenient
`,
      'config/agent/agent.yaml':
        'schema_version: "1.0.0"\ncategory: agent\nprovider: { default: anthropic }\n',
    });
    const { stdout, stderr, code } = await here.rye(['run', 'a', '--dry-run'], { env: KEY });
    expect(code, stderr).toBe(0);
    expect(stdout).toMatch(/turns 7 .*resilience\.yaml:\d+/);
    expect(stderr).toMatch(/resilience\.yaml:\d+: child_policy: write child_policy/);
    const get = await here.rye(['config', 'get', 'coordination.continuation.trigger_threshold']);
    expect(get.stdout).toContain('0.8');
    writeFileSync(
      path.join(here.project, '.ai/config/agent/agent.yaml'),
      'provider: { defalt: x }\nskils: {}\n',
    );
    const broken = await here.rye(['sign', 'config', 'agent/agent']);
    expect(broken.code).toBe(2);
    const told = `${broken.stdout}${broken.stderr}`;
    expect(told).toMatch(/agent\.yaml:1:.*unknown setting provider\.defalt/);
    expect(told).toMatch(/agent\.yaml:2:.*unknown setting skils/);
  });
});

describe('a command of Rye OS', () => {
  test.each([
    [['load', 'directive', 'x'], 'rye fetch'],
    [['execute', 'knowledge', 'x'], 'rye fetch knowledge'],
    [['thread', 'x'], 'rye threads'],
    [['graph', 'run', 'x'], '--provider literal'],
  ])('is refused with the command that replaces it: %j', async (args, hint) => {
    const here = await workspace({ init: false });
    const { code, stderr } = await here.rye(args);
    expect(code).toBe(2);
    expect(stderr).toContain(hint);
  });
});

test('a refusal for its risk names the project setting', async () => {
  const here = await project({
    'directives/a.md': directive(
      'a',
      '<permissions><execute><tool>rye/bash</tool></execute></permissions>',
    ),
  });
  const { stderr } = await here.rye(['run', 'a', '--dry-run'], { env: KEY });
  expect(stderr).toContain(
    'risk_levels: {elevated: allow} in .ai/config/agent/capability_risk.yaml',
  );
  mkdirSync(path.join(here.project, '.ai/config/agent'), { recursive: true });
  writeFileSync(
    path.join(here.project, '.ai/config/agent/capability_risk.yaml'),
    'risk_levels: {elevated: allow}\n',
  );
  await here.rye(['sign', 'config', 'agent/capability_risk']);
  expect((await here.rye(['run', 'a', '--dry-run'], { env: KEY })).code).toBe(0);
});
