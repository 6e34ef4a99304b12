import type { Feature } from '../../faces/cli/feature.ts';

export const html: Feature = {
  name: 'html',
  formats: { html: async () => (await import('./page.ts')).exportHtml },
};
