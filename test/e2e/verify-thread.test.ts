import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import { openRye } from '../../src/open-rye.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { temporaryWorkspace, type Workspace } from '../helpers/workspace.ts';

let here: Workspace & { readonly remove: () => void };
let rye: Rye;
let id: string;
let transcript: string;
let original: Buffer;

beforeAll(async () => {
  here = await temporaryWorkspace({});
  const run = await here.json(['run', 'hello', '--input', 'who=Ada']);
  id = String(run['thread_id']);
  transcript = (run['paths'] as Record<string, string>)['transcript'] ?? '';
  original = readFileSync(transcript);
  rye = openRye({ projectPath: here.project, userSpacePath: here.home, env: {} });
});

afterAll(() => {
  rye.close();
  here.remove();
});

async function verdictOf(bytes: Uint8Array) {
  writeFileSync(transcript, bytes);
  const { ok, checks } = await rye.threads.verify(id);
  return { ok, offset: checks.find(({ name }) => name === 'transcript')?.offset };
}

function lines(): string[] {
  return original.toString('utf8').split('\n').slice(0, -1);
}

function joined(some: readonly string[]): Buffer {
  return Buffer.from(`${some.join('\n')}\n`);
}

// Requirement: signer-and-log-apart
describe('a finished thread verifies, and fails with the offset after', () => {
  test('nothing', async () => {
    expect(await verdictOf(original)).toEqual({ ok: true, offset: undefined });
  });

  test('any single-byte edit', async () => {
    // every 149th byte, and every fifth of the last line, which is the newest checkpoint
    const tail = original.lastIndexOf(0x0a, original.length - 2) + 1;
    const places = Array.from({ length: Math.ceil(original.length / 149) }, (_, at) => at * 149);
    for (let at = tail; at < original.length; at += 5) places.push(at);
    for (const at of places) {
      const edited = Buffer.from(original);
      edited[at] = (edited[at] ?? 0) ^ 0x01;
      const verdict = await verdictOf(edited);
      expect(verdict, `byte ${at}`).toMatchObject({ ok: false });
      expect(verdict.offset, `byte ${at}`).toBeTypeOf('number');
    }
  });

  test('any removed line', async () => {
    for (const at of lines().keys()) {
      const verdict = await verdictOf(joined(lines().filter((_, line) => line !== at)));
      expect(verdict, `line ${at + 1}`).toMatchObject({ ok: false });
      expect(verdict.offset, `line ${at + 1}`).toBeTypeOf('number');
    }
  });

  test('any two lines in another order', async () => {
    for (let at = 1; at + 1 < lines().length; at += 1) {
      const swapped = lines();
      [swapped[at], swapped[at + 1]] = [swapped[at + 1] ?? '', swapped[at] ?? ''];
      expect(await verdictOf(joined(swapped)), `lines ${at + 1} and ${at + 2}`).toMatchObject({
        ok: false,
      });
    }
  });

  test('a tail that is cut anywhere', async () => {
    for (let cut = original.length - 1; cut > 0; cut -= 499) {
      expect(await verdictOf(original.subarray(0, cut)), `at ${cut}`).toMatchObject({ ok: false });
    }
  });

  test('the log of another thread in its place', async () => {
    writeFileSync(transcript, original);
    const other = await here.json(['run', 'hello', '--input', 'who=Bob']);
    const { transcript: foreign } = other['paths'] as Record<string, string>;
    expect(await verdictOf(readFileSync(String(foreign)))).toMatchObject({ ok: false });
  });
});

describe('readers of an edited log report it and exit with 0', () => {
  test.each([['logs'], ['show'], ['entries'], ['tree']])('threads %s', async (command) => {
    writeFileSync(transcript, original.toString('utf8').replace('Ada', 'Eve'));
    const plain = await here.rye(['threads', command, id, '-q']);
    expect(plain.code).toBe(0);
    expect(plain.stderr).toMatch(
      /^rye: warning: the log of \S+ does not verify from byte \d+: .+ \[transcript_tampered\]$/m,
    );
    const found = await here.json(['threads', command, id]);
    const [marked] = command === 'tree' ? (found['unverified'] as object[]) : [found];
    expect(marked).toMatchObject({ verified: false, unverified_from: expect.any(Number) });
    writeFileSync(transcript, original);
    const intact = await here.rye(['threads', command, id, '-q']);
    expect(intact.stderr).not.toContain('warning');
  });

  test('and verifying names the command that accepts a restored thread', async () => {
    const folder = path.dirname(transcript);
    const kept = path.join(here.home, 'kept');
    cpSync(folder, kept, { recursive: true });
    const [entry] = (await rye.trees.view(id)).rows;
    await rye.trees.label(id, entry?.entry.id ?? '', 'kept');
    removeFolder(folder);
    cpSync(kept, folder, { recursive: true });
    const found = await here.rye(['verify', 'thread', id]);
    expect(found.code).toBe(3);
    expect(found.stdout).toMatch(/^FAIL head: its thread\.json is of .+ \[thread_rolled_back\]$/m);
    expect(found.stderr).toContain(`run: rye verify thread ${id} --accept-head`);
    const resumed = await here.rye(['threads', 'resume', id, '--message', 'Continue.']);
    expect(resumed.code).toBe(3);
    expect(resumed.stderr).toContain('thread_rolled_back');
    const accepted = await here.rye(['verify', 'thread', id, '--accept-head']);
    expect(accepted.code).toBe(0);
    expect(accepted.stdout).toContain('ok   head (accepted by hand)');
  });
});
