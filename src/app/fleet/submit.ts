import { isoTime } from '../../core/clock.ts';
import { RyeError } from '../../core/errors.ts';
import { checkQueueName } from '../../fleet/leg.ts';
import { launchThread } from '../../threads/family/spawn.ts';
import type { LaunchedThread } from '../../threads/ports.ts';
import { prepareThread } from '../../threads/prepare/prepare.ts';
import { placeInSource } from '../../threads/worktrees.ts';
import type { FleetRunOptions } from '../api/fleet.ts';
import type { ExecuteDirectiveRequest } from '../presets.ts';
import { foldPresets } from '../presets.ts';
import { threadEnv } from '../thread-env.ts';
import type { Workspace } from '../workspace.ts';
import { connectFleet } from './connection.ts';
import { storeOf } from './init.ts';
import { packItems } from './items.ts';
import { planSource } from './source.ts';

const DEFAULT_QUEUE = 'default';
const DEFAULT_PRIORITY = 5;
const LAST_PRIORITY = 9;

/** Prepares a thread here, signs it and queues it for a worker of the fleet. */
export async function submitThread(
  workspace: Workspace,
  given: ExecuteDirectiveRequest,
  options: FleetRunOptions,
): Promise<LaunchedThread> {
  const place = placeOf(options);
  const notBefore = options.at === undefined ? undefined : timeOf(options.at);
  const request = foldPresets(workspace.preset, given);
  assertTravels(request);
  const url = await storeOf(workspace);
  const env = await threadEnv(workspace, { allowUnsigned: false });
  const prepared = await prepareThread(env, request);
  const { clock, ids } = workspace;
  const connection = connectFleet({ url, clock, ids });
  try {
    const { worktree } = prepared.plan;
    if (worktree?.result === 'merge') throw noMerge();
    const source = await planSource(workspace, { ...options, isIsolated: worktree !== undefined });
    const placed = {
      ...prepared.plan,
      ...(source ? placeInSource(prepared.plan, source, ids) : {}),
    };
    const bundle = await packItems(workspace, placed);
    const submitter = workspace.keyring.signer().keyId;
    const roots = trustedRoots(workspace);
    const plan = {
      ...placed,
      fleet: { ...place, ...bundle, submitter, roots, ...(source ? { source } : {}) },
    };
    const start = async (threadId: string): Promise<void> =>
      await connection.start(threadId, plan.fleet, notBefore);
    return await launchThread(
      {
        ...env,
        fleet: { ...connection.fleet, start, seal: connection.sealing(workspace.keyring) },
      },
      {
        prepared: { ...prepared, plan },
        threadId: request.threadId,
        options: { allow_unsigned: false },
      },
    );
  } finally {
    await connection.close();
  }
}

/** The workers of other roots could sign nothing that counts here. */
function trustedRoots({ keyring }: Workspace): readonly string[] {
  return keyring
    .list()
    .filter(({ trusted, purposes }) => trusted && purposes.includes('certify'))
    .map(({ key_id: keyId }) => keyId);
}

function placeOf({
  queue = DEFAULT_QUEUE,
  priority = DEFAULT_PRIORITY,
  partition = null,
}: {
  readonly queue?: string;
  readonly priority?: number;
  readonly partition?: string | null;
}) {
  checkQueueName(queue);
  if (!Number.isInteger(priority) || priority < 0 || priority > LAST_PRIORITY) {
    throw new RyeError(
      'invalid_input',
      `the priority ${priority} is not from 0 to ${LAST_PRIORITY}`,
      {
        hint: '0 starts first, 9 last.',
      },
    );
  }
  return { queue, priority, partition };
}

function noMerge(): RyeError {
  return new RyeError('usage', 'a worker cannot merge changes into the files of this machine', {
    hint: 'Remove --isolation-result merge. The changes come back as a ref or a patch.',
  });
}

function timeOf(text: string): string {
  const ms = Date.parse(text);
  if (!Number.isNaN(ms)) return isoTime(ms);
  throw new RyeError('invalid_input', `invalid time ${JSON.stringify(text)}`, {
    hint: 'Write it with its zone, such as 2026-12-01T03:00Z.',
  });
}

/** A worker has neither unsigned files nor recordings of this machine. */
function assertTravels({ allowUnsigned, replayFrom, recordTo }: ExecuteDirectiveRequest): void {
  const option = allowUnsigned
    ? '--allow-unsigned'
    : replayFrom === undefined
      ? recordTo === undefined
        ? undefined
        : '--record'
      : '--replay';
  if (option === undefined) return;
  throw new RyeError('usage', `${option} cannot be used with a fleet`, {
    hint: 'Run the directive on this machine: remove --fleet.',
  });
}
