import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { worktreesOf } from '../../kernel/app/feature.ts';
import type { Workspace } from '../../kernel/app/workspace.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import type { PlannedSource } from '../../kernel/core/plan.ts';
import type { LegControl } from '../../kernel/threads/fleet-port.ts';
import { fetchSource, pushSource, type SourceAddress, unpackSource } from './git-source.ts';
import { bundlesOf } from './items.ts';
import { assertCommitId, parseSourceUrl, sourceRef } from './source-url.ts';

/** Tries to fetch a source, and the pauses between them. */
const PAUSES_MS = [1000, 5000];

/** Makes the repository with the source of a thread in its folder. `protocols`: those that this worker may use. */
export async function openSource(
  workspace: Workspace,
  source: PlannedSource,
  protocols: readonly string[],
): Promise<void> {
  const { commit, kind } = source;
  const { projectPath: folder, env } = workspace.options;
  assertCommitId(commit);
  assertPrefix(source.prefix);
  const wanted = { folder, commit, env };
  if (kind === 'bundle') {
    await unpackSource(wanted, await packOf(workspace, source));
    return;
  }
  const address = addressOf(source, protocols);
  for (const pause of [...PAUSES_MS, undefined]) {
    try {
      await fetchSource(wanted, address);
      return;
    } catch (error) {
      if (pause === undefined) throw error;
      await workspace.clock.sleep(pause);
    }
  }
}

/** Removes the repository of a thread that has ended here. */
export async function closeSource(folder: string): Promise<void> {
  await rm(join(folder, '.git'), { recursive: true, force: true, maxRetries: 3 });
}

/** Returns what pushes changes of an opened project to where its source came from; undefined if the plan asks for no push. */
export function pusherTo(
  opened: () => Workspace,
  source: PlannedSource,
  protocols: readonly string[],
): LegControl['push'] {
  if (source.kind !== 'git' || source.results !== 'push') return undefined;
  return async ({ threadId, worktree, before }) => {
    const address = addressOf(source, protocols);
    const workspace = opened();
    const { projectPath: folder, env } = workspace.options;
    const worktrees = await worktreesOf(workspace, folder);
    const commit = await worktrees.commit(worktree, `${threadId}\n\nChanges of a thread of rye.`);
    const ref = sourceRef(threadId);
    const request = { folder, commit, base: source.commit, ref, before, env };
    const refused = await pushSource(request, address);
    return refused ?? { ref, commit };
  };
}

async function packOf(workspace: Workspace, { commit, pack }: PlannedSource): Promise<Uint8Array> {
  const stored = pack === undefined ? undefined : await bundlesOf(workspace).get(pack, commit);
  if (stored) return stored.tar;
  throw new RyeError('thread_tampered', `the store has no packed commit ${commit.slice(0, 12)}`, {
    hint: 'Start the thread again: rye run … --fleet --source bundle',
  });
}

function addressOf({ url }: PlannedSource, protocols: readonly string[]): SourceAddress {
  const { text, protocol, isStripped } = parseSourceUrl(url ?? '');
  if (isStripped || text !== url)
    throw new RyeError(
      'invalid_input',
      'the plan names an address of a source that rye does not write',
    );
  if (protocols.includes(protocol)) return { url: text, protocol };
  throw new RyeError(
    'source_unavailable',
    `this worker fetches no source by ${protocol}: ${text}`,
    {
      hint: `If its files may be read here, start it with: rye worker --sources ${[...protocols, protocol].join(',')}`,
      details: { url: text },
    },
  );
}

function assertPrefix(prefix: string): void {
  const parts = prefix.split('/').slice(0, -1);
  const isPlain =
    prefix === '' ||
    (prefix.endsWith('/') && parts.every((part) => !/^(?:|\.{1,2}|\.git)$/i.test(part)));
  if (isPlain) return;
  throw new RyeError('path_denied', `${JSON.stringify(prefix)} is not a folder in the repository`);
}
