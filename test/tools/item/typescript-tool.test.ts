import { afterEach, beforeEach, expect, it } from 'vitest';
import { runsTypescript } from '../../../src/kernel/items/tool-runtime.ts';
import { type Lab, openLab } from '../../attacks/lab.ts';

let lab: Lab;
beforeEach(async () => {
  lab = await openLab();
});
afterEach(async () => await lab.remove());

const COUNT = `export const __version__: string = '1.0.0';
export const __tool_description__: string = 'Counts words.';
export const __traits__ = { reads_only: true, network: false, risk: 'safe' } as const;
export const CONFIG_SCHEMA = {
  type: 'object', properties: { text: { type: 'string' } }, required: ['text'],
} satisfies object;
interface Input { text: string }
let all = '';
process.stdin.on('data', (one: Buffer) => { all += one.toString(); });
process.stdin.on('end', () => {
  const { text }: Input = JSON.parse(all);
  console.log(JSON.stringify({ words: text.split(' ').length }));
});
`;

it('a TypeScript tool runs as it is where Node runs TypeScript, and is refused with one sentence elsewhere', async () => {
  lab.sandbox('off');
  lab.write('tools/t/count.ts', COUNT);
  lab.write('tools/t/odd.ts', `enum Color { Red }\n${COUNT}`);
  const [count, odd] = await lab.rye().items.sign('tool', '**');
  if (!runsTypescript(process.versions.node)) {
    const message = `TypeScript does not run on Node ${process.versions.node}`;
    for (const one of [count, odd]) expect(one?.problems).toMatchObject([{ message }]);
    return;
  }
  expect(odd?.problems[0]?.message).toContain('Node cannot run this TypeScript');
  expect(count).toMatchObject({ status: 'signed' });
  const ran = await lab.rye().threads.executeTool({ toolId: 't/count', params: { text: 'a b c' } });
  expect(ran).toMatchObject({ success: true });
  expect(JSON.stringify(ran)).toContain('"words":3');
});
