import type { LogEvent, UnknownEvent } from '../../src/kernel/core/events.ts';
import type { ExportSource } from '../../src/kernel/export/source.ts';
import { buildTree } from '../../src/kernel/log/tree.ts';
import { headerFor, THREAD } from '../log/support.ts';

/** The source of an export of these events, as of a finished and verified thread. */
export function sourceOf(
  events: readonly (LogEvent | UnknownEvent)[],
  rest: Partial<ExportSource> = {},
): ExportSource {
  const tree = buildTree(events);
  return {
    header: headerFor(),
    events,
    tree,
    leafId: tree.leafId,
    facts: {
      document: {
        thread_id: THREAD,
        directive: 'demo/count',
        status: 'completed',
        model: 'claude-haiku',
        created_at: '2026-02-17T10:00:56.000Z',
        parent_thread_id: null,
      },
      description: 'Counts things.',
      capabilitiesRef: 'capabilities.md',
      finishedAt: '2026-02-17T10:01:56.000Z',
    },
    itemIntegrity: 'verified',
    checks: [{ name: 'transcript', ok: true, detail: '12 events, 2 checkpoints' }],
    problems: [],
    exportedAt: '2026-02-18T08:00:00.000Z',
    version: '0.0.0',
    ...rest,
  };
}
