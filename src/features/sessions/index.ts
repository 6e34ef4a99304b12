import type { Feature } from '../../faces/cli/feature.ts';
import type { SessionTreeReads, SessionTrees } from '../../kernel/app/api/trees.ts';
import { lazy } from '../../kernel/app/lazy.ts';
import type { Workspace } from '../../kernel/app/workspace.ts';

export const sessions: Feature = {
  name: 'sessions',
  services: (workspace) => ({ trees: treesOf(workspace) }),
};

/** Reading a tree does not load the code that changes one. */
function treesOf(workspace: Workspace): SessionTrees {
  const reads = lazy<SessionTreeReads>(
    async () => new (await import('./reader.ts')).SessionTreeReader(workspace),
    {},
  );
  return lazy<SessionTrees>(async () => (await import('./edits.ts')).sessionTreeEdits(workspace), {
    view: async (...args) => await reads.view(...args),
    open: async (...args) => await reads.open(...args),
    entry: async (...args) => await reads.entry(...args),
    locate: async (...args) => await reads.locate(...args),
    path: async (...args) => await reads.path(...args),
    children: async (...args) => await reads.children(...args),
    context: async (...args) => await reads.context(...args),
  });
}
