import { isRecord } from '../../kernel/core/json.ts';
import { isErrorOutcome, type Message } from '../../kernel/core/message.ts';
import type { Skill } from '../../kernel/items/skill.ts';
import type { SkillFile } from '../../kernel/items/skill-files-fs.ts';

/** Member of a skill's `metadata` that lists the only tools that may be called while it is active. */
const RESTRICTION = 'rye-restrict-tools';

/** The skills that a thread has loaded. The results of `skills_use` in its log are the lasting record. */
export class ActiveSkills {
  readonly #offered: ReadonlyMap<string, OfferedSkill>;
  readonly #max: number;
  readonly #active = new Set<string>();

  constructor(offered: readonly OfferedSkill[], max: number) {
    this.#offered = new Map(offered.map((skill) => [skill.id, skill]));
    this.#max = max;
  }

  has(id: string): boolean {
    return this.#active.has(id);
  }

  /** Why it can't be activated, or undefined when it is active now. */
  activate(id: string): string | undefined {
    if (!this.#active.has(id) && this.#active.size >= this.#max) {
      return `${this.#max} skills are active already: ${[...this.#active].join(', ')}.`;
    }
    this.#active.add(id);
    return undefined;
  }

  /** True if the skill was active. */
  deactivate(id: string): boolean {
    return this.#active.delete(id);
  }

  /** Deactivates all skills, and returns their IDs. */
  clear(): readonly string[] {
    const ids = [...this.#active];
    this.#active.clear();
    return ids;
  }

  /** Activates what an earlier part of the conversation loaded, as far as it is still offered; gives what it activated. */
  restore(messages: readonly Message[], toolName: string): readonly OfferedSkill[] {
    const restored: OfferedSkill[] = [];
    for (const message of messages) {
      if (message.role !== 'tool_result' || message.name !== toolName) continue;
      const id = isRecord(message.data) ? message.data['skill'] : undefined;
      if (isErrorOutcome(message.outcome) || typeof id !== 'string') continue;
      const offered = this.#offered.get(id);
      if (!offered || this.has(id) || this.activate(id) !== undefined) continue;
      restored.push(offered);
    }
    return restored;
  }

  /** Why a tool may not be called now: some active skill restricts the tools, and none allows this one. */
  refusal(toolId: string): string | undefined {
    const restricting = [...this.#active].flatMap((id) => {
      const listed = this.#offered.get(id)?.skill.metadata[RESTRICTION];
      return listed === undefined ? [] : [{ id, tools: toolIdsOf(listed.split(/[\s,]+/)) }];
    });
    if (restricting.length === 0 || restricting.some(({ tools }) => tools.includes(toolId))) {
      return undefined;
    }
    const names = restricting.map(({ id }) => id).join(', ');
    return `the active skill ${names} restricts the tools to ${restricting.flatMap(({ tools }) => tools).join(', ')}`;
  }
}

/** A skill that a thread may load. */
export interface OfferedSkill {
  /** Item id. */
  readonly id: string;
  /** Real path of its folder. */
  readonly folder: string;
  readonly skill: Skill;
  /** True if the thread holds `execute` on it. */
  readonly mayRun: boolean;
  /** Throws if a signed file of the skill was changed or removed since. */
  readonly admitWhole: () => void;
  /** Throws what is wrong with the signature of a file, if the trust policy refuses it for this use. */
  readonly admit: (file: SkillFile, use: 'read' | 'run') => void;
}

/** Tools of other programs, by the names that skills use for them. */
const FOREIGN: Readonly<Record<string, string>> = {
  Bash: 'rye/bash',
  Read: 'rye/file-system/read',
  Write: 'rye/file-system/write',
  Edit: 'rye/file-system/edit',
  MultiEdit: 'rye/file-system/multi_edit',
  LS: 'rye/file-system/ls',
  Glob: 'rye/file-system/glob',
  Grep: 'rye/file-system/grep',
};

/**
 * Returns the tool that an entry such as `Read`, `Bash(git:*)`, `mcp__memory__read_graph` or `rye/bash` means; undefined
 * for tools that rye does not have. Parentheses restrict permission prompts of another program and are ignored.
 */
function toolIdOf(entry: string): string | undefined {
  const name = entry.replace(/\(.*$/, '');
  if (Object.hasOwn(FOREIGN, name)) return FOREIGN[name];
  const [, server, tool] = /^mcp__([^_](?:.*?[^_])?)__(.+)$/.exec(name) ?? [];
  if (server !== undefined && tool !== undefined) return `mcp/${server}/${tool}`;
  return name.includes('/') ? name : undefined;
}

/** The tools that a list of entries means, each once. */
export function toolIdsOf(entries: readonly string[]): readonly string[] {
  return [...new Set(entries.flatMap((entry) => toolIdOf(entry) ?? []))];
}
