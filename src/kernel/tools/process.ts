import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { messageOf, RyeError, systemCodeOf } from '../core/errors.ts';
import { absoluteSearchPath } from '../core/text.ts';
import { killGuard } from './kill-guard.ts';
import { endLeftovers, isAlive, type Leftover, processIds } from './leftovers.ts';
import { CALL_VARIABLE, isPassed } from './passed-variables.ts';
import { startTimer } from './timer.ts';
import type { ToolContext } from './tool.ts';
import { isRunnable, markedProgram } from './tool-mark.ts';

/** Time between SIGTERM and SIGKILL for a process group. */
const KILL_GRACE_MS = 2000;
/** Milliseconds to wait for output of processes that outlive a finished child. */
const LINGER_MS = 200;

export interface ProcessRequest {
  readonly command: string;
  readonly args: readonly string[];
  readonly cwd: string;
  /** The whole environment of the child; see {@link childEnvironment}. */
  readonly env: Readonly<Record<string, string>>;
  /** Written to stdin, which is then closed; absent: stdin is empty. */
  readonly stdin?: string;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
  /** Receives output as it comes; must bound what it keeps. Returning false stops the process. */
  readonly onStdout: (chunk: Buffer) => boolean | undefined;
  readonly onStderr: (chunk: Buffer) => boolean | undefined;
  /** Puts the command into a sandbox; absent: it runs as it is. */
  readonly confine?: Confine | undefined;
  /** The private folder that it is started from, which a sandbox leaves readable. */
  readonly programFolder?: string | undefined;
}

/** The command to start instead, which confines the original one. */
export interface ConfinedCommand {
  readonly command: string;
  readonly args: readonly string[];
  /** Returns a sentence about the limit that a part of its output speaks of; undefined if it speaks of none. */
  readonly explain: (output: string) => string | undefined;
  /** Called when the command has ended. Resolves to a sentence about what was taken back, for its stderr. */
  readonly release: () => Promise<string | undefined>;
}

/** Finds how to start a command confined; undefined: it runs as it is. May refuse with `sandbox_unavailable`. */
export type Confine = (
  request: Pick<ProcessRequest, 'command' | 'args' | 'signal' | 'programFolder'>,
) => Promise<ConfinedCommand | undefined>;

export interface ProcessResult {
  /** null when a signal ended it. */
  readonly exitCode: number | null;
  readonly exitSignal: string | null;
  /** Why it was stopped from outside, if it was. */
  readonly stopped: 'timeout' | 'aborted' | 'output' | undefined;
  readonly durationMs: number;
  /** Processes of the call that could not be ended. */
  readonly leftovers: readonly Leftover[];
}

/**
 * Runs a child in its own process group. On timeout or abort the whole group gets SIGTERM and after two seconds
 * SIGKILL. Processes that outlive a finished child end the same way: those in its group, and on Linux those that left it and
 * kept their environment.
 * A child that closes stdin early is no error. Throws `spawn_failed` when it cannot be started.
 */
export async function runProcess(request: ProcessRequest): Promise<ProcessResult> {
  const confined = await request.confine?.(request);
  if (confined === undefined) {
    const isOfThread = request.env['RYE_THREAD_ID'] !== undefined;
    return await runGroup(isOfThread ? { ...request, ...markedProgram(request) } : request);
  }
  let limit: string | undefined;
  const tell = (line: string | undefined): void => {
    if (line !== undefined) request.onStderr(Buffer.from(`${line}\n`));
  };
  const watched = (take: ProcessRequest['onStdout']) => (chunk: Buffer) => {
    limit ??= confined.explain(chunk.toString('latin1'));
    return take(chunk);
  };
  try {
    if (!isRunnable(request)) throw notStarted(request.command, NOT_FOUND);
    const { command, args } = confined;
    const [onStdout, onStderr] = [watched(request.onStdout), watched(request.onStderr)];
    const result = await runGroup({ ...request, command, args, onStdout, onStderr });
    if (result.exitCode !== 0) tell(limit);
    return result;
  } finally {
    tell(await confined.release());
  }
}

async function runGroup(request: ProcessRequest): Promise<ProcessResult> {
  const started = performance.now();
  if (request.signal.aborted) {
    return { exitCode: null, exitSignal: null, stopped: 'aborted', durationMs: 0, leftovers: [] };
  }
  const call = randomUUID();
  const child = await start({ ...request, env: { ...request.env, [CALL_VARIABLE]: call } });
  let stopped: ProcessResult['stopped'];
  const stop = (reason: NonNullable<ProcessResult['stopped']>) => {
    if (stopped !== undefined) return;
    stopped = reason;
    void endGroup(child);
  };
  const timer = startTimer(request.timeoutMs, () => stop('timeout'));
  const onAbort = () => stop('aborted');
  request.signal.addEventListener('abort', onAbort, { once: true });
  // An abort between the check above and the listener would otherwise be missed.
  if (request.signal.aborted) onAbort();
  child.stdout?.on('data', (chunk: Buffer) => {
    if (request.onStdout(chunk) === false) stop('output');
  });
  child.stderr?.on('data', (chunk: Buffer) => {
    if (request.onStderr(chunk) === false) stop('output');
  });
  const closed = new Promise<void>((resolve) => child.once('close', () => resolve()));
  try {
    const { code, signal } = await new Promise<{ code: number | null; signal: string | null }>(
      (resolve) => {
        child.once('exit', (exitCode, exitSignal) =>
          resolve({ code: exitCode, signal: exitSignal }),
        );
      },
    );
    await settleGroup(child, closed);
    const graceMs = isHurried ? 0 : KILL_GRACE_MS;
    const leftovers = await endLeftovers({ call, after: child.pid ?? 0, graceMs });
    const durationMs = Math.round(performance.now() - started);
    return { exitCode: code, exitSignal: signal, stopped, durationMs, leftovers };
  } finally {
    if (child.pid !== undefined) killGuard.release(child.pid);
    timer.stop();
    request.signal.removeEventListener('abort', onAbort);
    child.stdout?.destroy();
    child.stderr?.destroy();
  }
}

