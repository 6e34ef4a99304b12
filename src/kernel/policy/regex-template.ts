import { RE2JS } from 're2js';
import { LruMap } from '../core/lru.ts';
import { AT, type Instruction, isRuneOp, OP, type Program } from './regex.ts';

/** A text with parts that are not known yet: each null may be any text. */
export type Template = readonly (string | null)[];

const programs = new LruMap<string, Program>(256);

function programOf(pattern: string): Program {
  // the library types its compiled program loosely; a test compares this search with the library's own matcher
  return programs.getOrMake(pattern, () => RE2JS.compile(pattern).re2Input.prog as Program);
}

/** The places where a search can be: at an instruction, with or without a known character in the match so far. */
class Threads {
  readonly #program: Program;
  /** 1: reached without a known character, 2: with one. */
  readonly reached = new Map<number, number>();
  isMatch = false;

  constructor(program: Program) {
    this.#program = program;
  }

  /** Adds an instruction and all that follow it without a character. */
  add(from: number, isTouched: boolean, facts: number): void {
    const stack = [from];
    const bit = isTouched ? 2 : 1;
    for (let pc = stack.pop(); pc !== undefined; pc = stack.pop()) {
      const before = this.reached.get(pc) ?? 0;
      if ((before & bit) !== 0) continue;
      this.reached.set(pc, before | bit);
      const { op, out, arg } = this.#program.getInst(pc);
      if (op === OP.match) this.isMatch ||= isTouched;
      else if (op === OP.alt || op === OP.altMatch) stack.push(out, arg);
      else if (op === OP.capture || op === OP.nop) stack.push(out);
      else if (op === OP.emptyWidth && (arg & ~facts) === 0) stack.push(out);
    }
  }

  get size(): number {
    return [...this.reached.values()].reduce((sum, bits) => sum + bits, 0);
  }

  /** Calls `take` with the next instruction of each one that takes a character. */
  each(take: (instruction: Instruction, isTouched: boolean) => void): void {
    for (const [pc, bits] of this.reached) {
      const instruction = this.#program.getInst(pc);
      if (!isRuneOp(instruction.op)) continue;
      if ((bits & 1) !== 0) take(instruction, false);
      if ((bits & 2) !== 0) take(instruction, true);
    }
  }
}

/** Assertions that an unknown neighbor may fulfil. */
const MAYBE = AT.beginLine | AT.endLine | AT.wordBoundary | AT.noWordBoundary;

/** The assertions that hold at a place. */
type Facts = (isBegin: boolean, isEnd: boolean) => number;

/** True if a pattern may be found in a text of this form, in a place where at least one character is known. */
export function regexMayFind(pattern: string, template: Template): boolean {
  return search(pattern, template, (isBegin, isEnd) => {
    return MAYBE | (isBegin ? AT.beginText : 0) | (isEnd ? AT.endText : 0);
  });
}

/** True if a pattern is found in every text with this begin. */
export function regexFindsInBegin(pattern: string, begin: string): boolean {
  return search(pattern, [begin], (isBegin) => (isBegin ? AT.beginText | AT.beginLine : 0));
}

function search(pattern: string, template: Template, facts: Facts): boolean {
  const program = programOf(pattern);
  const lastKnown = template.findLastIndex((part) => part !== null && part !== '');
  let threads = new Threads(program);
  let isBegin = true;
  threads.add(program.start, false, facts(isBegin, lastKnown === -1));
  for (const [index, part] of template.entries()) {
    const characters = part === null ? [null] : Array.from(part);
    for (const [at, character] of characters.entries()) {
      if (threads.isMatch) return true;
      const isEnd = index > lastKnown || (index === lastKnown && at === characters.length - 1);
      isBegin &&= character === null;
      const here = facts(isBegin, isEnd);
      if (character === null) spread(threads, here);
      else threads = after(threads, program, { character, facts: here });
      // a match may start anywhere
      threads.add(program.start, false, here);
    }
  }
  return threads.isMatch;
}

/** Takes a character that is known. */
function after(
  threads: Threads,
  program: Program,
  { character, facts }: { readonly character: string; readonly facts: number },
): Threads {
  const next = new Threads(program);
  const rune = character.codePointAt(0) ?? 0;
  threads.each((instruction, isTouched) => {
    if (instruction.matchRune(rune)) next.add(instruction.out, isTouched || rune > SPACE, facts);
  });
  return next;
}

const SPACE = 32;

/** Lets an unknown text be anything: each instruction may take a character, or none. */
function spread(threads: Threads, facts: number): void {
  for (let size = -1; size !== threads.size; ) {
    size = threads.size;
    threads.each(({ out }, isTouched) => threads.add(out, isTouched, facts));
  }
}
