import type { ExportOptions, ExportsService, ThreadExport } from './exports-types.ts';
import type { Foundation } from './foundation.ts';

/** Loads the renderers when something is exported. */
export class LazyExports implements ExportsService {
  readonly #base: Foundation;

  constructor(base: Foundation) {
    this.#base = base;
  }

  async export(threadId: string, options: ExportOptions): Promise<ThreadExport> {
    const { exportThread } = await import('./export-thread.ts');
    return await exportThread(this.#base, threadId, options);
  }
}
