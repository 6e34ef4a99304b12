import { expect, it, onTestFinished } from 'vitest';
import { type Lab, openLab } from '../attacks/lab.ts';

async function lab(): Promise<Lab> {
  const made = await openLab();
  onTestFinished(async () => await made.remove());
  await made.rye().init();
  return made;
}

const RISKY = `export const __version__ = '1.0.0';
export const __tool_description__ = 'Writes.';
export const __traits__ = { reads_only: false, network: false, timeout_seconds: 20, risk: 'elevated' };
export const CONFIG_SCHEMA = {
  type: 'object',
  properties: { n: { type: 'integer' } },
  required: ['n'],
  additionalProperties: false,
};
process.stdout.write(JSON.stringify({ ran: true }));
`;

it.each<[string, string, object, object]>([
  [
    'a risk that no one has accepted',
    'team/risky',
    { params: { n: 1 } },
    { code: 'acknowledge_required' },
  ],
  [
    'a risk of a built-in tool',
    'rye/bash',
    { params: { command: 'true' } },
    { code: 'acknowledge_required' },
  ],
  [
    'the risk of another tool is accepted',
    'team/risky',
    { params: { n: 1 }, acknowledge: ['elevated:team/other'] },
    { code: 'acknowledge_required' },
  ],
  [
    'wrong parameters',
    'team/risky',
    { params: { n: 'many' }, acknowledge: ['elevated'] },
    { code: 'invalid_input' },
  ],
  ['an unsigned tool', 'team/raw', { acknowledge: ['elevated'] }, { code: 'unsigned' }],
  ['no such tool', 'team/none', {}, { code: 'item_not_found' }],
])('a tool outside of a thread is refused: %s', async (_, toolId, request, fault) => {
  const here = await lab();
  here.signed('tools/team/risky.mjs', RISKY);
  here.write('tools/team/raw.mjs', RISKY);
  const run = here.rye().threads.executeTool({ toolId, ...request });
  await expect(run).rejects.toMatchObject(fault);
});

it('a tool outside of a thread runs once its risk is accepted, for this tool or for all', async () => {
  const here = await lab();
  here.sandbox('off');
  here.signed('tools/team/risky.mjs', RISKY);
  for (const risk of ['elevated', 'elevated:team/risky'] as const) {
    const request = { toolId: 'team/risky', params: { n: 1 }, acknowledge: [risk] };
    const result = await here.rye().threads.executeTool(request);
    expect(result).toMatchObject({ success: true, data: { ran: true } });
  }
  const stopped = here.rye().threads.executeTool({
    toolId: 'rye/bash',
    params: { command: 'sleep 20' },
    acknowledge: ['elevated'],
    signal: AbortSignal.timeout(50),
  });
  await expect(stopped).rejects.toMatchObject({ code: 'cancelled' });
});
