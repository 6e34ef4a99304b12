import { createHash } from 'node:crypto';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { digestSigned } from '../../src/kernel/trust/signed-digest-fs.ts';
import { removeFolder } from '../helpers/remove-folder.ts';

const LINE = '<!-- rye:signed:v2:anything -->\n';
const MANY = 'words of an export\n'.repeat(50_000);

it.each([
  ['a signed file', `${LINE}text\n`, LINE, 'text\n'],
  ['a signed file of many chunks', `${LINE}${MANY}`, LINE, MANY],
  ['a signature alone', LINE, LINE, ''],
  ['an unsigned file', MANY, '', MANY],
  ['a file of one long line', 'x'.repeat(600_000), '', 'x'.repeat(600_000)],
  ['an empty file', '', '', ''],
])('%s has its line and the hash of what is below', async (_, text, line, content) => {
  const folder = mkdtempSync(path.join(tmpdir(), 'rye-digest-'));
  onTestFinished(() => removeFolder(folder));
  const file = path.join(folder, 'export.md');
  writeFileSync(file, text);
  const sha256 = createHash('sha256').update(content).digest('hex');
  expect(await digestSigned(file)).toEqual({ line, sha256 });
});
