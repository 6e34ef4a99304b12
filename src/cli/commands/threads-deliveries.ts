import type { DeliveryReport } from '../../core/delivery.ts';
import { EXIT, type ExitCode, RyeError } from '../../core/errors.ts';
import { type Invocation, numberOption, requiredArgument, textOption } from '../invocation.ts';
import type { Io } from '../io.ts';
import { formatTable, printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';
import { oneLine } from '../terminal-text.ts';

const ANSWERS = ['delivered', 'dropped', 'retry'] as const;

/** `rye threads deliveries <id>`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const part = requiredArgument(invocation, 0, 'id');
  const seq = numberOption(invocation, 'resolve');
  return seq === undefined
    ? await list(part, invocation, io)
    : await resolve({ part, seq }, invocation, io);
}

async function list(part: string, invocation: Invocation, io: Io): Promise<ExitCode> {
  const found = await withRye(invocation, io, async ({ threads, deliveries }) =>
    deliveries.list(await threads.resolveId(part)),
  );
  if (invocation.global.json) {
    printDocument(io, { success: true, deliveries: found, total: found.length });
    return EXIT.ok;
  }
  const headings = ['N', 'KIND', 'FROM', 'STATE', 'WHY', 'TEXT'];
  io.stdout.write(formatTable(headings, found.map(rowOf), io.stdout));
  return EXIT.ok;
}

function rowOf(delivery: DeliveryReport): readonly string[] {
  const { seq, kind, source, state, close_reason, text, decisions } = delivery;
  const isUnderWay = state === 'queued' && delivery.entry_id !== null;
  return [
    String(seq),
    kind,
    source,
    isUnderWay ? 'accepted' : state,
    close_reason ?? decisions.at(-1)?.reason ?? '',
    oneLine(text),
  ];
}

async function resolve(
  { part, seq }: { readonly part: string; readonly seq: number },
  invocation: Invocation,
  io: Io,
): Promise<ExitCode> {
  const as = ANSWERS.find((answer) => answer === textOption(invocation, 'as'));
  if (as === undefined) {
    throw new RyeError('usage', '--resolve needs --as', {
      hint: `Add --as ${ANSWERS.join(', or --as ')}.`,
    });
  }
  const delivery = await withRye(invocation, io, async ({ threads, deliveries }) =>
    deliveries.resolve(await threads.resolveId(part), seq, as),
  );
  if (invocation.global.json) printDocument(io, { success: true, delivery });
  else {
    const now = as === 'retry' ? `is queued again as delivery ${delivery.seq}` : `is ${as}`;
    printLine(io, `delivery ${seq} ${now}`);
  }
  return EXIT.ok;
}
