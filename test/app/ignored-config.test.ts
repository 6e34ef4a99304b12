import { rmSync } from 'node:fs';
import { describe, expect, it, onTestFinished } from 'vitest';
import { main } from '../../src/faces/cli/main.ts';
import { openRye } from '../../src/open-rye.ts';
import { type Lab, openLab } from '../attacks/lab.ts';
import { createFakeIo } from '../helpers/fake-io.ts';
import { reply } from '../helpers/wire-server.ts';

async function prepared(): Promise<Lab> {
  const lab = await openLab();
  onTestFinished(async () => await lab.remove());
  await lab.model(() => reply('Done.'));
  return lab;
}

async function rye(lab: Lab, ...args: readonly string[]) {
  const io = createFakeIo({ cwd: lab.project, now: Date.UTC(2026, 0, 2) });
  const env = { ...lab.env, HOME: lab.home };
  const open = (request: Parameters<typeof openRye>[0]) => Promise.resolve(openRye(request));
  const code = await main(args, { ...io, env, openRye: open, openThreadList: open });
  return { code, out: io.out(), err: io.err() };
}

const ZEN = `kind: openai
base_url: https://example.com/v1
models:
  zen-1: { context_window: 1000, max_output_tokens: 100 }
`;
/** Every kind of file that a project may bring and that no command needs. */
const KINDS: Readonly<Record<string, string>> = {
  'agent/providers/zen': ZEN,
  'agent/providers/anthropic': 'base_url: https://example.com\n',
  'agent/prices': 'prices: {}\n',
  mcp: 'servers:\n  files:\n    command: node\n',
  'agent/hooks': 'hooks: []\n',
  'agent/hook_conditions': 'builtin_hooks: []\n',
  'agent/capability_risk': 'risk_levels:\n  write: acknowledge_required\n',
  'agent/resilience': 'limits:\n  turns: 7\n',
  'agent/coordination': 'concurrency: { max_children: 3 }\n',
  'agent/rules': 'enabled: false\n',
  'agent/agent': 'provider:\n  default: anthropic\n',
  'agent/error_classification': 'patterns: []\n',
  interpolation: 'env_allow: [HOME]\n',
};
const BAD = ['{ not: [yaml\n', '', '- 7\n', 'unheard_of: 7\n'];

describe("a project's configuration that no trusted key has signed", () => {
  it('stops no run and is reported once', async () => {
    const lab = await prepared();
    const plan = async (): Promise<readonly string[]> => {
      lab.notices.length = 0;
      await lab.rye().threads.plan({ directiveId: 'hello', inputs: { who: 'Ada' } });
      return lab.notices;
    };
    for (const [id, sound] of Object.entries(KINDS)) {
      const name = `config/${id}.yaml`;
      const shown = new Set<number>();
      const others = id.endsWith('/zen') || id === 'agent/agent' ? BAD : BAD.slice(0, 1);
      for (const text of [sound, ...others]) {
        lab.write(name, text);
        const told = (await plan()).filter((notice) => notice.includes(`${id}.yaml`));
        shown.add(told.length);
      }
      lab.signed(name, sound, lab.stranger);
      shown.add((await plan()).filter((notice) => notice.includes(`${id}.yaml`)).length);
      expect([id, [...shown]]).toEqual([id, [1]]);
      const { problems } = await lab.rye().items.validate({ type: 'config', pattern: `${id}*` });
      const isPower = id !== 'agent/agent' && id !== 'agent/error_classification';
      expect([id, problems.map(({ severity, code }) => `${severity} ${code}`)]).toEqual([
        id,
        isPower ? ['warning key_untrusted'] : [],
      ]);
      rmSync(lab.path(name));
    }
  });

  it('leaves every command as it was, and validate reports it', async () => {
    const lab = await prepared();
    lab.write('config/agent/providers/zen.yaml', ZEN);
    for (const args of [
      ['ask', 'Hi'],
      ['models', 'list'],
      ['threads', 'list'],
    ]) {
      const { code, out } = await rye(lab, ...args);
      expect([args, code, out.includes('zen')]).toEqual([args, 0, false]);
    }
    const { code, out } = await rye(lab, 'validate', 'config', '**');
    expect([code, out]).toEqual([
      0,
      expect.stringMatching(/warning: unsigned: .* is not signed, so it has no effect/),
    ]);
  });

  it('takes its prices and the fallbacks to it away too', async () => {
    const lab = await prepared();
    lab.write('config/agent/providers/zen.yaml', ZEN);
    lab.write('~/.ai/config/agent/prices.yaml', 'prices:\n  zen/zen-1: { input: 1, output: 1 }\n');
    lab.write('~/.ai/config/agent/providers/anthropic.yaml', 'fallback: [zen/zen-1]\n');
    expect(await rye(lab, 'ask', 'Hi')).toMatchObject({ code: 0, out: 'Done.\n' });
    const { code, err } = await rye(lab, 'ask', 'Hi', '--model', 'zen/zen-1');
    expect(code).toBe(6);
    expect(err).toContain('rye sign config agent/providers/zen');
  });

  it('counts once it is signed', async () => {
    const lab = await prepared();
    lab.write('config/agent/providers/zen.yaml', ZEN);
    expect((await rye(lab, 'sign', 'config', 'agent/providers/zen')).code).toBe(0);
    const { out, err } = await rye(lab, 'models', 'list');
    expect([out.includes('zen-1'), err]).toEqual([true, '']);
    expect((await rye(lab, 'validate', 'config', '**')).err).toMatch(/0 errors, 0 warnings/);
  });
});

it("a person's own provider file without a kind is an error that names the file and the line to add", async () => {
  const lab = await prepared();
  lab.write('~/.ai/config/agent/providers/zen.yaml', 'base_url: https://example.com/v1\n');
  const { code, err } = await rye(lab, 'models', 'list');
  expect(code).toBe(2);
  expect(err).toMatch(/providers\/zen\.yaml: provider zen: kind is missing \[config_invalid\]/);
  expect(err).toContain('kind: openai');
});
