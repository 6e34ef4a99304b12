import { readFileSync, realpathSync } from 'node:fs';
import { dirname, join } from 'node:path';
import {
  type GrantedSkills,
  NO_SKILLS,
  type SkillSession,
  type SkillSessionOptions,
  type SkillSource,
} from '../../kernel/app/feature.ts';
import { readSettings } from '../../kernel/app/settings.ts';
import { skillSpaces } from '../../kernel/app/skill-spaces.ts';
import type { ProgramSkill, Workspace } from '../../kernel/app/workspace.ts';
import { capabilityOf } from '../../kernel/core/capability.ts';
import {
  EXIT,
  ignoredWarning,
  isSecurityWarning,
  messageOf,
  RyeError,
  toRyeError,
} from '../../kernel/core/errors.ts';
import { wireName } from '../../kernel/core/ids.ts';
import { didYouMean } from '../../kernel/core/text.ts';
import { loadSkill, parseSkill } from '../../kernel/items/skill.ts';
import type { Spaces } from '../../kernel/items/spaces-fs.ts';
import type { VerifiedItems } from '../../kernel/items/verified-fs.ts';
import { covers, expandsTo, isExact } from '../../kernel/policy/capability.ts';
import type { HostSkills } from '../../kernel/threads/ports.ts';
import { TOOL_SEARCH_ID } from '../../kernel/tools/disclosure.ts';
import { isSkillTool, SKILLS_USE_ID } from '../../kernel/tools/skill-needs.ts';
import { ActiveSkills, type OfferedSkill, toolIdsOf } from './active-skills.ts';
import {
  createSkillTools,
  type SkillToolsOptions,
  skillCatalog,
  skillText,
} from './skill-tools.ts';

/** The skills of an opened rye. */
export function skillSource(
  workspace: Workspace,
  {
    allowUnsigned,
    skills = workspace.programSkills,
  }: { readonly allowUnsigned: boolean; readonly skills?: readonly ProgramSkill[] },
): SkillSource {
  return {
    granted: async (capabilities) =>
      await grantedSkills(workspace, capabilities, { allowUnsigned, ofProgram: skills }),
  };
}

/** Returns the skills that the capabilities let a thread fetch and whose SKILL.md is verified. */
async function grantedSkills(
  workspace: Workspace,
  capabilities: readonly string[],
  by: { readonly allowUnsigned: boolean; readonly ofProgram: readonly ProgramSkill[] },
): Promise<GrantedSkills> {
  const settings = await readSettings(await workspace.config(), 'agent/agent');
  const maxActive = settings.skills?.max_active ?? 20;
  const spaces = await skillSpaces(workspace);
  const known = spaces.list('skill').filter(({ shadowedBy }) => shadowedBy === null);
  const ofProgram = new Map(by.ofProgram.map((skill) => [skill.id, skill]));
  for (const { id } of known.filter((one) => ofProgram.has(one.id))) {
    workspace.notice(`ignored: the installed skill ${id}: the program has its own`);
  }
  const ids = expandsTo(capabilities, 'fetch', 'skill', [
    ...new Set([...ofProgram.keys(), ...known.map(({ id }) => id)]),
  ]);
  const unknown = unknownSkills(capabilities, ids);
  if (ids.length === 0) return { ...NO_SKILLS, ...unknown };
  const items = await workspace.items(by.allowUnsigned);
  const skills: OfferedSkill[] = [];
  const warnings = [...unknown.warnings];
  const unavailable = [...unknown.unavailable];
  const exclude = (id: string, error: RyeError): void => {
    unavailable.push({ capability: fetchOf(id), error });
  };
  for (const id of ids) {
    const own = ofProgram.get(id);
    if (own) {
      skills.push(loadProgramSkill(own, capabilities));
      continue;
    }
    try {
      const { offered, problems } = loadOffered({ spaces, items, capabilities }, id);
      warnings.push(...problems.map((problem) => `the skill ${id}: ${problem}`));
      if (offered) skills.push(offered);
      else exclude(id, new RyeError('skill_malformed', `the skill ${id}: ${problems.join('; ')}`));
    } catch (error) {
      exclude(id, toRyeError(error));
      const warning = skipped(id, error);
      if (isSecurityWarning(warning)) workspace.notice(warning);
      warnings.push(warning);
    }
  }
  return {
    warnings,
    unavailable,
    skills: skills.map(({ id, skill: { description } }) => ({ id, description })),
    catalog: (shown) => skillCatalog(skills.filter(({ id: one }) => shown.has(one))),
    open: (options) => skillSession(skills, maxActive, options),
  };
}

