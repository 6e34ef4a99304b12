import { join } from 'node:path';
import { liftsGuard } from '../../kernel/app/granted-tools.ts';
import { lazy } from '../../kernel/app/lazy.ts';
import type { Worktrees } from '../../kernel/threads/worktrees.ts';
import { RestoredFiles } from '../../kernel/tools/restored-files.ts';
import type { WorktreesOptions } from './worktrees.ts';

/** The git worktrees of a project's threads. Git is loaded with the first one. */
export function gitWorktrees(options: WorktreesOptions): Worktrees {
  const { projectPath, env } = options;
  return lazy<Worktrees>(async () => {
    const { GitWorktrees } = await import('./worktrees.ts');
    const { mergeChanges } = await import('./merge.ts');
    const worktrees = new GitWorktrees(options);
    return {
      plan: async (id, result) => await worktrees.plan(id, result),
      open: async (worktree, patch, how) => await worktrees.open(worktree, patch, how),
      save: async (worktree, before) => await worktrees.save(worktree, before),
      commit: async (worktree, message) => await worktrees.commit(worktree, message),
      isMade: async (worktree) => await worktrees.isMade(worktree),
      collect: async (worktree) => await worktrees.collect(worktree),
      merge: async (worktree, { plan, threadId, target, keep }) => {
        const path = join(projectPath, target);
        const lifts = liftsGuard(plan.capabilities);
        const files = new RestoredFiles({ projectPath: path, allow: [], threadId, lifts });
        const { files: changed } = await worktrees.collect(worktree);
        return await mergeChanges({
          contentOf: async (file, blob) => await worktrees.content(worktree, file, blob),
          files: changed,
          target: { path, files },
          keep,
          env,
        });
      },
      remove: async (worktree) => await worktrees.remove(worktree),
      list: async () => await worktrees.list(),
    };
  }, {});
}
