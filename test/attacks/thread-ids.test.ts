import { existsSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { threadIdCandidate } from '../../src/kernel/core/ids.ts';
import { attacks, directive, type Lab, openLab } from './lab.ts';

async function runAs(lab: Lab, ...ids: readonly string[]): Promise<string> {
  await lab.model(() => ({ steps: [{ kind: 'text', chunks: ['Done.'] }] }));
  lab.signed('directives/work.md', directive('work'));
  let status = '';
  for (const threadId of ids) ({ status } = await lab.run('work', { threadId }));
  return status;
}

const RESERVED = [
  'a/transcript.jsonl',
  'a/Thread.JSON',
  'a/plan.json/b',
  'a/capabilities.md',
  'a/artifacts/z',
  'ARTIFACTS',
  'a/lease.json',
  'a/transcript.index',
  'a/transcript.jsonl.gz',
  'a/handover.json.partial',
  'registry.db',
  'registry.db-wal',
  'budget_ledger.db-shm',
  'a.md/b',
  '-x',
  'a/-x',
  '.hidden',
  'x'.repeat(201),
] as const;

describe('a thread id that is a path of rye', () => {
  attacks(
    RESERVED.map((id) => ({
      name: id.slice(0, 40),
      code: 'invalid_thread_id',
      run: async (lab) => await runAs(lab, id),
    })),
  );

  attacks([
    {
      name: 'an id that differs in letter case alone',
      code: 'thread_id_taken',
      run: async (lab) => await runAs(lab, 'Tour', 'tour'),
    },
  ]);

  it.each([[['a', 'a/b']], [['a/b', 'a']]])(
    'leaves nested threads whole, in the order %j',
    async (ids) => {
      const lab = await openLab();
      try {
        expect(await runAs(lab, ...ids)).toBe('completed');
        for (const id of ids) {
          expect((await lab.rye().threads.verify(id)).checks.every(({ ok }) => ok)).toBe(true);
          expect(existsSync(path.join(lab.project, '.ai/state/threads', id, 'thread.json'))).toBe(
            true,
          );
        }
      } finally {
        await lab.remove();
      }
    },
  );

  it.each([
    ['rye/core/hello', /^rye\/core\/hello-[0-9a-z]{4}$/],
    ['team/artifacts/list', /^team\/_artifacts\/list-[0-9a-z]{4}$/],
    ['team/plan.json', /^team\/_plan_json-[0-9a-z]{4}$/],
    ['-x/notes.md', /^_-x\/_notes_md-[0-9a-z]{4}$/],
  ])('is never made from the directive %s', (id, expected) => {
    expect(threadIdCandidate(id, 1000, 1)).toMatch(expected);
  });

  it('gets other letters at each attempt, and more of them when the short ones are taken', () => {
    const ids = Array.from({ length: 8 }, (_, at) => threadIdCandidate('hello', 1000, at + 1));
    expect(new Set(ids).size).toBe(8);
    expect(ids.slice(0, 5).every((id) => /^hello-[0-9a-hjkmnp-tv-z]{4}$/.test(id))).toBe(true);
    expect(ids.slice(5).every((id) => /^hello-[0-9a-hjkmnp-tv-z]{8}$/.test(id))).toBe(true);
  });
});
