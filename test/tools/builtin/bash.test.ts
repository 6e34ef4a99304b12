import { expect, it } from 'vitest';
import { inLab } from '../../attacks/lab.ts';

it('each command has a new shell', async () => {
  await inLab(async (lab) => {
    const run = async (command: string): Promise<string> => {
      const request = {
        toolId: 'rye/bash',
        params: { command },
        acknowledge: ['elevated' as const],
      };
      return (await lab.rye().threads.executeTool(request)).result;
    };
    await run('cd / && export LEFT=over && alias gone=true');
    const text = await run('pwd; echo "[${LEFT-none}]"; type gone 2>&1; cat; echo "stdin ended"');
    expect(text).toContain(lab.project);
    expect(text).toMatch(/\[none\]\n.*gone.*not found\nstdin ended/);
  });
});
