import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { Duplex } from 'node:stream';
import { expect, it, onTestFinished, vi } from 'vitest';
import { isAlive } from '../../src/kernel/tools/leftovers.ts';

it.runIf(process.platform === 'linux')(
  'a process that has ended is not alive, also while its parent has not asked how',
  async () => {
    // the shell becomes a program that never asks how its child ended; the child reads until the test lets it end
    const script = 'cat <&3 >/dev/null & echo $!; exec sleep 600 3<&-';
    const parent = spawn('sh', ['-c', script], { stdio: ['ignore', 'pipe', 'inherit', 'pipe'] });
    onTestFinished(() => void parent.kill('SIGKILL'));
    const [, stdout, , input] = parent.stdio;
    if (!stdout || !(input instanceof Duplex)) throw new Error('no pipes');
    const [line] = (await once(createInterface(stdout), 'line')) as [string];
    const child = Number(line);
    const name = (): string => readFileSync(`/proc/${parent.pid}/comm`, 'utf8').trim();
    await vi.waitUntil(() => name() === 'sleep', { timeout: 20_000, interval: 5 });
    expect(isAlive(child)).toBe(true);
    input.end();
    await vi.waitUntil(() => !isAlive(child), { timeout: 20_000, interval: 10 });
    // it is still in the table: its parent keeps it
    expect(() => process.kill(child, 0)).not.toThrow();
    const pid = parent.pid ?? 0;
    expect(isAlive(pid)).toBe(true);
    expect(isAlive(pid, pid)).toBe(false);
  },
);
