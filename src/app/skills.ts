import { realpathSync } from 'node:fs';
import { dirname } from 'node:path';
import { messageOf } from '../core/errors.ts';
import { loadSkill } from '../items/skill.ts';
import { expandsTo } from '../policy/capability.ts';
import type { OfferedSkill } from '../tools/skills/skill-tools.ts';
import type { Foundation } from './foundation.ts';

export interface GrantedSkills {
  readonly skills: readonly OfferedSkill[];
  /** One sentence for each skill that is left out or has a mistake. */
  readonly warnings: readonly string[];
}

/** The skills that the capabilities let a thread fetch and whose SKILL.md is verified. */
export async function grantedSkills(
  base: Foundation,
  capabilities: readonly string[],
  allowUnsigned: boolean,
): Promise<GrantedSkills> {
  const known = base.spaces.list('skill').filter(({ shadowedBy }) => shadowedBy === null);
  const ids = expandsTo(
    capabilities,
    'fetch',
    'skill',
    known.map(({ id }) => id),
  );
  const items = ids.length === 0 ? undefined : await base.items(allowUnsigned);
  const skills: OfferedSkill[] = [];
  const warnings: string[] = [];
  for (const id of ids) {
    try {
      const item = items?.load('skill', id, 'context');
      if (!item) continue;
      const { skill, diagnostics } = loadSkill(item.text, item.path);
      warnings.push(...diagnostics.map(({ message }) => `the skill ${id}: ${message}`));
      if (skill) skills.push({ id, folder: realpathSync(dirname(item.path)), skill });
    } catch (error) {
      warnings.push(`the skill ${id} is left out: ${messageOf(error)}`);
    }
  }
  return { skills, warnings };
}
