import { join, sep } from 'node:path';
import { withForeignSkills } from '../items/skill-files-fs.ts';
import type { Spaces } from '../items/spaces-fs.ts';
import { openSpaces } from '../items/spaces-fs.ts';
import { readSettings } from './settings.ts';
import type { Workspace } from './workspace.ts';

/** Folders of other programs' skills, relative to the project and the home folder. */
const FOREIGN_FOLDER = '.claude';

/** Returns the spaces to search for skills, including the spaces of other programs if `skills.compat` is set. */
export async function skillSpaces(workspace: Workspace): Promise<Spaces> {
  const { skills } = await readSettings(await workspace.config(), 'agent/agent');
  if (!skills?.compat) return workspace.spaces;
  const { projectPath, userSpacePath } = workspace.options;
  // rye ships no skills of other programs
  const systemPath = join(workspace.systemPath, '.ai');
  const paths = { projectPath, userSpacePath, systemPath };
  return withForeignSkills(workspace.spaces, openSpaces(paths, FOREIGN_FOLDER));
}

/** True for a skill that another program's user wrote, by that program's rules. */
export function isForeignSkill(path: string): boolean {
  return path.includes(`${sep}${FOREIGN_FOLDER}${sep}skills${sep}`);
}
