import { isKnown, pathTo, type SessionTree } from '../../log/tree.ts';
import type { StreamRule } from './compile.ts';

/**
 * Which rules the model was told, and how many turns it has completed since. A rule is known by its content: an edited
 * one counts as new and a renamed one does not.
 */
export class InjectionHistory {
  /** Answers that came whole; a cut one counts with the answer that replaces it. */
  completedTurns = 0;
  readonly #toldAt = new Map<string, number>();

  /** Whether a rule may be told now. */
  isDue({ sha256, repeat, gap }: StreamRule): boolean {
    const at = this.#toldAt.get(sha256);
    if (at === undefined) return true;
    return repeat === 'after-gap' && this.completedTurns - at >= gap;
  }

  /** Notes that the model is told, about an answer before which it had completed so many turns. */
  mark(sha256: string, completedTurns: number): void {
    this.#toldAt.set(sha256, completedTurns);
  }
}

/** What the path to the leaf says was told: injections on other branches do not count there. */
export function restoreHistory(
  tree: SessionTree,
  leafId: string | null = tree.leafId,
): InjectionHistory {
  const history = new InjectionHistory();
  const turns: number[] = [];
  for (const entry of pathTo(tree, leafId)) {
    if (isKnown(entry, 'message') && entry.payload.message.role === 'assistant') {
      if (entry.payload.message.stop_reason === 'aborted') continue;
      turns.push(entry.payload.turn ?? 0);
      history.completedTurns += 1;
    }
    if (!isKnown(entry, 'rule_injection')) continue;
    const { turn, rules } = entry.payload;
    const before = turns.filter((completed) => completed < turn).length;
    for (const { sha256 } of rules) history.mark(sha256, before);
  }
  return history;
}
