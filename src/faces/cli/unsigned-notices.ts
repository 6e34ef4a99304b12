import type { Io, Sink } from '../ui/io.ts';

/** The notice about one file that is not signed: its type and ID, and what still applies of it. */
const UNSIGNED = /^ignored: .+?: \w+ (\S+) is not signed(?:; ([^[]+?))? \[unsigned\]\./;

/** A longer list is not read. */
const MOST_NAMES = 8;

interface Held {
  readonly notices: string[];
  readonly print: (notice: string) => void;
}

const heldOf = new WeakMap<Sink, Held[]>();

/**
 * Runs a call with an Io that prints the notices about unsigned files in one line, before anything else that the call
 * prints: six lines of warnings are not read.
 */
export async function gatheringUnsigned<T>(io: Io, call: (io: Io) => Promise<T>): Promise<T> {
  const held: Held[] = [];
  const printHeld = (): void => {
    for (const { notices, print } of held.splice(0)) print(summaryOf(notices));
  };
  const sink = (one: Sink): Sink => ({
    isTty: one.isTty,
    get columns() {
      return one.columns;
    },
    get rows() {
      return one.rows;
    },
    write(content) {
      printHeld();
      one.write(content);
    },
    writeRaw(content) {
      printHeld();
      one.writeRaw(content);
    },
  });
  const stdout = sink(io.stdout);
  heldOf.set(stdout, held);
  const questions: Pick<Io, 'ask' | 'openKeyboard'> = {
    async ask(question) {
      printHeld();
      return await io.ask(question);
    },
    async openKeyboard(handlers) {
      printHeld();
      return await io.openKeyboard(handlers);
    },
  };
  const gathering = Object.create(io, {
    stdout: { value: stdout },
    stderr: { value: sink(io.stderr) },
    ask: { value: questions.ask },
    openKeyboard: { value: questions.openKeyboard },
  }) as Io;
  try {
    return await call(gathering);
  } finally {
    printHeld();
  }
}

/** Holds a notice back if it reports an unsigned file. `print` is called once for all of them. */
export function holdUnsigned({ stdout }: Io, notice: string, print: Held['print']): boolean {
  const held = heldOf.get(stdout);
  if (held === undefined || !UNSIGNED.test(notice)) return false;
  const [last] = held;
  if (last) last.notices.push(notice);
  else held.push({ notices: [notice], print });
  return true;
}

function summaryOf(notices: readonly string[]): string {
  const [only = ''] = notices;
  if (notices.length === 1) return only;
  const names = notices.map((notice) => {
    const [, id = '', rest] = UNSIGNED.exec(notice) ?? [];
    return rest === undefined ? id : `${id} (${rest})`;
  });
  const more = names.length - MOST_NAMES;
  const listed = more > 0 ? [...names.slice(0, MOST_NAMES), `${more} more`] : names;
  return `ignored: ${notices.length} files that are not signed [unsigned]: ${listed.join(', ')}. Review them, then run: rye sign`;
}
