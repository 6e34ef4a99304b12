import { expect, it } from 'vitest';
import type { HandlerMap } from '../../src/kernel/hooks/handlers.ts';
import { calls, reply, toolUse, type WireRequest } from '../helpers/wire-server.ts';
import { libraryLab } from './library-lab.ts';

const WORK = { directiveId: 'team/work' };
const LS = 'rye/file-system/ls';

const systemOf = ({ body }: WireRequest): unknown => body['system'];

// Requirement: system-text-per-request
it('a program changes the system text of one request, and the record keeps its own', async () => {
  const lab = await libraryLab([
    calls(toolUse('rye_file_system_ls', {}, 'a')),
    calls(toolUse('rye_file_system_ls', {}, 'b')),
    reply('Done.'),
    reply('Resumed.'),
  ]);
  await lab.directive('work', [LS]);
  const handlers: HandlerMap = {
    system_transform: ({ turn, system }) =>
      turn === 2 ? { system: `${system}\n\nIt rains.` } : undefined,
  };
  const rye = lab.open({ preset: { handlers } });
  const { threadId } = await rye.run(WORK);
  const [first, second, third] = lab.server.requests.map(systemOf);
  const text = JSON.stringify(first);
  expect(JSON.stringify(second)).toContain('It rains.');
  // byte for byte, with its cache mark
  expect(JSON.stringify(third)).toBe(text);
  expect(await rye.threads.verify(String(threadId))).toMatchObject({ ok: true });
  const resumed = await rye.recovery.resume({ threadId: String(threadId), message: 'More.' });
  expect(resumed).toMatchObject({ status: 'completed' });
  expect(JSON.stringify(lab.server.requests.map(systemOf)[3])).toBe(text);
  for await (const event of rye.threads.logs(String(threadId))) {
    expect(JSON.stringify(event)).not.toContain('It rains.');
  }
});

it('an empty system text sends none', async () => {
  const lab = await libraryLab([reply('Done.')]);
  await lab.directive('work');
  const handlers: HandlerMap = { system_transform: () => ({ system: '' }) };
  expect(await lab.open().run({ ...WORK, handlers })).toMatchObject({ kind: 'completed' });
  expect(lab.server.requests[0]?.body).not.toHaveProperty('system');
});
