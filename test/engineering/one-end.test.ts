import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';

const SOURCES = path.resolve(import.meta.dirname, '../../src');
const CALL = /\b(?:registry\.finish|ledger\.(?:release|handOver))\(/g;

/** Files that write a part of a thread's end, with the reason. */
const WRITERS: Readonly<Record<string, readonly string[]>> = {
  // the one writer of all ends
  'kernel/threads/end.ts': ['ledger.release(', 'ledger.handOver(', 'registry.finish('],
  // restores the state of a thread that could not be ended: no end
  'kernel/threads/family/end-children.ts': ['registry.finish('],
  // makes good what a killed process left of an end that the other records have
  'kernel/threads/recovery/recover.ts': ['ledger.release('],
  // returns what a failed resume reserved: no end
  'kernel/threads/recovery/resume.ts': ['ledger.release('],
};

it('one place writes the end of a thread to the registry and the ledger', () => {
  const found: Record<string, readonly string[]> = {};
  for (const name of readdirSync(SOURCES, { recursive: true, encoding: 'utf8' })) {
    if (!name.endsWith('.ts') || name.startsWith('kernel/storage/')) continue;
    const calls = readFileSync(path.join(SOURCES, name), 'utf8').match(CALL);
    if (calls) found[name] = [...calls];
  }
  expect(found).toEqual(WRITERS);
});
