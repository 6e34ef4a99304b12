import type { Feature } from '../../faces/cli/feature.ts';
import { lazy } from '../../kernel/app/lazy.ts';

export const skills: Feature = {
  name: 'skills',
  services: (workspace) => ({
    skills: lazy(async () => (await import('./host.ts')).skillsService(workspace), {}),
  }),
  thread: async () => ({ skills: (await import('./skills.ts')).skillSource }),
};
