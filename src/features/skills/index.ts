import type { Feature } from '../../faces/cli/feature.ts';

export const skills: Feature = {
  name: 'skills',
  thread: async () => ({ skills: (await import('./skills.ts')).skillSource }),
};
