import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';
import { libraryLab } from './library-lab.ts';

const WORK = { directiveId: 'team/work' };
const LS = calls(toolUse('rye_file_system_ls', {}, 'a'));
const CLEAR = { edits: [{ type: 'clear_tool_uses_20250919' }] };
const KEEP = {
  edits: [{ type: 'clear_tool_uses_20250919', keep: { type: 'tool_uses', value: 3 } }],
};

async function labWith(file: object, script = [LS, reply('Done.')]) {
  const lab = await libraryLab(script);
  await lab.directive('work', ['rye/file-system/ls']);
  const folder = path.join(lab.project, '.ai/config/agent/providers');
  mkdirSync(folder, { recursive: true });
  writeFileSync(path.join(folder, 'anthropic.yaml'), JSON.stringify(file));
  const rye = lab.open();
  const [signed] = await rye.items.sign('config', 'agent/providers/anthropic');
  return { lab, rye, signed };
}

describe('extras of the Messages API', () => {
  it('of the provider file and of the run are in each request', async () => {
    const { lab, rye } = await labWith({
      betas: ['one-2026-01-01'],
      headers: { 'Anthropic-Beta': 'zero-2025-01-01' },
      context_management: CLEAR,
    });
    const outcome = await rye.run({ ...WORK, behavior: { betas: ['two-2026-02-02'] } });
    expect(outcome).toMatchObject({ kind: 'completed' });
    expect(lab.server.requests).toHaveLength(2);
    for (const { headers, body } of lab.server.requests) {
      expect(headers['anthropic-beta']).toBe(
        'zero-2025-01-01,one-2026-01-01,two-2026-02-02,context-management-2025-06-27',
      );
      expect(body).toMatchObject({ context_management: CLEAR });
    }
    expect(outcome.thread?.cost).toMatchObject({ turns: 2, input_tokens: 20 });
  });

  it('of the run replace the context management of the file', async () => {
    const { lab, rye } = await labWith({ context_management: CLEAR }, [reply('Done.')]);
    await rye.run({ ...WORK, behavior: { context_management: KEEP } });
    expect(lab.server.requests[0]?.body).toMatchObject({ context_management: KEEP });
  });

  it('are absent without them, so that requests stay as they were', async () => {
    const lab = await libraryLab([reply('Done.')]);
    await lab.directive('work');
    await lab.open().run(WORK);
    const [request] = lab.server.requests;
    expect(request?.headers).not.toHaveProperty('anthropic-beta');
    expect(request?.body).not.toHaveProperty('context_management');
  });

  it('that are wrong are refused with the member', async () => {
    const { signed } = await labWith({ betas: ['a\nb'] }, []);
    expect(signed?.status).toBe('failed');
    expect(JSON.stringify(signed)).toContain('betas');
    const lab = await libraryLab();
    await lab.directive('work');
    expect(await lab.open().run({ ...WORK, behavior: { betas: ['x y'] } })).toMatchObject({
      error: { code: 'usage', message: expect.stringContaining('betas') as string },
    });
  });
});
