import { jsonEquals } from '../../core/json.ts';
import type { DisclosableTool } from '../disclosure.ts';
import type { Tool } from '../tool.ts';

/** What a tool was when a thread was approved with it. */
export type ApprovedTool = Pick<DisclosableTool, 'id' | 'description' | 'input_schema'>;

/** Why an approved tool can't be called now. */
export type Withdrawal = 'removed' | 'changed';

export interface ToolChanges {
  readonly withdrawn: ReadonlyMap<string, Withdrawal>;
  /** Offered now and never approved. */
  readonly added: readonly Tool[];
}

/**
 * Compares what a server offers with what was approved. A tool whose description or schema is another one is not the tool
 * that was approved; it is again, once it is as it was.
 */
export function compareTools(
  approved: readonly ApprovedTool[],
  offered: readonly Tool[],
): ToolChanges {
  const now = new Map(offered.map((tool) => [tool.id, tool]));
  const known = new Set(approved.map(({ id }) => id));
  const withdrawn = new Map<string, Withdrawal>();
  for (const tool of approved) {
    const current = now.get(tool.id);
    if (current === undefined) withdrawn.set(tool.id, 'removed');
    else if (!isSame(tool, current)) withdrawn.set(tool.id, 'changed');
  }
  return { withdrawn, added: offered.filter(({ id }) => !known.has(id)) };
}

function isSame(approved: ApprovedTool, { description, inputSchema }: Tool): boolean {
  return description === approved.description && jsonEquals(inputSchema, approved.input_schema);
}
