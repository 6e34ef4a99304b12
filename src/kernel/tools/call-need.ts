import type { CapabilityNeed } from '../core/capability.ts';
import type { JsonObject } from '../core/json.ts';
import { primaryNeed } from './primary/actions.ts';
import { skillNeed } from './skill-needs.ts';

/** Returns the need of a call by the id of its tool: `rye/fetch` of an item needs to fetch that item. */
export function needOfCall(tool: string, input: JsonObject): CapabilityNeed {
  const own = { verb: 'execute', item_type: 'tool', item_id: tool } as const;
  try {
    return primaryNeed(tool, input) ?? skillNeed(tool, input) ?? own;
  } catch {
    return own; // an id that no call can start with
  }
}
