import type { EventPayloads } from '../core/events.ts';
import { wireName } from '../core/ids.ts';
import { isRecord } from '../core/json.ts';
import { isErrorOutcome, type Message } from '../core/message.ts';
import type { PlannedTool } from '../core/plan.ts';
import { TOOL_SEARCH_ID } from '../tools/disclosure.ts';
import type { ScriptOptions } from '../tools/script.ts';
import { ActiveSkills, toolIdsOf } from '../tools/skills/active-skills.ts';
import { createSkillTools, isSkillTool, SKILLS_USE_ID } from '../tools/skills/skill-tools.ts';
import type { Tool } from '../tools/tool.ts';
import type { GrantedSkills } from './skills.ts';

/** The skills of one running thread. */
export interface SkillSession {
  readonly tools: readonly Tool[];
  /** Why an active skill keeps a tool from being called. */
  readonly refusal: (toolId: string) => string | undefined;
  /** Takes up the skills and tools that an earlier part of the conversation loaded. */
  readonly restore: (messages: readonly Message[]) => void;
}

export interface SkillSessionOptions {
  readonly scripts: ScriptOptions;
  /** The tools that the thread may call, now. */
  readonly planned: () => readonly PlannedTool[];
  /** Ids of deferred tools that can be called; the session adds to it. */
  readonly unlocked: Set<string>;
  /** Called with each skill that becomes active. */
  readonly onActivated?: ((activation: EventPayloads['skill_activated']) => void) | undefined;
}

export function skillSession(
  { skills, maxActive }: GrantedSkills,
  { scripts, planned, unlocked, onActivated }: SkillSessionOptions,
): SkillSession {
  const active = new ActiveSkills(skills, maxActive);
  const held = (ids: readonly string[]) => planned().filter(({ id }) => ids.includes(id));
  const tools = createSkillTools({
    skills,
    active,
    scripts,
    unlock: (ids) => {
      for (const { id, preloaded } of held(ids)) if (!preloaded) unlocked.add(id);
      return held(ids).map(({ name }) => name);
    },
    onActivated: (skill, callable) => onActivated?.({ skill, via: 'model', tools: callable }),
  });
  return {
    tools,
    refusal: (id) => (isSkillTool(id) || id === TOOL_SEARCH_ID ? undefined : active.refusal(id)),
    restore: (messages) => {
      for (const { id, skill } of active.restore(messages, wireName(SKILLS_USE_ID))) {
        const callable = held(toolIdsOf(skill.allowedTools)).map(({ name }) => name);
        onActivated?.({ skill: id, via: 'resume', tools: callable });
      }
      const names = new Set(messages.flatMap(unlockedIn));
      for (const { id, name, preloaded } of planned()) {
        if (!preloaded && names.has(name)) unlocked.add(id);
      }
    },
  };
}

/** The wire names that a search, or a skill, made callable. */
function unlockedIn(message: Message): readonly unknown[] {
  if (message.role !== 'tool_result' || isErrorOutcome(message.outcome)) return [];
  const isUnlocking = message.name === TOOL_SEARCH_ID || message.name === wireName(SKILLS_USE_ID);
  const names = isUnlocking && isRecord(message.data) ? message.data['tools'] : undefined;
  return Array.isArray(names) ? names : [];
}
