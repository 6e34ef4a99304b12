import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const env = { ANTHROPIC_API_KEY: 'sk-ant-1234567890', OPENAI_API_KEY: 'sk-1234567890' };
const FILE = '.ai/config/agent/agent.yaml';

/** The model that a directive without `<model>` would use. */
async function modelOf(here: Workspace, keys: Record<string, string> = env): Promise<string> {
  const args = ['run', 'rye/core/ask', '--input', 'question=Why?', '--dry-run'];
  const document = await here.json(args, { env: keys });
  const { model } = document['plan'] as { model: { provider: string; id: string } };
  return `${model.provider}/${model.id}`;
}

async function chosenOf(here: Workspace): Promise<unknown> {
  const { models } = await here.json(['models', 'list'], { env });
  return (models as Record<string, unknown>[]).filter(({ chosen }) => chosen === true);
}

describe('with keys for several providers', () => {
  it('the preference order decides, and the list shows which model and why', async () => {
    const here = await workspace();
    expect(await modelOf(here)).toBe('anthropic/claude-sonnet-5-5');
    expect(await chosenOf(here)).toMatchObject([
      { model: 'claude-sonnet-5-5', chosen_because: expect.stringContaining('provider.order') },
    ]);
    const { stdout } = await here.rye(['models', 'list'], { env });
    expect(stdout).toMatch(
      /^Default: anthropic\/claude-sonnet-5-5 \(first of provider\.order with a key .*\)\. Change it with: rye models use MODEL$/m,
    );
    mkdirSync(path.join(here.home, '.ai/config/agent'), { recursive: true });
    writeFileSync(path.join(here.home, FILE), 'provider: { order: [openai] }\n');
    expect(await modelOf(here)).toMatch(/^openai\//);
  });

  it('rye models use sets a provider, a model or a model of a provider for the user', async () => {
    const here = await workspace();
    for (const [name, model, reason] of [
      ['openai', 'openai/gpt-6-sol', 'provider.default'],
      ['claude-opus-5-5', 'anthropic/claude-opus-5-5', 'provider.model'],
      ['openai/gpt-6-luna', 'openai/gpt-6-luna', 'provider.model'],
      ['literal', undefined, undefined],
      ['anthropic', 'anthropic/claude-sonnet-5-5', 'provider.default'],
    ] as const) {
      const { code, stdout, stderr } = await here.rye(['models', 'use', name], { env });
      expect([code, stderr], name).toEqual([0, '']);
      expect(stdout).toContain(FILE);
      if (model === undefined) continue;
      expect(await modelOf(here)).toBe(model);
      expect(await chosenOf(here)).toMatchObject([
        { chosen_because: expect.stringContaining(`${reason} in ${path.join(here.home, FILE)}`) },
      ]);
    }
    expect((await here.rye(['verify', 'config', 'agent/agent'])).code).toBe(0);
    expect(await modelOf(here)).toBe('anthropic/claude-sonnet-5-5');
  });

  it('--space project sets it for the project, signed and pinned, and keeps the rest of the file', async () => {
    const here = await workspace();
    const file = path.join(here.project, FILE);
    writeFileSync(file, '# ours\nskills:\n  max_active: 7 # few\n');
    expect((await here.rye(['sign', 'config', 'agent/agent'])).code).toBe(0);
    const use = ['models', 'use', 'gpt-6-luna', '--space', 'project'];
    expect(await here.json(use, { env })).toMatchObject({
      space: 'project',
      path: file,
      provider: 'openai',
      model: 'gpt-6-luna',
      usable: true,
    });
    expect(readFileSync(file, 'utf8')).toMatch(/# ours[^]*max_active: 7 # few/);
    expect(await modelOf(here)).toBe('openai/gpt-6-luna');
    expect((await here.json(['lock', 'status']))['changes']).toEqual([]);
    writeFileSync(file, `${readFileSync(file, 'utf8')}# changed\n`);
    const { code, stderr } = await here.rye(use, { env });
    expect(code).toBe(3);
    expect(stderr).toContain('[content_modified]');
  });

  it('refuses tiers and unknown names, and writes nothing', async () => {
    const here = await workspace();
    for (const [name, code, words] of [
      ['high', 2, 'is a tier'],
      ['claude-sonet-5-5', 6, 'Did you mean claude-sonnet-5-5?'],
      ['nope', 6, 'no provider offers'],
    ] as const) {
      const result = await here.rye(['models', 'use', name], { env });
      expect(result.code, name).toBe(code);
      expect(result.stderr).toContain(words);
    }
    expect(existsSync(path.join(here.home, FILE))).toBe(false);
  });

  it('names a missing key, and a run then states which variable to set', async () => {
    const here = await workspace();
    const { code, stderr } = await here.rye(['models', 'use', 'openai']);
    expect([code, stderr]).toEqual([
      0,
      'hint: The provider openai has no key. See: rye models list\n',
    ]);
    const run = await here.rye(['ask', 'Why?']);
    expect([run.code, run.stderr.includes('OPENAI_API_KEY')]).toEqual([7, true]);
  });
});
