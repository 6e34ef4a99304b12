import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/**
 * Reads `+ GROUP`, `+d FOLDER` and `+t FILE` lines, and the same with `-`. When its input ends, because the process that wrote
 * them is gone however it went, it creates every file, kills every group and removes every folder that was not taken back. A
 * shell builtin loop: nothing is started but itself, and `rm` where something is left.
 */
const SCRIPT = `set -f
nl="
"
held=" "
folders=$nl
files=$nl
while read -r sign what; do
  case "$sign" in
  +) held="$held$what " ;;
  -)
    rest=" "
    for one in $held; do [ "$one" = "$what" ] || rest="$rest$one "; done
    held=$rest ;;
  +d) folders="$folders$what$nl" ;;
  -d)
    case "$folders" in
    *"$nl$what$nl"*) folders="\${folders%%"$nl$what$nl"*}$nl\${folders#*"$nl$what$nl"}" ;;
    esac ;;
  +t) files="$files$what$nl" ;;
  -t)
    case "$files" in
    *"$nl$what$nl"*) files="\${files%%"$nl$what$nl"*}$nl\${files#*"$nl$what$nl"}" ;;
    esac ;;
  esac
done
before=$IFS
IFS=$nl
for one in $files; do printf '' >"$one"; done
IFS=$before
for one in $held; do kill -KILL -"$one" 2>/dev/null; done
IFS=$nl
for one in $folders; do /bin/rm -rf -- "$one"; done`;

/**
 * Kills remaining process groups, deletes temporary folders and notes the time if rye dies: after SIGKILL rye itself can no longer do so.
 * Best effort, because calls are bounded without it: it does nothing on systems without `sh`.
 */
class KillGuard {
  #guard: ChildProcess | undefined;
  #isOut = process.platform === 'win32';

  hold(group: number): void {
    this.#tell('+', String(group));
  }

  release(group: number): void {
    if (this.#guard) this.#tell('-', String(group));
  }

  /** `folder` is absolute, and this process alone made it. */
  holdFolder(folder: string): void {
    // one line per path: the protocol cannot express a line feed, so such a folder stays
    if (!folder.includes('\n')) this.#tell('+d', folder);
  }

  releaseFolder(folder: string): void {
    if (this.#guard && !folder.includes('\n')) this.#tell('-d', folder);
  }

  /** Creates `file` when this process dies: its time is the end of all connections. */
  holdMark(file: string): void {
    if (!file.includes('\n')) this.#tell('+t', file);
  }

  releaseMark(file: string): void {
    if (this.#guard && !file.includes('\n')) this.#tell('-t', file);
  }

  #tell(sign: '+' | '-' | '+d' | '-d' | '+t' | '-t', what: string): void {
    if (this.#isOut) return;
    this.#guard ??= this.#start();
    this.#guard.stdin?.write(`${sign} ${what}\n`);
  }

  #start(): ChildProcess {
    // a separate session: an interrupt on rye's terminal must not end the guard
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

/** The guard of this process; started with the first thing that it holds. */
export const killGuard = new KillGuard();

/** A folder that only this user may enter, and that goes with this process however it ends. */
export interface PrivateFolder {
  readonly path: string;
  remove(): Promise<void>;
}

/** Makes a folder whose name begins with `rye-<purpose>-`, below the temporary folder unless another root is given. */
export async function makePrivateFolder(
  purpose: string,
  root: string = tmpdir(),
): Promise<PrivateFolder> {
  const path = await mkdtemp(join(root, `rye-${purpose}-`));
  killGuard.holdFolder(path);
  return {
    path,
    remove: async () => {
      await rm(path, { recursive: true, force: true });
      killGuard.releaseFolder(path);
    },
  };
}