function fetchOf(id: string): string {
  return capabilityOf({ verb: 'fetch', item_type: 'skill', item_id: id });
}

/** Returns the grants that name a skill that does not exist. */
function unknownSkills(
  capabilities: readonly string[],
  known: readonly string[],
): Pick<GrantedSkills, 'warnings' | 'unavailable'> {
  const named = fetchOf('').length;
  const unavailable = capabilities
    .filter((one) => one.startsWith(fetchOf('')) && isExact(one))
    .filter((one) => expandsTo([one], 'fetch', 'skill', known).length === 0)
    .map((capability) => {
      const id = capability.slice(named);
      const hint = didYouMean(id, known) ?? 'List them with: rye list skill';
      return { capability, error: new RyeError('item_not_found', `unknown skill ${id}`, { hint }) };
    });
  return { warnings: unavailable.map(({ error }) => error.message), unavailable };
}

/** Reads a skill of the program, which needs no signature. Throws `skill_malformed` for a mistake. */
function loadProgramSkill(
  { id, folder }: ProgramSkill,
  capabilities: readonly string[],
): OfferedSkill {
  const path = join(folder, 'SKILL.md');
  return {
    id,
    folder: realpathSync(folder),
    skill: parseSkill(readFileSync(path, 'utf8'), path),
    mayRun: covers(capabilities, { verb: 'execute', item_type: 'skill', item_id: id }),
    admitWhole: () => undefined,
    admit: () => undefined,
  };
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
  if (error instanceof RyeError && error.exitCode === EXIT.integrity) return ignoredWarning(error);
  const message = `skill ${id} skipped: ${messageOf(error)}`;
  const hint = error instanceof RyeError ? error.hint : undefined;
  return hint === undefined ? message : `${message}. ${hint}`;
}

/** Returns the skills of a thread for people and programs outside of it. */
function hostSkills({
  skills,
  active,
  denies,
  unlock,
}: Pick<SkillToolsOptions, 'skills' | 'active' | 'denies' | 'unlock'>): HostSkills {
  return {
    activate: (id, entryId) => {
      const offered = skills.find((one) => one.id === id);
      if (!offered) throw new RyeError('item_not_found', `the thread has no skill ${id}`);
      if (active.has(id)) return [];
      offered.admitWhole();
      const refusal = active.activate(id);
      if (refusal !== undefined) throw new RyeError('invalid_input', refusal);
      const tools = unlock(toolIdsOf(offered.skill.allowedTools));
      const payload = {
        custom_type: 'skill',
        content: skillText(offered, tools, denies),
        display: false,
        details: { skill: id },
        appended: true,
      } as const;
      return [
        { event_type: 'skill_activated', payload: { skill: id, via: 'host', tools } },
        { event_type: 'custom_message', payload, id: entryId, durable: true },
      ];
    },
    deactivate: (id) =>
      active.deactivate(id)
        ? [{ event_type: 'skill_deactivated', payload: { skill: id, reason: 'host' } }]
        : [],
    end: () =>
      active.clear().map((skill) => ({
        event_type: 'skill_deactivated',
        payload: { skill, reason: 'run_end' },
      })),
  };
}

function skillSession(
  granted: readonly OfferedSkill[],
  maxActive: number,
  { scripts, denies, planned, unlocked, listed, onActivated }: SkillSessionOptions,
): SkillSession {
  const skills = listed ? granted.filter(({ id }) => listed.has(id)) : granted;
  const active = new ActiveSkills(skills, maxActive);
  const held = (ids: readonly string[]) => planned().filter(({ id }) => ids.includes(id));
  const unlock = (ids: readonly string[]) => {
    for (const { id, preloaded } of held(ids)) if (!preloaded) unlocked.add(id);
    return held(ids).map(({ name }) => name);
  };
  const tools = createSkillTools({
    granted,
    skills,
    active,
    scripts,
    denies,
    unlock,
    onActivated: (skill, callable) => onActivated?.({ skill, via: 'model', tools: callable }),
  });
  return {
    host: hostSkills({ skills, active, denies, unlock }),
    tools,
    refusal: (id) => (isSkillTool(id) || id === TOOL_SEARCH_ID ? undefined : active.refusal(id)),
    restore: (messages) => {
      for (const { id, skill } of active.restore(messages, wireName(SKILLS_USE_ID))) {
        const callable = held(toolIdsOf(skill.allowedTools)).map(({ name }) => name);
        onActivated?.({ skill: id, via: 'resume', tools: callable });
      }
    },
  };
}
