import type { Feature } from '../../faces/cli/feature.ts';

export const pi: Feature = {
  name: 'pi',
  formats: { pi: async () => (await import('./export.ts')).exportPi },
  importer: async () => (await import('./import-file.ts')).importSession,
};
