import { commitOf } from '../../kernel/app/bundle-commit.ts';
import type { Workspace } from '../../kernel/app/workspace.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import type { PlannedFleet, ThreadPlan } from '../../kernel/core/plan.ts';
import { collectBundle } from './bundle/collect-fs.ts';
import { materialize } from './bundle/materialize-fs.ts';
import { openBundle } from './bundle/open.ts';

declare const __RYE_VERSION__: string;

/** Packs and signs the items that a thread may load, and puts the bundle into the store. */
export async function packItems(
  workspace: Workspace,
  plan: ThreadPlan,
): Promise<Pick<PlannedFleet, 'bundle' | 'bundle_plan'>> {
  const { verification, options, keyring } = workspace;
  const bundle = await collectBundle({
    ...verification,
    plan,
    key: keyring.signer(),
    ryeVersion: __RYE_VERSION__,
    commitOf: async (paths) => await commitOf(options, paths),
  });
  for (const { path, code } of bundle.skipped)
    workspace.notice(`.ai/${path} is not sent to the fleet [${code}]`);
  await bundlesOf(workspace).put(bundle);
  return { bundle: bundle.digest, bundle_plan: bundle.planSha256 };
}

/** Checks the bundle of a thread against this worker's own trust, and makes the project of the thread from it. */
export async function unpackItems(
  workspace: Workspace,
  { bundle: digest, bundle_plan: planSha256 }: PlannedFleet,
): Promise<void> {
  const stored = await bundlesOf(workspace).get(digest, planSha256);
  if (!stored) {
    throw new RyeError('thread_tampered', `the store has no bundle ${digest.slice(0, 12)}`, {
      hint: 'Start the thread again: rye run … --fleet',
      details: { bundle: digest },
    });
  }
  const { tar, envelope } = stored;
  const { files } = openBundle({ tar, envelope, planSha256, keys: workspace.keyring });
  materialize(files, workspace.options.projectPath);
}

/** The packed files in the store of a project. Throws `fleet_unavailable` if it carries none. */
export function bundlesOf({ store }: Workspace) {
  if (store.bundles) return store.bundles;
  throw new RyeError('fleet_unavailable', 'the store of the project carries no bundles', {
    hint: 'Make a fleet: rye fleet init --database postgres://HOST/DATABASE',
  });
}
