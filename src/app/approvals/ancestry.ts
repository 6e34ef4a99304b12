import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { EXIT, RyeError } from '../../core/errors.ts';
import type { ThreadRecord } from '../../core/thread.ts';
import type { Store } from '../../storage/store.ts';

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
    if (owners.state(owner) === 'alive') throw refused(record.thread_id, act);
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
  const above = ancestors(process.ppid);
  const marked = above.find(({ threadId }) => threadId !== undefined);
  if (marked?.threadId !== undefined) throw refused(marked.threadId, act);
  return above;
}

function refused(threadId: string, act: PersonalAct): RyeError {
  return new RyeError(
    'approval_refused',
    `this process was started by the thread ${threadId}: a thread cannot ${act}`,
    {
      hint: 'Do it in your own shell, outside of the thread.',
      details: { thread_id: threadId },
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
  try {
    const text = readFileSync(`/proc/${pid}/environ`, 'utf8');
    const mark = text.split('\0').find((entry) => entry.startsWith('RYE_THREAD_ID='));
    const id = mark?.slice('RYE_THREAD_ID='.length) ?? '';
    return id === '' ? undefined : id;
  } catch {
    return undefined; // it belongs to another user
  }
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
