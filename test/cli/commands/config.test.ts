import { afterEach, beforeEach, expect, it } from 'vitest';
import { main } from '../../../src/faces/cli/main.ts';
import { readConfigText } from '../../../src/kernel/items/config-yaml.ts';
import { openRye } from '../../../src/open-rye.ts';
import { type Lab, openLab } from '../../attacks/lab.ts';
import { createFakeIo } from '../../helpers/fake-io.ts';

let lab: Lab;

beforeEach(async () => {
  lab = await openLab();
});
afterEach(async () => await lab.remove());

async function show(...args: readonly string[]) {
  const io = createFakeIo({ cwd: lab.project });
  const open = (request: Parameters<typeof openRye>[0]) => Promise.resolve(openRye(request));
  const env = { ...lab.env, HOME: lab.home };
  const code = await main(['config', 'show', ...args], { ...io, env, openRye: open });
  return { code, out: io.out(), err: io.err() };
}

it('shows the values that differ from the defaults, and all of them with --all', async () => {
  expect((await show()).out).toBe('Nothing differs from the defaults\n');
  lab.signed('config/agent/resilience.yaml', 'limits:\n  spend: 0.03\n');
  const differing = await show();
  const rows = (out: string): readonly string[] => out.trimEnd().split('\n');
  expect(rows(differing.out)).toEqual([
    expect.stringMatching(/^PATH +VALUE +FROM$/),
    expect.stringMatching(/^resilience\.limits\.spend +0\.03 +\.ai\/config\/agent\/resilience/),
  ]);
  expect(differing.err).toMatch(/^\d{3} defaults not shown: rye config show --all\n$/);
  const all = await show('--all');
  expect(rows(all.out).length).toBeGreaterThan(200);
  expect(all.err).toBe('');
  const { values } = JSON.parse((await show('--json')).out);
  expect(values).toHaveLength(rows(all.out).length - 1);
});

it('leads from a mistake in a file to its signature', () => {
  const hint = 'Correct the file, then run: rye sign config agent/agent';
  const file = '/home/ada/.ai/config/agent/agent.yaml';
  expect(() => readConfigText('limits: { spend: [\n', file)).toThrow(
    expect.objectContaining({ code: 'config_invalid', hint }),
  );
  expect(() => readConfigText('a: [\n', 'other.yaml')).toThrow(
    expect.objectContaining({ hint: 'Correct the file.' }),
  );
});
