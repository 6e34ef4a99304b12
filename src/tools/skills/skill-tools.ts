import { readdir, readFile } from 'node:fs/promises';
import { relative, sep } from 'node:path';
import { messageOf } from '../../core/errors.ts';
import { toText } from '../../core/json.ts';
import { escapeXml, nearNames } from '../../core/text.ts';
import type { Skill } from '../../items/skill.ts';
import { confine } from '../paths.ts';
import { errorOutput, type Tool, type ToolOutput, textOutput } from '../tool.ts';

export const SKILLS_USE_ID = 'skills/use';
/** Files that are named when a skill is loaded. */
const MAX_LISTED = 100;
const MAX_FILE_BYTES = 256 * 1024;

/** A skill that a thread may load. */
export interface OfferedSkill {
  /** Item id. */
  readonly id: string;
  /** Real path of its folder. */
  readonly folder: string;
  readonly skill: Skill;
}

/** What the system text says about skills: ids and descriptions, sorted; the bodies come with `skills_use`. */
export function skillCatalogue(skills: readonly OfferedSkill[]): string {
  if (skills.length === 0) return '';
  const lines = skills
    .toSorted((a, b) => (a.id < b.id ? -1 : 1))
    .map(
      ({ id, skill }) => `<skill name="${escapeXml(id)}">${escapeXml(skill.description)}</skill>`,
    );
  return `<skills>\nLoad one with skills_use when a task fits its description.\n${lines.join('\n')}\n</skills>`;
}

const fetchesNamed: NonNullable<Tool['need']> = ({ name }) => ({
  verb: 'fetch',
  item_type: 'skill',
  item_id: toText(name ?? ''),
});

/**
 * `skills_use` and `skills_read`, after the Agent Skills specification. Each call needs the capability to fetch that very
 * skill; `allowed-tools` is told and grants nothing.
 */
export function createSkillTools(skills: readonly OfferedSkill[]): readonly Tool[] {
  const active = new Set<string>();
  const traits = {
    reads_only: true,
    idempotent: true,
    network: false,
    sequential: false,
    timeout_seconds: 30,
  };
  const named = async (
    name: string,
    then: (offered: OfferedSkill) => Promise<ToolOutput>,
  ): Promise<ToolOutput> => {
    const offered = skills.find(({ id }) => id === name);
    if (offered) return await then(offered);
    const near = nearNames(
      name,
      skills.map(({ id }) => id),
    );
    const hint = near.length === 0 ? '' : ` Did you mean ${near.join(' or ')}?`;
    return errorOutput(`There is no skill ${name}.${hint}`, { code: 'item_not_found' });
  };
  const name = { type: 'string', description: 'As listed.' };
  return [
    {
      id: SKILLS_USE_ID,
      description: 'Loads the instructions of a skill.',
      inputSchema: {
        type: 'object',
        properties: { name },
        required: ['name'],
        additionalProperties: false,
      },
      traits,
      need: fetchesNamed,
      execute: async (input) =>
        await named(toText(input['name'] ?? ''), async (offered) => {
          active.add(offered.id);
          return textOutput(await skillText(offered), { skill: offered.id });
        }),
    },
    {
      id: 'skills/read',
      description: 'Reads a file of a skill that was loaded with skills_use.',
      inputSchema: {
        type: 'object',
        properties: {
          name,
          path: { type: 'string', description: 'Relative to the folder of the skill.' },
        },
        required: ['name', 'path'],
        additionalProperties: false,
      },
      traits,
      need: fetchesNamed,
      execute: async (input) =>
        await named(toText(input['name'] ?? ''), async (offered) =>
          active.has(offered.id)
            ? await readSkillFile(offered, toText(input['path'] ?? ''))
            : errorOutput(`Load the skill with skills_use {"name": "${offered.id}"} first.`),
        ),
    },
  ];
}

async function skillText({ id, folder, skill }: OfferedSkill): Promise<string> {
  const files = await filesOf(folder);
  const facts = [
    ...(skill.compatibility === undefined ? [] : [`Compatibility: ${skill.compatibility}`]),
    ...(skill.allowedTools.length === 0
      ? []
      : [`Meant to be used with: ${skill.allowedTools.join(' ')}`]),
    ...(files.length === 0 ? [] : [`Files, to read with skills_read: ${files.join(', ')}`]),
  ];
  const body = skill.body.trim().replaceAll('</skill_content', '&lt;/skill_content');
  return [`<skill_content name="${escapeXml(id)}">`, body, '</skill_content>', ...facts].join('\n');
}

async function filesOf(folder: string): Promise<readonly string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile() && entry.name !== 'SKILL.md')
    .map(({ parentPath, name }) =>
      relative(folder, `${parentPath}${sep}${name}`).replaceAll(sep, '/'),
    )
    .toSorted()
    .slice(0, MAX_LISTED);
}

/** A file below the skill's folder, links resolved. */
async function readSkillFile({ folder }: OfferedSkill, path: string): Promise<ToolOutput> {
  try {
    const { real, stats } = await confine(path, 'read', {
      projectPath: folder,
      allow: [],
      threadId: '',
    });
    if (!stats?.isFile()) return errorOutput(`The skill has no file ${path}.`);
    if (stats.size > MAX_FILE_BYTES) {
      return errorOutput(`${path} is larger than ${MAX_FILE_BYTES} bytes.`);
    }
    return textOutput(await readFile(real, 'utf8'));
  } catch (error) {
    return errorOutput(messageOf(error), { code: 'path_denied' });
  }
}
