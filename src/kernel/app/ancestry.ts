import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { EXIT, RyeError } from '../core/errors.ts';
import type { ThreadRecord } from '../core/thread.ts';
import type { Store } from '../storage/store.ts';
import { isMarked } from '../tools/tool-mark.ts';

/** A process above this one. */
interface Ancestor {
  readonly pid: number;
  readonly parent: number;
  /** The thread whose tool started it, from its first environment. */
  readonly threadId?: string;
}

const MAX_DEPTH = 256;

/** Acts that are for people alone, as a refusal names them. */
type PersonalAct =
  | 'decide'
  | 'change keys'
  | 'accept files'
  | 'sign'
  | 'refresh a plan'
  | 'change or start schedules';

/**
 * Refuses an act inside a thread: if a process above this one runs a thread, or was started by a tool of one. A new
 * session and an empty environment change neither. Throws `approval_refused`.
 */
export async function assertOutsideThreads(
  { registry, owners }: Pick<Store, 'registry' | 'owners'>,
  env: Readonly<Record<string, string | undefined>>,
  act: PersonalAct = 'decide',
): Promise<void> {
  const above = assertOutsideTools(env, act);
  const pids = new Set(above.map(({ pid }) => pid));
  for (const record of await activeThreads(registry)) {
    const owner = owners.ofRecord(record);
    const pid = owner && owners.pidOf(owner);
    if (!owner || pid === undefined || !pids.has(pid)) continue;
    if (owners.state(owner) !== 'gone') throw refused(record.thread_id, act);
  }
}

/** A store that a file without a trusted signature names runs no threads for this user: none is above this process. */
async function activeThreads(registry: Store['registry']): Promise<readonly ThreadRecord[]> {
  try {
    return await registry.list({ active: true });
  } catch (error) {
    if (error instanceof RyeError && error.exitCode === EXIT.integrity) return [];
    throw error;
  }
}

/**
 * Refuses an act in a process that a tool of a thread started, without a look at the registry. Returns the processes above
 * this one.
 */
export function assertOutsideTools(
  env: Readonly<Record<string, string | undefined>>,
  act: PersonalAct,
): readonly Ancestor[] {
  const own = env['RYE_THREAD_ID'];
  if (own !== undefined && own !== '') throw refused(own, act);
  if (process.platform === 'linux') assertUnmarked(act);
  const above = ancestors(process.ppid);
  const marked = above.find(({ threadId }) => threadId !== undefined);
  if (marked?.threadId !== undefined) throw refused(marked.threadId, act);
  return above;
}

/** An orphan has no ancestor that would tell, but the mark of the tool that left it. Without `/proc` nothing can be told. */
function assertUnmarked(act: PersonalAct): void {
  if (isMarked('self')) throw refused(undefined, act);
  if (procAncestor(process.pid)?.pid === undefined) {
    throw new RyeError(
      'approval_refused',
      `/proc does not show this process: rye cannot tell whether a thread started it`,
      {
        hint: 'Do it in your own shell, outside of the thread.',
      },
    );
  }
}

function refused(threadId: string | undefined, act: PersonalAct): RyeError {
  return new RyeError(
    'approval_refused',
    `this process was started by ${threadId === undefined ? 'a tool of a thread' : `the thread ${threadId}`}: a thread cannot ${act}`,
    {
      hint: 'Do it in your own shell, outside of the thread.',
      ...(threadId === undefined ? {} : { details: { thread_id: threadId } }),
    },
  );
}

function ancestors(first: number): readonly Ancestor[] {
  const found: Ancestor[] = [];
  for (let pid = first; pid > 1 && found.length < MAX_DEPTH; ) {
    const one = process.platform === 'linux' ? procAncestor(pid) : psAncestor(pid);
    if (!one) break;
    found.push(one);
    pid = one.parent;
  }
  return found;
}

function procAncestor(pid: number): Ancestor | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const [, parent] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const threadId = markOf(pid);
    return { pid, parent: Number(parent), ...(threadId === undefined ? {} : { threadId }) };
  } catch {
    return undefined;
  }
}

/** The thread in a process's first environment, which the process itself cannot take out. */
function markOf(pid: number): string | undefined {
  return firstValue(pid, 'RYE_THREAD_ID');
}

/** A variable with which a process was started, as every process of the user can read it; undefined if it is empty. */
function firstValue(pid: number, name: string): string | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/environ`, 'utf8');
    const entry = text.split('\0').find((one) => one.startsWith(`${name}=`));
    return entry?.slice(name.length + 1) || undefined;
  } catch {
    return undefined; // it belongs to another user
  }
}

/**
 * Returns the process, this one or one above it, in whose environment every tool without a sandbox can read the signing key;
 * undefined if none shows it. rye hides its own; the shell of a job cannot.
 */
export function showsSigningKey(
  env: Readonly<Record<string, string | undefined>>,
): number | undefined {
  if (env['RYE_SIGNING_KEY']?.includes('PRIVATE KEY') !== true) return undefined;
  return [process.pid, ...ancestors(process.ppid).map(({ pid }) => pid)].find(showsKey);
}

function showsKey(pid: number): boolean {
  return (
    firstValue(pid, 'RYE_SIGNING_KEY')?.includes('PRIVATE KEY') ?? process.platform !== 'linux'
  );
}

function psAncestor(pid: number): Ancestor | undefined {
  try {
    const text = execFileSync('ps', ['-o', 'ppid=', '-p', String(pid)], {
      encoding: 'utf8',
      env: { LC_ALL: 'C', PATH: '/usr/bin:/bin' },
    });
    return { pid, parent: Number(text.trim()) };
  } catch {
    return undefined;
  }
}
