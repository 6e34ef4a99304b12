import type { Feature } from '../../faces/cli/feature.ts';

export const worktrees: Feature = {
  name: 'worktrees',
  thread: async () => ({ worktrees: (await import('./git-worktrees.ts')).gitWorktrees }),
};
