import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { parseEditOutcomes } from '../../src/index.ts';
import { directive } from '../attacks/lab.ts';
import { calls, type House, house, payloads, toolUse } from './house.ts';

const EDITS = [
  { old_string: 'one', new_string: 'eins' },
  { old_string: 'two', new_string: 'zwei' },
  { old_string: 'three', new_string: 'drei' },
];

/** A house whose model asks for three edits of one file; the call asks. */
async function editing(edits: readonly object[] = EDITS): Promise<House> {
  const input = { path: 'a.txt', edits: edits.map((one) => ({ ...one })) };
  const here = await house(calls(toolUse('rye_file_system_multi_edit', input)));
  writeFileSync(join(here.project, 'a.txt'), 'one\ntwo\nthree\n');
  here.signed(
    'directives/editor.md',
    directive('editor', {
      permissions: '<execute><tool ask="true">rye/file-system/multi_edit</tool></execute>',
    }),
  );
  return here;
}

it('one signed decision approves some edits of a call and denies the others', async () => {
  const here = await editing();
  const { threadId, id } = await here.asks('editor');
  await here.json(['approve', id, '--hunks', '1,3', '--comment', 'Keep two.', '--no-resume']);
  await here.json(['threads', 'resume', threadId]);
  expect(here.file('a.txt')).toBe('eins\ntwo\ndrei\n');
  const wire = JSON.stringify(here.bodies.at(-1)?.messages);
  expect(wire).toContain(
    'Edited a.txt: 2/3 applied · 1 denied\\nhunk 1: applied\\nhunk 2: denied: Keep two.\\nhunk 3: applied',
  );
  const outcomes = [
    { hunk: 1, outcome: 'applied' },
    { hunk: 2, outcome: 'denied' },
    { hunk: 3, outcome: 'applied' },
  ];
  expect(payloads(here.log(threadId), 'approval_decided')).toHaveLength(1);
  expect(await here.json(['verify', 'thread', threadId])).toMatchObject({ success: true });
  // a program that replays the transcript reads the same from the text
  const results = here.bodies.at(-1)?.messages ?? [];
  const text =
    /Edited a\.txt[^"]*/.exec(JSON.stringify(results))?.[0].replaceAll('\\n', '\n') ?? '';
  expect(parseEditOutcomes(text)).toEqual(outcomes);
});

it('all edits are the call as it was requested', async () => {
  const here = await editing();
  const { threadId, id } = await here.asks('editor');
  await here.json(['approve', id, '--hunks', '3,2,1', '--no-resume']);
  await here.json(['threads', 'resume', threadId]);
  expect(here.file('a.txt')).toBe('eins\nzwei\ndrei\n');
  expect(JSON.stringify(here.bodies.at(-1)?.messages)).not.toContain('denied');
});

it('edits that fail after others were denied are reported, and nothing is written', async () => {
  const here = await editing([
    { old_string: 'one', new_string: 'eins' },
    { old_string: 'eins', new_string: 'uno' },
  ]);
  const { threadId, id } = await here.asks('editor');
  await here.json(['approve', id, '--hunks', '2', '--no-resume']);
  await here.json(['threads', 'resume', threadId]);
  expect(here.file('a.txt')).toBe('one\ntwo\nthree\n');
  expect(JSON.stringify(here.bodies.at(-1)?.messages)).toContain(
    'Edited a.txt: 0/2 applied · 1 denied · 1 failed',
  );
});

it.each(['0', '4', '', 'x', '1,x', '1.5'])('--hunks %j is refused', async (hunks) => {
  const here = await editing();
  const { id } = await here.asks('editor');
  const { code, stderr } = await here.cli(['approve', id, '--hunks', hunks]);
  expect([code, stderr]).toEqual([2, expect.stringContaining('rye deny ID')]);
  expect(await here.waiting()).toHaveLength(1);
});

it('--hunks is refused for a call without several edits, and beside --input', async () => {
  const here = await editing(EDITS.slice(0, 1));
  const { id } = await here.asks('editor');
  expect((await here.cli(['approve', id, '--hunks', '1'])).code).toBe(2);
  expect((await here.cli(['approve', id, '--hunks', '1', '--input', '{}'])).code).toBe(2);
});