async function start(request: ProcessRequest): Promise<ChildProcess> {
  let child: ChildProcess;
  try {
    child = spawn(request.command, [...request.args], {
      cwd: request.cwd,
      env: request.env,
      stdio: [request.stdin === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
      detached: true,
      windowsHide: true,
    });
  } catch (error) {
    throw spawnFailed(request.command, error);
  }
  await new Promise<void>((resolve, reject) => {
    child.once('spawn', resolve);
    child.once('error', (error) => reject(spawnFailed(request.command, error)));
  });
  hurryWith(child);
  if (child.pid !== undefined) killGuard.hold(child.pid);
  // after the start an error is a failed signal; the exit status shows the rest
  child.on('error', () => undefined);
  if (child.stdin !== null) {
    // EPIPE: the child did not want to read.
    child.stdin.on('error', () => undefined);
    child.stdin.end(request.stdin ?? '');
  }
  return child;
}

function spawnFailed(command: string, error: unknown): RyeError {
  const code = systemCodeOf(error);
  if (code === 'ENOENT') return notStarted(command, NOT_FOUND);
  return notStarted(command, code === 'EACCES' ? 'it is not executable' : messageOf(error));
}

const NOT_FOUND = 'the program, or the folder to run it in, was not found';

function notStarted(command: string, reason: string): RyeError {
  return new RyeError(
    'spawn_failed',
    `${JSON.stringify(command)} could not be started: ${reason}`,
    { hint: 'Check that the program is installed and on PATH.' },
  );
}

/** Ends the processes that outlive an exited child in its group, and waits for their output. */
async function settleGroup(child: ChildProcess, closed: Promise<void>): Promise<void> {
  await Promise.race([closed, pause(LINGER_MS)]);
  await endGroup(child);
  await Promise.race([closed, pause(LINGER_MS)]);
}

/** Leaders of groups that were started here and run. */
const live = new Set<ChildProcess>();
let isHurried = false;

/** Puts the group of a started child among those that {@link hurryGroups} kills, until the child is gone. */
export function hurryWith(child: ChildProcess): void {
  live.add(child);
  child.once('exit', () => live.delete(child));
}

/** Kills the groups of all calls under way; from now on groups get no time between SIGTERM and SIGKILL. */
export function hurryGroups(): void {
  isHurried = true;
  for (const child of live) signalGroup(child, 'SIGKILL');
}

const ending = new WeakMap<ChildProcess, Promise<void>>();

/** SIGTERM to the group, SIGKILL after the grace; resolves when no member is left. Safe to call twice. */
export function endGroup(child: ChildProcess): Promise<void> {
  const running = ending.get(child) ?? endGroupOnce(child);
  ending.set(child, running);
  return running;
}

async function endGroupOnce(child: ChildProcess): Promise<void> {
  if (!signalGroup(child, 'SIGTERM')) return;
  const deadline = performance.now() + (isHurried ? 0 : KILL_GRACE_MS);
  for (let wait = 5; performance.now() < deadline; wait = Math.min(wait * 2, 100)) {
    await pause(wait);
    if (!groupAlive(child)) return;
  }
  signalGroup(child, 'SIGKILL');
  for (let attempt = 0; attempt < 100 && groupAlive(child); attempt += 1) await pause(10);
}

/**
 * Returns true if a member of the group still runs. A killed orphan stays a zombie until init collects it, which can take
 * seconds; zombies hold nothing, so they do not count on systems with a /proc.
 */
function groupAlive(child: ChildProcess): boolean {
  if (!signalGroup(child, 0)) return false;
  if (process.platform !== 'linux') return true;
  return processIds().some((pid) => isAlive(pid, child.pid));
}

/** Signals the group of a child that leads one; false when it has no member left. */
export function signalGroup(child: ChildProcess, signal: NodeJS.Signals | 0): boolean {
  if (child.pid === undefined) return false;
  try {
    return process.kill(-child.pid, signal);
  } catch (error) {
    // EPERM: a member runs as another user; it exists, but we cannot end it.
    return systemCodeOf(error) === 'EPERM' && signal === 0;
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}

const SECRET_NAME = /KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH/i;

/**
 * Returns the reduced environment of a child: an allow list, the extras in `pass` except for names of secrets, and the
 * project and thread. A rye that the child starts becomes a child thread of `threadId`.
 */
export function childEnvironment(
  env: Readonly<Record<string, string | undefined>>,
  { projectPath, threadId }: Pick<ToolContext, 'projectPath' | 'threadId'>,
  pass: readonly string[] = [],
): Record<string, string> {
  const extras = new Set(pass.filter((name) => !SECRET_NAME.test(name)));
  const reduced: Record<string, string> = {};
  for (const [name, value] of Object.entries(env)) {
    // programs would use the working directory in place of an empty HOME
    if (value === undefined || (name === 'HOME' && value === '')) continue;
    if (name === 'PATH') reduced[name] = absoluteSearchPath(value);
    else if (isPassed(name) || extras.has(name)) reduced[name] = value;
  }
  return {
    ...reduced,
    RYE_PROJECT: projectPath,
    RYE_THREAD_ID: threadId,
    RYE_PARENT_THREAD_ID: threadId,
  };
}
