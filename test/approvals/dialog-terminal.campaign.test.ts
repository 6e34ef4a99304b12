import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { openTerminal } from '../helpers/terminal.ts';
import { calls, type House, house, marks, payloads } from './house.ts';

async function terminalOf(here: House, env: Readonly<Record<string, string>> = {}) {
  const { project: cwd, home } = here;
  const terminal = await openTerminal({ cwd, home, columns: 100, env: { ...here.env, ...env } });
  onTestFinished(() => terminal.close());
  return terminal;
}

it('e at a terminal lends it to $EDITOR, and the changed input runs', async () => {
  const here = await house(calls(marks('mark')));
  const editor = join(here.home, 'editor');
  // reads a word from the terminal, as an editor reads its keys
  const script = `#!/bin/sh\nprintf 'EDITING> '\nread -r word < /dev/tty\nsed -i "s/mark/$word/" "$1"\n`;
  writeFileSync(editor, script);
  chmodSync(editor, 0o700);
  const terminal = await terminalOf(here, { EDITOR: editor });
  terminal.run('run pusher');
  await terminal.shows(/y once/);
  terminal.press('e');
  await terminal.shows('EDITING>');
  terminal.press('other', 'Enter');
  await terminal.shows('exit=0');
  expect([here.file('mark'), here.file('other')]).toEqual([undefined, 'ran\n']);
  expect(JSON.stringify(here.bodies.at(-1)?.messages)).toContain('A person approved this call');
}, 240_000);

it('an editor that fails decides nothing: the request can be denied with a reason afterwards', async () => {
  const here = await house(calls(marks('mark')));
  const terminal = await terminalOf(here, { EDITOR: 'false' });
  terminal.run('run pusher --thread-id t');
  await terminal.shows(/y once/);
  terminal.press('e');
  await terminal.shows('The editor failed: false');
  terminal.press('n');
  await terminal.shows(/reason/i);
  terminal.press('Enough', 'Enter');
  await terminal.shows('exit=0');
  expect(here.file('mark')).toBeUndefined();
  expect(payloads(here.log('t'), 'approval_decided')).toMatchObject([
    { outcome: 'denied', decisions: [{ decision: { comment: 'Enough' } }] },
  ]);
}, 240_000);
