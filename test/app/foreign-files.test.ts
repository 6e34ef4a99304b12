import { mkdirSync, mkdtempSync, realpathSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { foreignFiles } from '../../src/kernel/app/verification/parts.ts';
import { removeFolder } from '../helpers/remove-folder.ts';

const FOLDER = '.ai/state/threads/t';

it.each([
  ['thread.json', true],
  ['plan.json', true],
  ['plan-0123456789abcdef.json', true],
  ['plan-x.json', false],
  ['capabilities.md', true],
  ['transcript.jsonl', true],
  ['transcript.jsonl.gz', true],
  ['transcript.unsigned-7.jsonl', true],
  ['lease.json', true],
  ['.rye-x.tmp', true],
  ['notes.md', false],
  ['thread.json.bak', false],
  ['artifacts/named.txt', true],
  ['artifacts/delivery-3.txt', true],
  ['artifacts/other.txt', false],
  ['artifacts/not-delivery-3.txt', false],
  ['other-thread/notes.md', true],
])('%s belongs to a thread: %s', (name, isOwn) => {
  const projectPath = realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-parts-')));
  onTestFinished(() => removeFolder(projectPath));
  const folder = path.join(projectPath, FOLDER);
  const file = path.join(folder, name);
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, 'x');
  const examined = {
    workspace: { options: { projectPath } },
    files: { folder: () => folder },
    threadId: 't',
  } as unknown as Parameters<typeof foreignFiles>[0];
  const found = foreignFiles(examined, new Set([`${FOLDER}/artifacts/named.txt`]));
  expect(found).toEqual(isOwn ? [] : [`${file} does not belong to this thread`]);
});
