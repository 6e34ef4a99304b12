import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import { calls, reply, toolUse, type WireTurn } from '../helpers/wire-server.ts';
import { libraryLab } from './library-lab.ts';

const FILE_TOOLS = ['rye/file-system/read', 'rye/file-system/edit'];
/** 20 KiB of numbered text. */
const LONG = Array.from({ length: 1024 }, (_, line) => `line ${line}`.padEnd(19, '.')).join('\n');

const read = (file: string, id: string): WireTurn =>
  calls(toolUse('rye_file_system_read', { path: file }, id));
const edit = (file: string, id: string): WireTurn =>
  calls(
    toolUse(
      'rye_file_system_edit',
      { path: file, old_string: 'line 7.', new_string: 'LINE 7.' },
      id,
    ),
  );

/** The messages of each request, without the marks that move on. */
async function requests(behavior: JsonObject, turns: readonly WireTurn[]) {
  const lab = await libraryLab([...turns, reply('Done.')]);
  for (const file of ['a.txt', 'b.txt']) writeFileSync(path.join(lab.project, file), LONG);
  await lab.directive('work', FILE_TOOLS);
  expect(await lab.open().run({ directiveId: 'team/work', behavior })).toMatchObject({
    kind: 'completed',
  });
  return lab.server.requests.map(({ body }) =>
    (body.messages ?? []).map((message) =>
      JSON.stringify(message).replaceAll(/,?"cache_control":\{"type":"ephemeral"\}/g, ''),
    ),
  );
}

/** Counts the leading messages that a request shares with the one before it. */
function shared(before: readonly string[] = [], now: readonly string[] = []): number {
  const first = before.findIndex((message, index) => message !== now[index]);
  return first === -1 ? before.length : first;
}

// Requirement: old-results-dropped
it('a read of a file that was changed since leaves the request, once, and a new read is whole', async () => {
  const sent = await requests({ elide_stale_reads: true }, [
    read('a.txt', 'first'),
    read('b.txt', 'other'),
    edit('a.txt', 'change'),
    read('a.txt', 'again'),
    read('b.txt', 'same'),
  ]);
  const [, , , afterEdit, , last] = sent;
  expect(sent[2]?.[2]).toContain('line 900');
  expect(afterEdit?.[2]).toContain('the file was changed after this read');
  expect(afterEdit?.[2]).not.toContain('line 900');
  expect(afterEdit?.[4]).toContain('line 900');
  expect(last?.[8]).toContain('LINE 7.');
  // the other file's text is still in view, but nothing refers to text from before a change of the view
  expect(last?.[10]).toContain('line 900');
  // one step: every other request begins with the whole one before it
  const kept = sent.map((messages, index) => shared(sent[index - 1], messages));
  expect(kept).toEqual([0, 1, 3, 2, 7, 9]);
});

// Requirement: old-results-dropped
it('old results leave in steps: between two of them every request begins with the one before', async () => {
  const reads = Array.from({ length: 12 }, (_, index) =>
    read(index % 2 === 0 ? 'a.txt' : 'b.txt', `r${index}`),
  );
  const behavior = {
    dedup_reads: false,
    loop_repeats: 0,
    compact_strategy: 'tail',
    compact_threshold: 80 * 1024,
    compact_keep_turns: 2,
  };
  const sent = await requests(behavior, reads);
  const steps = sent.flatMap((messages, index) => {
    const before = sent[index - 1] ?? [];
    return shared(before, messages) < before.length ? [index] : [];
  });
  expect(steps.length).toBeGreaterThan(1);
  expect(steps.length).toBeLessThan(6);
  const bytes = sent.map((messages) => messages.join('').length);
  expect(Math.max(...bytes)).toBeLessThan(140 * 1024);
});
