import { isoTime } from '../core/clock.ts';
import { openRegistry } from '../storage/open-registry.ts';
import { createProcessTable } from '../storage/processes.ts';
import { systemClock } from './system.ts';

export { hurryGroups } from '../tools/process.ts';

/**
 * Notes in the registry that the threads of this process are to be cancelled, so that recovery ends them so after the
 * process is gone. Resolves to the number of threads.
 */
export async function requestOwnCancel(projectPath: string): Promise<number> {
  const processes = createProcessTable();
  const self = processes.self();
  const registry = openRegistry(projectPath, processes);
  try {
    const active = await registry.list({ active: true });
    const own = active.filter(
      ({ pid, process_start, host }) =>
        pid === self.pid && process_start === self.processStart && host === self.host,
    );
    const now = isoTime(systemClock.now());
    for (const { thread_id } of own) {
      await registry.requestCancel(thread_id, 'interrupted repeatedly', now);
    }
    return own.length;
  } finally {
    registry.close();
  }
}
