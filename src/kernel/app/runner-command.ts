import { join } from 'node:path';
import { RyeError } from '../core/errors.ts';
import { variablesOf } from '../providers/endpoint.ts';
import type { RunnerCommand } from '../threads/ports.ts';
import { CALL_VARIABLE } from '../tools/passed-variables.ts';
import { childEnvironment } from '../tools/process.ts';
import type { Models } from './models.ts';
import type { Workspace } from './workspace.ts';

/** The CLI's hidden command that runs a prepared thread. */
export const RUN_THREAD = '__run-thread';

/**
 * Returns the command of a detached thread: this Node and the program of this installation. Its environment is what tools get,
 * rye's own settings, the variables that `{env:…}` may read, and the keys of the configured providers: a child
 * may start children on other providers than its own.
 */
export async function runnerCommand(workspace: Workspace, models: Models): Promise<RunnerCommand> {
  if (workspace.recordKey !== undefined) throw noBackground();
  const { projectPath, userSpacePath, env, configOverrides = [], program } = workspace.options;
  const config = await workspace.config();
  const { catalog } = await models.choices();
  const allowed = (await config.load('interpolation')).value['env_allow'];
  const names = new Set<unknown>([
    ...Object.values(catalog).flatMap(variablesOf),
    ...(Array.isArray(allowed) ? (allowed as readonly unknown[]) : []),
  ]);
  const environment: Record<string, string> = childEnvironment(env, { projectPath, threadId: '' });
  for (const [name, value] of Object.entries(env)) {
    if (value !== undefined && (names.has(name) || name.startsWith('RYE_')))
      environment[name] = value;
  }
  // the plan names the parent; the task of this process does not concern the child
  for (const name of ['RYE_THREAD_ID', 'RYE_PARENT_THREAD_ID', 'RYE_PROJECT', CALL_VARIABLE])
    delete environment[name];
  return {
    command: process.execPath,
    args: [
      ...(program ?? [join(workspace.systemPath, 'bin', 'rye.js')]),
      '--project',
      projectPath,
      '--user-space',
      userSpacePath,
      ...configOverrides.flatMap((override) => ['--config', override]),
      RUN_THREAD,
    ],
    environment,
  };
}

/** The key of such a run leaves its process in no way. */
function noBackground(): RyeError {
  return new RyeError('usage', 'a run with --unsigned-record starts no background threads', {
    hint: 'Run its children without async, or give the run a signing key.',
  });
}
