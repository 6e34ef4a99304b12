import type { ThreadDetails, UnverifiedPart } from '../../app/api/threads.ts';
import type { ActiveTurn, Delivery } from '../../core/delivery.ts';
import { EXIT, type ExitCode } from '../../core/errors.ts';
import type { ThreadRecord } from '../../core/thread.ts';
import { formatCost, formatUsd } from '../../core/usage.ts';
import { type Invocation, requiredArgument } from '../invocation.ts';
import type { Io } from '../io.ts';
import { displayPath, printDocument, printLine } from '../output.ts';
import { markMembers, warnUnverified } from '../render/log-mark.ts';
import { withRye } from '../session.ts';
import { neutralise, oneLine } from '../terminal-text.ts';

/** `rye threads show <id>`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const part = requiredArgument(invocation, 0, 'id');
  const { details, mark } = await withRye(invocation, io, async ({ threads }) => {
    const id = await threads.resolveId(part);
    return { details: await threads.show(id), mark: await threads.mark(id) };
  });
  warnUnverified(mark, io);
  if (invocation.global.json)
    printDocument(io, { success: true, ...details, ...markMembers(mark) });
  else for (const line of describeThread(details, io)) printLine(io, line);
  return EXIT.ok;
}

function describeThread(details: ThreadDetails, io: Io): readonly string[] {
  const { thread, chain, children, paths, explanation } = details;
  const lines: (readonly [string, string | null])[] = [
    ['thread', thread.thread_id],
    ['directive', thread.directive],
    ['status', explanation === null ? thread.status : `${thread.status} (${explanation})`],
    ['model', thread.model],
    ['created', thread.created_at],
    ['completed', thread.completed_at],
    ['cost', formatCost(thread.cost)],
    ['active turn', describeTurn(details.active_turn)],
    ['parent', thread.parent_id],
    ['error', thread.error === null ? null : `${thread.error.message} [${thread.error.code}]`],
    ['hint', thread.error?.hint ?? null],
    ['chain', chain.length > 1 ? chain.map(({ thread_id }) => thread_id).join(' → ') : null],
    ['files', displayPath(paths.thread, io)],
    ['transcript', displayPath(paths.transcript, io)],
    ['knowledge', displayPath(paths.knowledge, io)],
  ];
  return [
    ...lines.flatMap(([name, value]) =>
      value === null ? [] : [`${name.padEnd(11)} ${oneLine(value)}`],
    ),
    ...details.unverified.map((part) => describeUnverified(thread, part)),
    ...children.map(describeChild),
    ...details.deliveries.map(describeDelivery),
    ...(thread.result === null ? [] : ['', neutralise(thread.result).trimEnd()]),
  ];
}

function describeUnverified({ thread_id: id }: ThreadRecord, part: UnverifiedPart): string {
  const { bytes, file } = part;
  return `${'unverified'.padEnd(11)} ${bytes} bytes in ${oneLine(file)}: rye threads logs ${id} --unverified`;
}

/** What an active-turn steer is judged by; after `valid until` it counts as unknown. */
function describeTurn(turn: ActiveTurn | null): string | null {
  if (turn === null) return null;
  const { active_run_id: id, active_run_kind: kind, risk_class: risk, steerable } = turn;
  const can = steerable === true && risk === 'read_only_low_risk' ? 'steerable' : 'not steerable';
  return `${id} ${kind}, ${risk}, ${can}, epoch ${turn.epoch}, observed ${turn.observed_at}, valid until ${turn.valid_until}`;
}

function describeDelivery({ seq, kind, source, state }: Delivery): string {
  return `${'delivery'.padEnd(11)} ${seq} ${kind} from ${oneLine(source)} ${state}`;
}

function describeChild(child: ThreadRecord): string {
  return `${'child'.padEnd(11)} ${child.thread_id} ${child.status} ${formatUsd(child.cost.spend)}`;
}
