import type { CapabilityNeed } from '../core/capability.ts';
import type { JsonObject } from '../core/json.ts';
import { toText } from '../core/json.ts';

export const SKILLS_USE_ID = 'skills/use';

export const SKILLS_READ_ID = 'skills/read';

export const SKILLS_RUN_ID = 'skills/run_script';

/** True for the tools of skills themselves, which no skill can take away. */
export function isSkillTool(id: string): boolean {
  return id === SKILLS_USE_ID || id === SKILLS_READ_ID || id === SKILLS_RUN_ID;
}

/** Returns the need of a call of a skill tool; undefined for another tool. */
export function skillNeed(tool: string, input: JsonObject): CapabilityNeed | undefined {
  if (!isSkillTool(tool)) return undefined;
  return needs(tool === SKILLS_RUN_ID ? 'execute' : 'fetch')(input);
}

export function needs(verb: 'fetch' | 'execute'): (input: JsonObject) => CapabilityNeed {
  return ({ name }) => ({ verb, item_type: 'skill', item_id: toText(name ?? '') });
}
