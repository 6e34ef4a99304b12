import { chmod, readFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { RyeError } from '../../../src/kernel/core/errors.ts';
import type { KeepFile } from '../../../src/kernel/core/file-change.ts';
import type { JsonObject } from '../../../src/kernel/core/json.ts';
import { sha256 } from '../../../src/kernel/tools/kept-files.ts';
import { builtin, Project } from '../helpers.ts';

const CALLS: readonly [string, JsonObject][] = [
  ['write', { path: 'a/b/new.txt', content: 'y' }],
  ['write', { path: 'old.txt', content: 'y' }],
  ['edit', { path: 'old.txt', old_string: 'x', new_string: 'y' }],
  ['multi_edit', { path: 'old.txt', edits: [{ old_string: 'x', new_string: 'y' }] }],
];

it.each(CALLS)(
  '%s %j does not write what is cancelled while the old content is kept',
  async (name, input) => {
    await using project = await Project.create({ 'old.txt': 'x' });
    const stop = new AbortController();
    const keep: KeepFile = async () => {
      stop.abort();
      return undefined;
    };
    const context = project.context({ signal: stop.signal });
    const ended = await builtin(name, { keep })
      .execute(input, context)
      .catch((error: unknown) => error);
    expect(JSON.stringify(ended instanceof RyeError ? ended.message : ended)).toContain(
      'cancelled',
    );
    expect(await readFile(project.file('old.txt'), 'utf8')).toBe('x');
    await expect(readFile(project.file('a/b/new.txt'), 'utf8')).rejects.toThrow('ENOENT');
  },
);

it.each(CALLS)('%s %j does not write what could not be kept', async (name, input) => {
  await using project = await Project.create({ 'old.txt': 'x' });
  const full: KeepFile = async () => await Promise.reject(new Error('the disk is full'));
  const { isError, text } = await project.run(name, input, { keep: full });
  expect([isError, text]).toEqual([true, expect.stringContaining('could not be kept for an undo')]);
  expect(await readFile(project.file('old.txt'), 'utf8')).toBe('x');
  // without its log a thread does nothing more
  const log = new RyeError('log_write_failed', 'no log');
  const lost: KeepFile = async () => await Promise.reject(log);
  const ended = project.run(name, input, { keep: lost });
  expect(JSON.stringify(await ended.catch((error: unknown) => (error as Error).message))).toContain(
    'no log',
  );
});

it.each(CALLS)(
  '%s %j tells what the file was and becomes, before it writes',
  async (name, input) => {
    await using project = await Project.create({ 'old.txt': 'x' });
    await chmod(project.file('old.txt'), 0o640);
    const kept: unknown[] = [];
    const keep: KeepFile = async (callId, change, bytes) => {
      kept.push([
        callId,
        change,
        bytes && Buffer.from(bytes).toString(),
        await readFile(project.file('old.txt'), 'utf8'),
      ]);
      return undefined;
    };
    expect((await project.run(name, input, { keep })).isError).toBe(false);
    const isNew = input['path'] !== 'old.txt';
    const mode = isNew ? {} : { mode: 0o640 };
    const before = isNew ? null : { sha256: sha256('x'), bytes: 1, ...mode };
    const change = {
      path: input['path'],
      before,
      after: { sha256: sha256('y'), bytes: 1, ...mode },
      ...(isNew ? { made: ['a', 'a/b'] } : {}),
    };
    expect(kept).toEqual([['call-1', change, isNew ? undefined : 'x', 'x']]);
  },
);
