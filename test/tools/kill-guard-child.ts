// A process that runs a tool that hangs or has ended, or that holds folders. `leave` prints its guard's pid and exits.
import { spawn } from 'node:child_process';
import { readdirSync, readFileSync, writeSync } from 'node:fs';
import path from 'node:path';
import { killGuard } from '../../src/kernel/tools/kill-guard.ts';
import { runProcess } from '../../src/kernel/tools/process.ts';

/** The guard's work for what it does not hold must not grow with each line. */
const MANY = 60;
const [mode, seconds] = process.argv.slice(2);

function guardPid(): string {
  const own = ` ${process.pid} `;
  return (
    readdirSync('/proc').find((pid) => {
      try {
        const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
        const isOwn = stat
          .slice(stat.lastIndexOf(')') + 2)
          .slice(1)
          .startsWith(own);
        return isOwn && readFileSync(`/proc/${pid}/cmdline`, 'latin1').includes('sign what');
      } catch {
        return false;
      }
    }) ?? ''
  );
}

const run = (script: string) =>
  runProcess({
    command: '/bin/sh',
    args: ['-c', script],
    cwd: '/',
    env: { PATH: process.env['PATH'] ?? '' },
    timeoutMs: 60_000,
    signal: new AbortController().signal,
    onStdout: () => {
      writeSync(1, 'up\n');
      return undefined;
    },
    onStderr: () => undefined,
  });

if (mode === 'hang') await run(`sleep ${seconds} & echo up; exec sleep ${seconds}`);
else if (mode === 'folders') {
  const folder = (name: string): string => path.join(seconds ?? '', name);
  killGuard.holdFolder(folder('held one'));
  killGuard.holdFolder(folder('given back'));
  killGuard.holdFolder(folder('held two'));
  killGuard.releaseFolder(folder('given back'));
  for (let times = 0; times < MANY; times += 1) killGuard.releaseFolder(folder('never told'));
  // the guard has what was told as soon as the pipe has taken it
  await new Promise(setImmediate);
  writeSync(1, 'up\n');
  setInterval(() => undefined, 1000);
} else if (mode === 'marks') {
  const file = (name: string): string => path.join(seconds ?? '', name);
  for (const name of ['one mark', 'taken back', 'missing/folder', 'two']) {
    killGuard.holdMark(file(name));
  }
  killGuard.releaseMark(file('taken back'));
  for (let times = 0; times < MANY; times += 1) killGuard.releaseMark(file('never held'));
  await new Promise(setImmediate);
  writeSync(1, 'up\n');
  setInterval(() => undefined, 1000);
} else {
  // the guard must not touch a released group, whichever process is in it
  const stray = spawn('sleep', [seconds ?? ''], { detached: true, stdio: 'ignore' });
  stray.unref();
  killGuard.hold(stray.pid ?? 0);
  killGuard.release(stray.pid ?? 0);
  writeSync(1, `${guardPid()}\n`);
}
