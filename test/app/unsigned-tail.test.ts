import { appendFileSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { reply } from '../helpers/wire-server.ts';
import { libraryLab } from './library-lab.ts';

it('an export has nothing of a log that comes after its last signature', async () => {
  const lab = await libraryLab([reply('Signed words.')]);
  await lab.directive('work');
  const rye = lab.open();
  const behavior = { nudge: false };
  await rye.run({ directiveId: 'team/work', threadId: 'job', behavior });
  const file = path.join(lab.project, '.ai/state/threads/job/transcript.jsonl');
  const lines = readFileSync(file, 'utf8').trimEnd().split('\n');
  const last = JSON.parse(lines.at(-1) ?? '') as { seq: number };
  const payload = { text: 'Forged words.' };
  const forged = { ...last, seq: last.seq + 1, event_type: 'note', payload };
  appendFileSync(file, `${JSON.stringify(forged)}\n`);
  for (const format of ['jsonl', 'html', 'md', 'pi'] as const) {
    const { chunks } = await rye.exports.export('job', { format });
    const text = [...chunks].join('');
    expect([format, text.includes('Signed words.'), text.includes('Forged words.')]).toEqual([
      format,
      true,
      false,
    ]);
  }
});
