import type { Feature } from '../../faces/cli/feature.ts';

export const search: Feature = {
  name: 'search',
  thread: async () => {
    const [{ searchItems, refreshIndex, indexExport }, { createSearchTool }] = await Promise.all([
      import('./search.ts'),
      import('./search-tool.ts'),
    ]);
    return {
      search: (workspace) => ({
        items: async (request) => await searchItems(workspace, request),
        refresh: async () => void (await refreshIndex(workspace)),
        index: async (path) => await indexExport(workspace, path),
      }),
      tools: (workspace, reader) => [
        createSearchTool(async (request) => await searchItems(workspace, request), reader),
      ],
    };
  },
};
