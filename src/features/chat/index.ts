import type { Feature } from '../../faces/cli/feature.ts';

export const chat: Feature = {
  name: 'chat',
  services: ({ clock }, rye) => ({
    chat: async (request) => await (await import('./chat.ts')).openChat(rye(), clock, request),
  }),
};
