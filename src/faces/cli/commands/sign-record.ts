import type { RecordToSign, SignedRecords } from '../../../kernel/app/api/threads.ts';
import { EXIT, type ExitCode, RyeError } from '../../../kernel/core/errors.ts';
import { formatUsd } from '../../../kernel/core/usage.ts';
import { oneLine, type Shown, shown } from '../../ui/visible.ts';
import type { Context } from '../command.ts';
import { count, printDocument, printLine, printLines } from '../output.ts';
import { withRye } from '../session.ts';

interface SignRecordOptions {
  readonly dryRun: boolean;
  readonly yes: boolean;
}

/** Shows the records of a run without a signing key, and signs them after a yes. */
export async function signRecord(
  context: Context,
  idPart: string,
  { dryRun: isDryRun, yes: isSure }: SignRecordOptions,
): Promise<ExitCode> {
  const { io, global } = context;
  return await withRye(context, async ({ threads }) => {
    const id = await threads.resolveId(idPart);
    const offer = await threads.sign(id, { dryRun: true });
    if (!global.json) for (const record of offer.threads) printLines(io, linesOf(record));
    if (isDryRun) return print(context, offer);
    if (!isSure) await ask(context, offer, id);
    return print(context, await threads.sign(id));
  });
}

async function ask({ io, global }: Context, offer: SignedRecords, id: string): Promise<void> {
  const hint = `Review the records, then sign them with: rye sign thread ${id} --yes`;
  if (global.json || !io.stdinIsTty || !io.stderr.isTty)
    throw new RyeError('confirmation_required', 'nothing was signed', { hint });
  io.stderr.write(
    shown`The run itself wrote all this: your signature vouches for where you took it from.\n`,
  );
  const question = oneLine(
    `Sign ${count(offer.threads.length, 'record')} with ${offer.key_id}? [y/N] `,
  );
  const answer = await io.ask(question);
  if (!/^y(?:es)?$/i.test(answer.trim()))
    throw new RyeError('cancelled', 'nothing was signed', { hint });
}

function print({ io, global }: Context, records: SignedRecords): ExitCode {
  if (global.json) printDocument(io, { success: true, ...records });
  else if (records.signed)
    printLine(
      io,
      oneLine(`signed ${count(records.threads.length, 'record')} with ${records.key_id}`),
    );
  return EXIT.ok;
}

/** Returns what a person signs, in one block. */
function linesOf(record: RecordToSign): readonly Shown[] {
  const { events, bytes, head_sha256: head, calls, turns } = record;
  return [
    oneLine(`thread     ${record.thread_id} (${record.status}), started ${record.started_at}`),
    oneLine(`directive  ${record.directive}`),
    oneLine(`inputs     ${JSON.stringify(record.inputs)}`),
    oneLine(`model      ${record.model} (${record.provider})`),
    oneLine(
      `cost       ${formatUsd(record.spend_usd)}, ${count(turns, 'turn')}, ${count(calls, 'call')}`,
    ),
    oneLine(`log        ${count(events, 'event')}, ${bytes} bytes, head ${head ?? 'none'}`),
  ];
}
