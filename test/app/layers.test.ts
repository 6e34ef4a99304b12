import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';
import { libraryLab } from './library-lab.ts';

const WORK = 'team/work';

function configure(project: string, text: string): void {
  const folder = path.join(project, '.ai/config/agent');
  mkdirSync(folder, { recursive: true });
  writeFileSync(path.join(folder, 'resilience.yaml'), text);
}

// Requirement: open-is-lazy
it('openRye writes, starts and reads nothing until something is asked of it', async () => {
  const lab = await libraryLab();
  await lab.directive('work');
  configure(lab.project, 'behavior: {nudge: 7\n');
  const files = () =>
    readdirSync(path.dirname(lab.project), { recursive: true, encoding: 'utf8' }).join('\n');
  const before = files();
  const notices: string[] = [];
  const rye = lab.open({ onNotice: (text) => notices.push(text) });
  expect(files()).toEqual(before);
  expect(lab.server.requests).toEqual([]);
  expect(notices).toEqual([]);
  // the broken configuration is found when it is first needed
  const problem = await rye.threads.plan({ directiveId: WORK }).then(
    () => '',
    (error: unknown) => String(error),
  );
  expect(`${problem}${notices.join('')}`).toContain('resilience');
});

// Requirement: option-precedence
it('a run gets the behavior of its options, else of its directive, else of the configuration', async () => {
  const lab = await libraryLab();
  configure(lab.project, 'behavior: {max_tokens: 100, thinking: minimal, nudge: false}\n');
  await lab.directive('work', [], {
    metadata: '<behavior max_tokens="200" thinking="low"/>',
  });
  const rye = lab.open();
  await rye.items.sign('config', 'agent/resilience');
  const plan = await rye.threads.plan({ directiveId: WORK, behavior: { thinking: 'high' } });
  expect(plan.behavior).toMatchObject({ nudge: false, max_tokens: 200, thinking: 'high' });
});

// Requirement: coerced-input
it('a tool gets its coerced input when the model sends text for a number', async () => {
  const call = calls(toolUse('shop_price', { count: '42', rush: 'yes' }));
  const lab = await libraryLab([call, reply('Done.')]);
  await lab.directive('work', ['shop/price']);
  const got: unknown[] = [];
  const outcome = await lab.open().run({
    directiveId: WORK,
    tools: {
      'shop/price': {
        description: 'A price.',
        inputSchema: {
          type: 'object',
          properties: { count: { type: 'number' }, rush: { type: 'boolean' } },
        },
        traits: { reads_only: true, network: false, risk: 'safe' },
        execute: (input) => {
          got.push(input);
          return 'done';
        },
      },
    },
  });
  expect(outcome).toMatchObject({ kind: 'completed' });
  expect(got).toEqual([{ count: 42, rush: true }]);
});
