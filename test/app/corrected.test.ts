import { expect, it } from 'vitest';
import { directive, openLab } from '../attacks/lab.ts';
import { reply } from '../helpers/wire-server.ts';

it('a program that stays open works again once a broken file is corrected', async () => {
  const lab = await openLab();
  try {
    await lab.model(() => reply('Done.'));
    lab.signed('directives/work.md', directive('work'));
    for (const [file, code, broken, good] of [
      [
        'config/agent/resilience.yaml',
        'invalid_limit',
        'limits: {turns: many}\n',
        'limits: {turns: 3}\n',
      ],
      [
        'config/agent/providers/anthropic.yaml',
        'config_invalid',
        'kind: none\n',
        'kind: anthropic\n',
      ],
    ] as const) {
      const rye = lab.rye();
      const run = async () => await rye.run({ directiveId: 'work' });
      lab.signed(file, broken);
      await rye.lock.accept();
      expect(await run()).toMatchObject({ kind: 'failed', error: { code } });
      lab.signed(file, good);
      await rye.lock.accept();
      expect(await run()).toMatchObject({ kind: 'completed' });
    }
  } finally {
    await lab.remove();
  }
});
