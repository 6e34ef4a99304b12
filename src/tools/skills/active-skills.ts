import { isRecord } from '../../core/json.ts';
import { isErrorOutcome, type Message } from '../../core/message.ts';
import { toolIdsOf } from './allowed-tools.ts';
import type { OfferedSkill } from './offered-skill.ts';

/** Member of a skill's `metadata` that lists the only tools that may be called while it is active. */
const RESTRICTION = 'rye-restrict-tools';

/** The skills that a thread has loaded; what says so for good is the result of each `skills_use` in its log. */
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
