import path from 'node:path';
import type { ThreadExport } from '../../app/api/trees.ts';
import { type ErrorInfo, EXIT, type ExitCode, exitCodeOf, RyeError } from '../../core/errors.ts';
import { compact } from '../../core/json.ts';
import { EXPORT_FORMATS, type ExportFormat } from '../../core/thread.ts';
import { assertWritableTarget } from '../files.ts';
import { flagOption, type Invocation, requiredArgument, textOption } from '../invocation.ts';
import type { Io } from '../io.ts';
import { displayPath, printDocument } from '../output.ts';
import { withRye } from '../session.ts';
import { oneLine } from '../terminal-text.ts';

/** `rye threads export <id>`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const part = requiredArgument(invocation, 0, 'id');
  const out = textOption(invocation, 'out');
  const target = out === undefined ? undefined : await assertWritableTarget('--out', out, io);
  const options = compact({
    format: formatOf(textOption(invocation, 'format'), out),
    branch: branchOf(invocation),
    redact: flagOption(invocation, 'redact'),
  });
  return await withRye(invocation, io, async ({ threads, exports }) => {
    const exported = await exports.export(await threads.resolveId(part), options);
    const defect = defectOf(exported);
    if (!invocation.global.quiet) warn(exported, io);
    if (target !== undefined) await writeExport(target, exported, { invocation, io, defect });
    else if (invocation.global.json) {
      printDocument(io, {
        ...documentOf(exported, defect),
        content: [...exported.chunks].join(''),
      });
    } else await printExport(exported.chunks, io);
    return defect === null ? EXIT.ok : exitCodeOf(defect.code);
  });
}

/** `--branch` without an entry is the open branch. */
function branchOf(invocation: Invocation): string | undefined {
  if (invocation.options['branch'] === true) return 'leaf';
  return textOption(invocation, 'branch');
}

function formatOf(named: string | undefined, out: string | undefined): ExportFormat {
  const wanted = named ?? (out === undefined ? 'md' : path.extname(out).slice(1));
  const format = EXPORT_FORMATS.find((known) => known === wanted);
  if (format !== undefined) return format;
  throw new RyeError('usage', `--out: the ending of ${out} is no format`, {
    hint: `Say which: --format ${EXPORT_FORMATS.join('|')}`,
  });
}

/** Repairs that lose nothing: records that ran together, and the half line that a running thread is writing. */
const HARMLESS: ReadonlySet<string> = new Set(['fused', 'torn_tail']);

/** Why the export is not the whole and true record, or null. */
function defectOf({ tampered, problems, thread_id }: ThreadExport): ErrorInfo | null {
  if (tampered !== null) return tampered;
  const losses = problems.filter(({ kind }) => !HARMLESS.has(kind));
  const [first] = losses;
  if (!first) return null;
  return {
    code: 'log_malformed',
    message: `the log of ${thread_id} has ${losses.length} defects, the first at byte ${first.offset}: ${first.message}`,
    hint: 'What could be read was exported.',
  };
}

function warn({ problems, tampered }: ThreadExport, io: Io): void {
  for (const { offset, message } of problems) {
    io.stderr.write(`rye: warning: byte ${offset}: ${oneLine(message)}\n`);
  }
  if (tampered === null) return;
  io.stderr.write(`rye: warning: ${oneLine(tampered.message)} [${tampered.code}]\n`);
}

function documentOf(
  { chunks: _chunks, tampered: _tampered, ...facts }: ThreadExport,
  defect: ErrorInfo | null,
): object {
  return { success: defect === null, ...facts, ...(defect === null ? {} : { error: defect }) };
}

interface Printing {
  readonly invocation: Invocation;
  readonly io: Io;
  readonly defect: ErrorInfo | null;
}

async function writeExport(
  target: string,
  exported: ThreadExport,
  { invocation, io, defect }: Printing,
): Promise<void> {
  const bytes = Buffer.concat([...exported.chunks].map((chunk) => Buffer.from(chunk)));
  const { writeOutput } = await import('../../disk/whole-file.ts');
  writeOutput(target, bytes, { hint: 'Name another file with --out. The thread is as it was.' });
  if (invocation.global.json) {
    printDocument(io, { ...documentOf(exported, defect), path: target, bytes: bytes.length });
  } else if (!invocation.global.quiet) {
    io.stderr.write(`wrote ${displayPath(target, io)}, ${bytes.length} bytes\n`);
  }
}

const BATCH_CHARS = 1 << 20;

/** Waits for the reader now and then, so that a slow one costs no memory and one that left no time. */
async function printExport(chunks: Iterable<string>, io: Io): Promise<void> {
  let waiting = 0;
  for (const chunk of chunks) {
    io.stdout.write(chunk);
    waiting += chunk.length;
    if (waiting < BATCH_CHARS) continue;
    if ((await io.flush()) !== 'whole') return;
    waiting = 0;
  }
}
