import { messageOf } from '../core/errors.ts';
import { threadParts } from './feature.ts';
import { modelsOf } from './models.ts';
import { warmUp as warmThreads } from './thread-runs.ts';
import type { Warming, Workspace } from './workspace.ts';

/**
 * Begins what the first run would wait for: connects the configured MCP servers, reads the models and the skills, and loads the
 * client of the providers. Each part that fails is told as its start tells it, and the first run tries it again.
 */
export async function beginWarmUp(workspace: Workspace): Promise<Warming> {
  const tell = (error: unknown): void => {
    if (!workspace.isClosed) workspace.notice(`warm-up: ${messageOf(error)}`);
  };
  try {
    const { warmServers, skills } = await threadParts(workspace);
    const parts = [
      warmThreads(workspace, undefined),
      modelsOf(workspace).choices(),
      warmServers?.(workspace),
      skills?.(workspace, { allowUnsigned: false }).granted(['rye.fetch.skill.*']),
    ];
    const ends = parts.map(async (part) => {
      try {
        await part;
      } catch (error) {
        tell(error);
      }
    });
    return { done: Promise.all(ends).then(() => undefined) };
  } catch (error) {
    tell(error);
    return { done: Promise.resolve() };
  }
}
