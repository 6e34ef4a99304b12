import { closeSync, openSync, readFileSync, writeSync } from 'node:fs';
import { isMainThread } from 'node:worker_threads';
import { isShown } from '../tools/passed-variables.ts';

/**
 * Overwrites the environment that this process was started with, except for what tools get anyway: Linux shows it in
 * `/proc/PID/environ` to every program of the same user, such as the tools below it. `env` keeps its values.
 */
export function hideEnvironment(env: NodeJS.ProcessEnv): void {
  // a worker thread has a copy, and would take the values from the others
  if (process.platform !== 'linux' || !isMainThread) return;
  try {
    overwrite(env);
  } catch {
    // a container without /proc/self/mem; rye reports it where a tool could read a key
  }
}

function overwrite(env: NodeJS.ProcessEnv): void {
  const block = readFileSync('/proc/self/environ');
  let start = 0;
  for (const entry of block.toString('latin1').split('\0')) {
    const [name = ''] = entry.split('=', 1);
    const end = start + entry.length;
    if (entry.length > name.length && !isShown(name)) {
      // the C library keeps what is set in other memory; a variable that was deleted since stays so
      if (env[name] !== undefined) Object.assign(env, { [name]: env[name] });
      block.fill('*', start + name.length + 1, end);
    }
    start = end + 1;
  }
  const memory = openSync('/proc/self/mem', 'r+');
  try {
    writeSync(memory, block, 0, block.length, blockStart());
  } finally {
    closeSync(memory);
  }
}

/** The address of the first variable: field 50 of proc(5). The name before field 3 may have spaces. */
function blockStart(): number {
  const stat = readFileSync('/proc/self/stat', 'latin1');
  const address = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[47]);
  if (!Number.isSafeInteger(address) || address <= 0) throw new Error('no address');
  return address;
}
