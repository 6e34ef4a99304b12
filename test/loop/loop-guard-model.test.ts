import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type FoundLoop, LoopGuard } from '../../src/kernel/loop/call-history.ts';

const REPEATS = 5;
const MAX_PERIOD = 10;

/** One turn: calls by name and argument, each with its result. */
type Turn = readonly (readonly [tool: string, argument: number, result: string])[];

function play(guard: LoopGuard, turn: Turn): FoundLoop | undefined {
  for (const [tool, n, text] of turn) {
    guard.note({
      requested: { call: { name: tool, input: { n } } },
      tool,
      outcome: 'ok',
      content: [{ type: 'text', text }],
      durationMs: 1,
    });
  }
  return guard.endTurn();
}

/** The detector as a definition: it looks at every turn since the last loop and forgets nothing else. */
class NaiveGuard {
  readonly #told: string[] = [];
  #turns: string[] = [];

  play(turn: Turn): Pick<FoundLoop, 'period' | 'turns' | 'isLast'> | undefined {
    if (turn.length === 0) {
      this.#turns = [];
      return undefined;
    }
    this.#turns.push(JSON.stringify(turn.map((call) => JSON.stringify(call)).toSorted()));
    const at = (back: number): string | undefined => this.#turns[this.#turns.length - 1 - back];
    for (let period = 1; period <= MAX_PERIOD; period += 1) {
      const cycle = JSON.stringify(this.#turns.slice(-period).toSorted());
      const isTold = this.#told.includes(cycle);
      const rounds = Math.max(period === 1 ? REPEATS : 2, Math.ceil(REPEATS / period));
      const needed = isTold ? Math.max(REPEATS, period) : rounds * period;
      if (this.#turns.length < needed) continue;
      const backs = Array.from({ length: needed - period }, (_, back) => back);
      if (!backs.every((back) => at(back) === at(back + period))) continue;
      const isLast = isTold || new Set(this.#told).size >= 3;
      this.#told.push(cycle);
      this.#turns = [];
      return { period, turns: needed, isLast };
    }
    return undefined;
  }
}

const call = fc.tuple(
  fc.constantFrom('read', 'no_such_tool'),
  fc.nat(1),
  fc.constantFrom('x', 'y'),
);
const turn = fc.array(call, { maxLength: 2 });
/** Turns that come in runs of cycles, so that most sequences have loops. */
const turns = fc
  .array(fc.tuple(fc.array(turn, { minLength: 1, maxLength: 4 }), fc.integer({ min: 1, max: 9 })), {
    maxLength: 8,
  })
  .map((runs) =>
    runs.flatMap(([cycle, count]) => Array.from({ length: count }, () => cycle).flat()),
  );

describe('the detector of loops', () => {
  it('agrees with its definition on any sequence of turns', () => {
    fc.assert(
      fc.property(turns, (sequence) => {
        const guard = new LoopGuard(REPEATS);
        const naive = new NaiveGuard();
        for (const one of sequence) {
          const found = play(guard, one);
          const expected = naive.play(one);
          expect(found && { ...found, tools: undefined }).toEqual(
            expected && { ...expected, tools: undefined },
          );
        }
      }),
      { numRuns: 500 },
    );
  });

  it('tells of every cycle of up to ten turns once, and then ends it', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: MAX_PERIOD }), (period) => {
        const guard = new LoopGuard(REPEATS);
        const cycle = (at: number): Turn => [[`tool_${at % period}`, at % period, 'no such tool']];
        const found = Array.from({ length: 6 * period + 12 }, (_, at) => play(guard, cycle(at)));
        const loops = found.filter((one) => one !== undefined);
        expect(loops[0]).toMatchObject({ period, isLast: false });
        expect(loops[1]).toMatchObject({ period, isLast: true });
        const last = found.findIndex((one) => one?.isLast === true) + 1;
        expect(last).toBe([10, 11, 11, 13, 15, 18, 21, 24, 27, 30][period - 1]);
      }),
    );
  });

  it('never takes a cycle for a loop while one of its results is new', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: MAX_PERIOD }), fc.nat(9), (period, fresh) => {
        const guard = new LoopGuard(REPEATS);
        for (let at = 0; at < 60; at += 1) {
          const isNew = at % period === fresh % period;
          const result = isNew ? `line ${at}` : 'same';
          expect(play(guard, [['read', at % period, result]])).toBeUndefined();
        }
      }),
    );
  });
});
