import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ItemType } from '../../core/ids.ts';
import type { Workspace } from '../workspace.ts';

/** An item that the program vouches for instead of a signature. */
export interface ProgramItem {
  readonly type: 'directive' | 'skill';
  readonly id: string;
  readonly space: 'project';
  /** The SKILL.md of a skill; `program:ID` for a directive, which has no file. */
  readonly path: string;
  readonly text: string;
}

/** Returns the directives from code that rye keeps, and the skills that it was opened with. */
export function programItems(
  workspace: Workspace,
  type: ItemType | 'all' = 'all',
): readonly ProgramItem[] {
  const space = 'project';
  const directives = [...workspace.directives(workspace.preset).values()].map(
    ({ id, text }): ProgramItem => ({ type: 'directive', id, space, path: `program:${id}`, text }),
  );
  const skills = workspace.programSkills.map(({ id, folder }): ProgramItem => {
    const path = join(folder, 'SKILL.md');
    return { type: 'skill', id, space, path, text: readFileSync(path, 'utf8') };
  });
  return [...directives, ...skills].filter((item) => type === 'all' || item.type === type);
}
