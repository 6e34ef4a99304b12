import { type ChildProcess, spawn } from 'node:child_process';

/**
 * Reads `+ GROUP` and `- GROUP` lines; when its input ends, because the process that wrote them is gone however it went,
 * it kills every group that was not taken back. A shell builtin loop: nothing is started but itself.
 */
const SCRIPT = `held=" "
while read -r sign group; do
  if [ "$sign" = + ]; then held="$held$group "; continue; fi
  rest=" "
  for one in $held; do [ "$one" = "$group" ] || rest="$rest$one "; done
  held=$rest
done
for one in $held; do kill -KILL -"$one" 2>/dev/null; done`;

/**
 * Sees to it that no process group outlives this process: a rye that is killed with SIGKILL can end nothing itself any
 * more. Best effort, as the bounds of a call are kept without it: where there is no `sh`, groups are not guarded.
 */
class GroupGuard {
  #guard: ChildProcess | undefined;
  #isOut = process.platform === 'win32';

  hold(group: number): void {
    this.#tell('+', group);
  }

  release(group: number): void {
    if (this.#guard) this.#tell('-', group);
  }

  #tell(sign: '+' | '-', group: number): void {
    if (this.#isOut) return;
    this.#guard ??= this.#start();
    this.#guard.stdin?.write(`${sign} ${group}\n`);
  }

  #start(): ChildProcess {
    // a session of its own: what interrupts rye's terminal must not end the guard
    const guard = spawn('/bin/sh', ['-c', SCRIPT], {
      cwd: '/',
      env: {},
      stdio: ['pipe', 'ignore', 'ignore'],
      detached: true,
    });
    const giveUp = (): void => {
      this.#isOut = true;
    };
    guard.on('error', giveUp);
    guard.on('exit', giveUp);
    guard.stdin?.on('error', giveUp);
    // it ends with this process, which need not wait for it
    guard.unref();
    const { stdin } = guard;
    if (stdin && 'unref' in stdin && typeof stdin.unref === 'function') stdin.unref();
    return guard;
  }
}

/** The guard of this process; started with the first group that it holds. */
export const groupGuard = new GroupGuard();
