import { execFile } from 'node:child_process';
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
import { bundle } from '../helpers/bundle.ts';
import { temporaryFolder } from './support.ts';

/** `npm run test:soak` takes a log that is longer than any string may be (0.5 GiB). */
const MIB = Number(process.env['RYE_LOG_MIB'] ?? 64);
const CHILD = await bundle(fileURLToPath(new URL('log-memory-child.ts', import.meta.url)));
/** Memory of the process itself in MiB: the loader, the modules, one chunk of the log. */
const BARE = 48;

async function child(heapMib: number, ...args: readonly string[]): Promise<unknown> {
  const heap = `--max-old-space-size=${heapMib}`;
  const command = [heap, CHILD, ...args];
  const { stdout } = await promisify(execFile)(process.execPath, command);
  return JSON.parse(stdout);
}

// Requirement: whole-file-string
it('no reader and no writer makes one string of a log', async () => {
  const project = temporaryFolder();
  const bytes = MIB * 1024 * 1024;
  // a heap in which the log has no room at all
  expect(await child(BARE, 'stream', project, `${bytes}`)).toEqual({
    verified: true,
    all: true,
    messages: true,
    found: true,
    reopened: true,
  });
  const log = join(project, '.ai/state/threads/memory/large/transcript.jsonl');
  expect(statSync(log).size).toBeGreaterThan(bytes);
  // one in which its events have room, but not its text too
  expect(await child(BARE + 1.25 * MIB, 'keep', project)).toEqual({ all: true, problems: 0 });
});
