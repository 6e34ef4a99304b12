import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { expect, it, onTestFinished, vi } from 'vitest';
import { isAlive } from '../../src/tools/leftovers.ts';

it.runIf(process.platform === 'linux')(
  'a process that has ended is not alive, also while its parent has not asked how',
  async () => {
    // the shell becomes a program that never asks how its child ended
    const parent = spawn('sh', ['-c', 'sleep 0 & echo $!; exec sleep 600'], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    onTestFinished(() => void parent.kill('SIGKILL'));
    const [line] = (await once(createInterface(parent.stdout), 'line')) as [string];
    const child = Number(line);
    await vi.waitUntil(() => !isAlive(child), { timeout: 20_000, interval: 10 });
    // it is still in the table: its parent keeps it
    expect(() => process.kill(child, 0)).not.toThrow();
    const pid = parent.pid ?? 0;
    expect(isAlive(pid)).toBe(true);
    expect(isAlive(pid, pid)).toBe(false);
  },
);
