import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { linkSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { buildTree } from '../../src/kernel/log/tree.ts';
import { bundle } from '../helpers/bundle.ts';
import { delta, headerFor, userMessage } from '../log/support.ts';
import { key, openTestStore } from './support.ts';

const store = openTestStore();
const { logs } = store;
const CHILD = await bundle(fileURLToPath(new URL('log-child.ts', import.meta.url)));

function startWriter(threadId: string, limitKiB?: number): ChildProcess {
  const node = [process.execPath, CHILD, store.projectPath, threadId, key.privatePem];
  const [command = '', ...rest] =
    limitKiB === undefined
      ? node
      : ['bash', '-c', `trap '' XFSZ; ulimit -f ${limitKiB}; exec "$@"`, 'bash', ...node];
  return spawn(command, rest, { stdio: ['ignore', 'pipe', 'pipe'] });
}

async function textOf(stream: NodeJS.ReadableStream | null): Promise<string> {
  let text = '';
  if (stream) for await (const chunk of stream) text += String(chunk);
  return text;
}

describe('kill -9', () => {
  it.each([1, 40, 200, 333])(
    'after %i reports loses nothing that was reported',
    async (reports) => {
      const threadId = `killed/after-${reports}`;
      const child = startWriter(threadId);
      let output = '';
      for await (const chunk of child.stdout ?? []) {
        output += String(chunk);
        if (output.split('\n').length > reports) child.kill('SIGKILL');
      }
      if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
      // the last number may be cut: the one before was written whole
      const reported = Number(output.split('\n').at(-2));
      const writer = await logs.reopen(threadId, store.writer({ epoch: 2 }));
      expect(writer.state().events).toBeGreaterThanOrEqual(reported);
      writer.append([userMessage('recovered')]);
      writer.checkpoint();
      const { events } = writer.state();
      await writer.close();
      const log = await logs.read(threadId);
      expect(log.problems).toEqual([]);
      expect(log.events.map(({ seq }) => seq)).toEqual(
        Array.from({ length: events }, (_, index) => index + 1),
      );
      expect(buildTree(log.events).problems).toEqual([]);
    },
  );
});

describe('a full disk', () => {
  it('ends the log for good with log_write_failed and leaves whole records only', async () => {
    const child = startWriter('full/disk', 64);
    const [, errors] = await Promise.all([textOf(child.stdout), textOf(child.stderr)]);
    expect(JSON.parse(errors)).toMatchObject({
      code: 'log_write_failed',
      message: expect.stringContaining('EFBIG'),
      later: ['log_write_failed', 'log_write_failed', 'log_write_failed'],
    });
    expect(await logs.holder('full/disk')).toBeUndefined();
    const log = await logs.read('full/disk');
    expect(log.problems).toEqual([]);
    expect(log.events.length).toBeGreaterThan(10);
    const writer = await logs.reopen('full/disk', store.writer({ epoch: 2 }));
    writer.append([userMessage('room again')]);
    await writer.close();
  });

  it('is named when not even the header fits', async () => {
    const path = logs.location('full/device');
    mkdirSync(dirname(path), { recursive: true });
    symlinkSync('/dev/full', path);
    // a device has no size, so it passes for the empty file of a crash: the header is the first to fail
    const create = async (): Promise<unknown> =>
      await logs.create(headerFor('full/device'), store.writer());
    await expect(create).rejects.toThrow(
      expect.objectContaining({
        code: 'log_write_failed',
        message: expect.stringContaining('ENOSPC'),
      }),
    );
    expect(await logs.holder('full/device')).toBeUndefined();
  });
});

describe('two threads of one process', () => {
  it('do not disturb each other', async () => {
    const one = await logs.create(headerFor('pair/one'), store.writer());
    const two = await logs.create(headerFor('pair/two'), store.writer());
    for (let turn = 0; turn < 20; turn += 1) {
      one.append([delta(`${turn}`)]);
      two.append([userMessage(`${turn}`)]);
    }
    for (const writer of [one, two]) {
      writer.checkpoint();
      const expected = writer.state();
      await writer.close();
      expect(
        await logs.verify(writer.threadId, { verifier: key.verifier, expected }),
      ).toMatchObject({ ok: true });
    }
  });

  it('cannot exchange their logs', async () => {
    const folder = dirname(logs.location('pair/three'));
    mkdirSync(folder, { recursive: true });
    linkSync(logs.location('pair/two'), join(folder, 'transcript.jsonl'));
    expect(readFileSync(logs.location('pair/three'), 'utf8')).toContain('pair/two');
    expect(await logs.verify('pair/three', { verifier: key.verifier })).toMatchObject({
      ok: false,
      offset: 0,
    });
  });
});
