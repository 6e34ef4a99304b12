import type { Skill } from '../../items/skill.ts';
import type { SkillFile } from '../../items/skill-files-fs.ts';

/** A skill that a thread may load. */
export interface OfferedSkill {
  /** Item id. */
  readonly id: string;
  /** Real path of its folder. */
  readonly folder: string;
  readonly skill: Skill;
  /** Whether the thread holds `execute` on it. */
  readonly mayRun: boolean;
  /** Throws if a signed file of the skill was changed or removed since. */
  readonly admitWhole: () => void;
  /** Throws what is wrong with the signature of a file, if the trust policy refuses it for this use. */
  readonly admit: (file: SkillFile, use: 'read' | 'run') => void;
}
