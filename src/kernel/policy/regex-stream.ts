import { isUsable, programOf } from './regex.ts';
import { type Automaton, Code, LATIN1, type State } from './regex-automaton.ts';

export interface StreamHit {
  /** Index of the rule. */
  readonly rule: number;
  /** Index in the piece after the character that completed the match. */
  readonly at: number;
}

/** One text being matched. Each rule hits at most once. */
export interface StreamMatcher {
  /** Takes the next piece of text. */
  feed(text: string): readonly StreamHit[];
  /** Ends the text, for which `$` and `\b` may wait; returns the rules that hit there. */
  end(): readonly number[];
}

/** The patterns of several rules, compiled. */
export interface StreamRegex {
  /** Starts a text that these rules watch. */
  open(rules: readonly number[]): StreamMatcher;
}

/**
 * Compiles the patterns of rules to one matcher; any pattern of a rule counts, except those that
 * {@link streamRegexProblem} rejects. The first watched text compiles them. The matcher is a lazily built DFA over RE2's
 * programs, all rules in one (Cox, "Regular Expression Matching in the Wild", 2010). It carries its state from piece to
 * piece: it reads each character once and keeps no text, a match may have any length, and time is linear in the text.
 */
export function compileStreamRegex(rules: readonly (readonly string[])[]): StreamRegex {
  let code: Code | undefined;
  return {
    open: (wanted) => {
      if (wanted.length === 0) return NOTHING;
      code ??= new Code(rules.map((patterns) => patterns.filter(isUsable).map(programOf)));
      return new Scan(code.automaton(wanted), rules.length);
    },
  };
}

const NO_HITS: readonly never[] = [];
const NOTHING: StreamMatcher = { feed: () => NO_HITS, end: () => NO_HITS };

interface Lane {
  automaton: Automaton;
  state: State;
}

class Scan implements StreamMatcher {
  #lanes: readonly Lane[];
  readonly #hasHit: boolean[];
  #highSurrogate = '';

  constructor(automaton: Automaton, rules: number) {
    this.#lanes = [{ automaton, state: automaton.start }];
    this.#hasHit = Array.from({ length: rules }, () => false);
  }

  feed(piece: string): readonly StreamHit[] {
    if (piece === '') return NO_HITS;
    const held = this.#highSurrogate;
    const text = held + piece;
    const last = text.charCodeAt(text.length - 1);
    // the other half of the character comes with the next piece
    this.#highSurrogate = last >= 0xd800 && last <= 0xdbff ? text.slice(-1) : '';
    const end = text.length - this.#highSurrogate.length;
    let hits: StreamHit[] | undefined;
    for (const lane of this.#lanes) {
      const found = this.#run(lane, text, end);
      if (found) hits = [...(hits ?? []), ...found];
      if (lane.automaton.isOvergrown) this.#split();
    }
    return hits?.map(({ rule, at }) => ({ rule, at: Math.max(0, at - held.length) })) ?? NO_HITS;
  }

  end(): readonly number[] {
    const held = this.#highSurrogate;
    this.#highSurrogate = '';
    const hits: number[] = [];
    for (const lane of this.#lanes) {
      if (held !== '') lane.state = lane.automaton.step(lane.state, held.charCodeAt(0));
      hits.push(...(lane.state.hits ?? []), ...lane.automaton.hitsAtEnd(lane.state));
    }
    return [...new Set(hits)].filter((rule) => this.#isNew(rule));
  }

  #run(lane: Lane, text: string, end: number): StreamHit[] | undefined {
    const { automaton } = lane;
    const { latin1 } = automaton.code;
    let { state } = lane;
    let hits: StreamHit[] | undefined;
    if (state.hits) hits = this.#note(state, 0, hits);
    for (let at = 0; at < end; at += 1) {
      const unit = text.charCodeAt(at);
      if (unit < LATIN1) {
        state = state.next[latin1[unit] ?? 0] ?? automaton.step(state, unit);
      } else {
        const rune = text.codePointAt(at) ?? unit;
        if (rune > 0xffff) at += 1;
        state = automaton.step(state, rune);
      }
      if (state.hits) hits = this.#note(state, at + 1, hits);
    }
    lane.state = state;
    return hits;
  }

  #note(state: State, at: number, before: StreamHit[] | undefined): StreamHit[] | undefined {
    let hits = before;
    for (const rule of state.hits ?? NO_HITS) {
      if (this.#isNew(rule)) (hits ??= []).push({ rule, at });
    }
    return hits;
  }

  #isNew(rule: number): boolean {
    if (this.#hasHit[rule] === true) return false;
    this.#hasHit[rule] = true;
    return true;
  }

  #split(): void {
    this.#lanes = this.#lanes.flatMap(({ automaton, state }) =>
      automaton.isOvergrown
        ? automaton.halves().map((half) => ({ automaton: half, state: half.adopt(state) }))
        : [{ automaton, state }],
    );
  }
}
