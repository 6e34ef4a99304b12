import { realpathSync } from 'node:fs';
import { dirname, sep } from 'node:path';
import { EXIT, ignoredWarning, isSecurityWarning, messageOf, RyeError } from '../core/errors.ts';
import { isRecord } from '../core/json.ts';
import { loadSkill } from '../items/skill.ts';
import { withForeignSkills } from '../items/skill-files-fs.ts';
import { openSpaces, type Spaces } from '../items/spaces-fs.ts';
import type { VerifiedItems } from '../items/verified-fs.ts';
import { covers, expandsTo } from '../policy/capability.ts';
import type { OfferedSkill } from '../tools/skills/active-skills.ts';
import type { Foundation } from './foundation.ts';

export interface GrantedSkills {
  readonly skills: readonly OfferedSkill[];
  /** How many of them may be active at once. */
  readonly maxActive: number;
  /** One sentence for each skill that is left out or has a mistake. */
  readonly warnings: readonly string[];
}

export const NO_SKILLS: GrantedSkills = { skills: [], maxActive: 0, warnings: [] };

/** Where other programs keep their skills, below the project and the home folder. */
const FOREIGN_FOLDER = '.claude';

interface SkillSettings {
  readonly compat: boolean;
  readonly maxActive: number;
}

async function skillSettings(base: Foundation): Promise<SkillSettings> {
  const { value, origins } = await (await base.config()).load('agent/agent');
  const skills = isRecord(value['skills']) ? value['skills'] : {};
  const { compat = false, max_active: maxActive = 20 } = skills;
  const refuse = (member: string, expected: string): never => {
    const path = `skills.${member}`;
    const where = origins.get(path) ?? 'config agent/agent';
    const given = JSON.stringify(skills[member]);
    throw new RyeError('config_invalid', `${where}: ${path} is ${given}, not ${expected}`);
  };
  if (typeof compat !== 'boolean') return refuse('compat', 'true or false');
  if (typeof maxActive !== 'number' || !Number.isSafeInteger(maxActive) || maxActive < 1) {
    return refuse('max_active', 'a whole number above 0');
  }
  return { compat, maxActive };
}

/** The spaces in which skills are looked for: with those of other programs where `skills.compat` says so. */
export async function skillSpaces(base: Foundation): Promise<Spaces> {
  const { compat } = await skillSettings(base);
  if (!compat) return base.spaces;
  const { projectPath, userSpacePath } = base.options;
  const paths = { projectPath, userSpacePath, systemPath: base.systemPath };
  return withForeignSkills(base.spaces, openSpaces(paths, FOREIGN_FOLDER));
}

/** True for a skill that another program's user wrote, by that program's rules. */
export function isForeignSkill(path: string): boolean {
  return path.includes(`${sep}${FOREIGN_FOLDER}${sep}skills${sep}`);
}

/** The skills that the capabilities let a thread fetch and whose SKILL.md is verified. */
export async function grantedSkills(
  base: Foundation,
  capabilities: readonly string[],
  allowUnsigned: boolean,
): Promise<GrantedSkills> {
  const { maxActive } = await skillSettings(base);
  const spaces = await skillSpaces(base);
  const known = spaces.list('skill').filter(({ shadowedBy }) => shadowedBy === null);
  const ids = expandsTo(
    capabilities,
    'fetch',
    'skill',
    known.map(({ id }) => id),
  );
  if (ids.length === 0) return { skills: [], maxActive, warnings: [] };
  const items = await base.items(allowUnsigned);
  const skills: OfferedSkill[] = [];
  const warnings: string[] = [];
  for (const id of ids) {
    try {
      const { offered, problems } = loadOffered({ spaces, items, capabilities }, id);
      warnings.push(...problems.map((problem) => `the skill ${id}: ${problem}`));
      if (offered) skills.push(offered);
    } catch (error) {
      const warning = skipped(id, error);
      if (isSecurityWarning(warning)) base.notice(warning);
      warnings.push(warning);
    }
  }
  return { skills, maxActive, warnings };
}

interface Sources {
  readonly spaces: Spaces;
  readonly items: VerifiedItems;
  readonly capabilities: readonly string[];
}

function loadOffered(
  { spaces, items, capabilities }: Sources,
  id: string,
): { readonly offered: OfferedSkill | undefined; readonly problems: readonly string[] } {
  const found = spaces.find('skill', id);
  if (found === undefined) return { offered: undefined, problems: [] };
  const item = items.admit(found, 'context');
  items.admitSkill(found, 'context');
  const { skill, diagnostics } = loadSkill(item.text, item.path);
  const problems = diagnostics.map(({ message }) => message);
  if (skill === undefined) return { offered: undefined, problems };
  const offered: OfferedSkill = {
    id,
    folder: realpathSync(dirname(item.path)),
    skill,
    mayRun: covers(capabilities, { verb: 'execute', item_type: 'skill', item_id: id }),
    admitWhole: () => items.admitSkill(spaces.find('skill', id) ?? found, 'context'),
    admit: (file, use) => items.admitSkillFile(found, file, use === 'run' ? 'execute' : 'context'),
  };
  return { offered, problems };
}

function skipped(id: string, error: unknown): string {
  const message = `the skill ${id} is skipped: ${messageOf(error)}`;
  if (!(error instanceof RyeError)) return message;
  const { code, hint, exitCode } = error;
  if (exitCode === EXIT.integrity) return ignoredWarning({ message, code, hint });
  return hint === undefined ? message : `${message}. ${hint}`;
}
