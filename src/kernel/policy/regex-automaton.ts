import { AT, type Instruction, isRuneOp, OP, type Program } from './regex.ts';

/** States that an automaton keeps. One that needs more is split; one of a single rule rebuilds them. */
const MAX_STATES = 1000;
/** Characters whose class is in a table. */
export const LATIN1 = 256;
const NEWLINE = 10;
const NO_HITS: readonly never[] = [];
/** Facts of a position that only the text before it decides. */
const LAST_WAS_WORD = 64;

/** An instruction of one of several programs, numbered through all of them. */
interface Step {
  readonly op: number;
  readonly out: number;
  /** The other way out of an alternative, or the assertions of an empty width. */
  readonly arg: number;
  readonly rule: number;
  /** Index in {@link Code.predicates} of the test of a character. */
  readonly predicate: number;
}

/** A set of steps that the patterns are in at once. */
export interface State {
  /** Steps that wait for a character or for an assertion that the next character decides; sorted. */
  readonly pcs: readonly number[];
  readonly flags: number;
  readonly waits: boolean;
  /** Rules that match here. */
  readonly hits: readonly number[] | undefined;
  /** Successor by character class, filled as they are needed. */
  next: (State | undefined)[];
}

/** The programs of all rules as one list of steps. */
export class Code {
  readonly steps: readonly Step[];
  /** Start positions of the patterns of each rule. */
  readonly starts: readonly (readonly number[])[];
  /** Class of each character below 256 that was met; 0 of the others, by which no state has a successor. */
  readonly latin1 = new Uint32Array(LATIN1);
  readonly #predicates: readonly Instruction[];
  readonly #classes = new Map<string, number>();
  readonly #wideClasses = new Map<number, number>();
  readonly #automata = new Map<string, Automaton>();

  constructor(rules: readonly (readonly Program[])[]) {
    const steps: Step[] = [];
    const predicates = new Map<string, number>();
    const tests: Instruction[] = [];
    const add = (program: Program, rule: number): number => {
      const base = steps.length;
      for (let pc = 0; pc < program.numInst(); pc += 1) {
        const instruction = program.getInst(pc);
        const { op, arg, out, runes } = instruction;
        let predicate = -1;
        if (isRuneOp(op)) {
          const key = `${op}/${arg}/${Array.from(runes).join()}`;
          predicate = predicates.get(key) ?? tests.push(instruction) - 1;
          predicates.set(key, predicate);
        }
        const other = op === OP.alt || op === OP.altMatch ? base + arg : arg;
        steps.push({ op, out: base + out, arg: other, rule, predicate });
      }
      return base + program.start;
    };
    this.starts = rules.map((patterns, rule) => patterns.map((program) => add(program, rule)));
    this.steps = steps;
    this.#predicates = tests;
  }

  automaton(rules: readonly number[]): Automaton {
    const key = rules.join();
    const known = this.#automata.get(key);
    if (known) return known;
    const made = new Automaton(this, rules);
    this.#automata.set(key, made);
    return made;
  }

  classOf(rune: number): number {
    if (rune < LATIN1) {
      const met = this.latin1[rune] ?? 0;
      if (met !== 0) return met;
      const first = this.#newClass(rune);
      this.latin1[rune] = first;
      return first;
    }
    const known = this.#wideClasses.get(rune);
    if (known !== undefined) return known;
    if (this.#wideClasses.size >= MAX_STATES) this.#wideClasses.clear();
    const found = this.#newClass(rune);
    this.#wideClasses.set(rune, found);
    return found;
  }

  test(predicate: number, rune: number): boolean {
    return this.#predicates[predicate]?.matchRune(rune) ?? false;
  }

  /** Characters that every step treats alike are one class. */
  #newClass(rune: number): number {
    let signature = `${rune === NEWLINE}${isWord(rune)}`;
    for (const predicate of this.#predicates) signature += predicate.matchRune(rune) ? '1' : '0';
    const known = this.#classes.get(signature);
    if (known !== undefined) return known;
    const fresh = this.#classes.size + 1;
    this.#classes.set(signature, fresh);
    return fresh;
  }
}

/** The DFA of some of the rules. */
export class Automaton {
  readonly code: Code;
  readonly start: State;
  /** Its rules together need too many states. */
  isOvergrown = false;
  readonly #rules: readonly number[];
  readonly #starts: readonly number[];
  #states = new Map<string, State>();

  constructor(code: Code, rules: readonly number[]) {
    this.code = code;
    this.#rules = rules;
    this.#starts = rules.flatMap((rule) => code.starts[rule] ?? []);
    this.start = this.#state(this.#starts, AT.beginText | AT.beginLine, NO_HITS);
  }

