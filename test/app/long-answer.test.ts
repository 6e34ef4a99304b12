import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { says, text } from '../helpers/wire-server.ts';
import { libraryLab } from './library-lab.ts';

/** A line of a log has at most 16 MiB; `npm run test:soak` sends an answer that is longer by itself. */
const MIB = Number(process.env['RYE_ANSWER_MIB'] ?? 0);
const PIECE = 64 * 1024;

it.runIf(MIB > 16)(
  'an answer too long for a line of the log is kept whole beside it, verifies, and is gone on from by its head',
  async () => {
    const count = (MIB * 1024 * 1024) / PIECE;
    const pieces = Array.from({ length: count }, (_, index) => `${index}:`.padEnd(PIECE, '.'));
    const whole = pieces.join('');
    const lab = await libraryLab([{ steps: [text(...pieces)] }, says('Second.')]);
    await lab.directive('work');
    const rye = lab.open();
    const run = await rye.run({ directiveId: 'team/work', behavior: { nudge: false } });
    expect(run.kind).toBe('completed');
    const threadId = String(run.threadId);
    const folder = path.join(lab.project, '.ai/state/threads', threadId);
    const [name, ...others] = readdirSync(path.join(folder, 'artifacts'));
    expect(others).toEqual([]);
    expect(name).toMatch(/^text-[0-9a-f]{32}\.txt$/);
    expect(readFileSync(path.join(folder, 'artifacts', String(name)), 'utf8') === whole).toBe(true);
    const lines = readFileSync(path.join(folder, 'transcript.jsonl'), 'utf8').split('\n');
    expect(Math.max(...lines.map(({ length }) => length))).toBeLessThan(1024 * 1024);
    expect(await rye.threads.verify(threadId)).toMatchObject({ ok: true });
    const resumed = await rye.recovery.resume({ threadId, message: 'Go on.' });
    expect(resumed).toMatchObject({ status: 'completed', result: 'Second.' });
    const sent = JSON.stringify(lab.server.requests[1]?.body.messages);
    expect(sent).toContain(`all of it is in .ai/state/threads/${threadId}/artifacts/${name}`);
    expect(sent.length).toBeLessThan(32 * 1024);
  },
  300_000,
);