  /** The automata of one half of the rules each. */
  halves(): readonly Automaton[] {
    const middle = this.#rules.length >> 1;
    return [this.#rules.slice(0, middle), this.#rules.slice(middle)].map((half) =>
      this.code.automaton(half),
    );
  }

  /** Returns the state of this automaton that corresponds to another automaton's state, for the rules of this one. */
  adopt({ pcs, flags }: State): State {
    const { steps } = this.code;
    const own = pcs.filter((pc) => this.#rules.includes(steps[pc]?.rule ?? -1));
    return this.#state(own, flags, NO_HITS);
  }

  /** Returns the state after one more character. */
  step(state: State, rune: number): State {
    const known = this.code.classOf(rune);
    const next = state.next[known] ?? this.#build(state, rune);
    state.next[known] = next;
    return next;
  }

  hitsAtEnd({ waits, pcs, flags }: State): readonly number[] {
    if (!waits) return NO_HITS;
    const boundary = (flags & LAST_WAS_WORD) === 0 ? AT.noWordBoundary : AT.wordBoundary;
    return this.#hits(this.#closure(pcs, flags | AT.endLine | AT.endText | boundary));
  }

  #build(state: State, rune: number): State {
    let { pcs } = state;
    let hits: readonly number[] = NO_HITS;
    if (state.waits) {
      const isBoundary = isWord(rune) !== ((state.flags & LAST_WAS_WORD) !== 0);
      pcs = this.#closure(
        pcs,
        state.flags |
          (rune === NEWLINE ? AT.endLine : 0) |
          (isBoundary ? AT.wordBoundary : AT.noWordBoundary),
      );
      hits = this.#hits(pcs);
    }
    // a match may start anywhere
    const next = [...this.#starts];
    for (const pc of pcs) {
      const step = this.code.steps[pc];
      if (step && step.predicate >= 0 && this.code.test(step.predicate, rune)) next.push(step.out);
    }
    const flags = (rune === NEWLINE ? AT.beginLine : 0) | (isWord(rune) ? LAST_WAS_WORD : 0);
    return this.#state(next, flags, hits);
  }

  /** The state of some steps; `before` are rules whose match the last character has decided. */
  #state(from: readonly number[], facts: number, before: readonly number[]): State {
    const pcs = this.#closure(from, facts);
    const waits = pcs.some((pc) => this.code.steps[pc]?.op === OP.emptyWidth);
    const flags = waits ? facts : 0;
    const key = `${flags}:${before.join()}:${pcs.join()}`;
    const known = this.#states.get(key);
    if (known) return known;
    if (this.#states.size >= MAX_STATES) {
      this.#forget();
      this.isOvergrown = this.#rules.length > 1;
    }
    const hits = [...new Set([...before, ...this.#hits(pcs)])];
    const state: State = {
      pcs,
      flags,
      waits,
      hits: hits.length === 0 ? undefined : hits,
      next: [],
    };
    this.#states.set(key, state);
    return state;
  }

  #hits(pcs: readonly number[]): readonly number[] {
    const { steps } = this.code;
    const hits: number[] = [];
    for (const pc of pcs) {
      const step = steps[pc];
      if (step?.op === OP.match) hits.push(step.rule);
    }
    return hits;
  }

  /** Frees all states but those that a scan holds: their successors are built again. */
  #forget(): void {
    for (const state of this.#states.values()) state.next = [];
    this.#states = new Map();
  }

  /** Returns the steps reachable without a character, given the assertions in `facts`; sorted, without intermediate steps. */
  #closure(from: readonly number[], facts: number): number[] {
    const { steps } = this.code;
    const seen = new Set<number>();
    const reached: number[] = [];
    const stack = [...from];
    for (let pc = stack.pop(); pc !== undefined; pc = stack.pop()) {
      const step = steps[pc];
      if (!step || seen.has(pc)) continue;
      seen.add(pc);
      const { op, out, arg } = step;
      if (op === OP.alt || op === OP.altMatch) stack.push(out, arg);
      else if (op === OP.capture || op === OP.nop) stack.push(out);
      else if (op === OP.emptyWidth && (arg & ~facts) === 0) stack.push(out);
      else if (op === OP.emptyWidth) {
        // what only the text before decides can't come true any more
        if ((arg & (AT.beginLine | AT.beginText) & ~facts) === 0) reached.push(pc);
      } else if (op === OP.match || isRuneOp(op)) reached.push(pc);
    }
    return reached.toSorted((left, right) => left - right);
  }
}

/** RE2's `\b` knows ASCII words only. */
function isWord(rune: number): boolean {
  return (
    (rune >= 48 && rune <= 57) ||
    (rune >= 65 && rune <= 90) ||
    rune === 95 ||
    (rune >= 97 && rune <= 122)
  );
}
