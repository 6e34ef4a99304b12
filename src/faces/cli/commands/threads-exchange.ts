import { existsSync } from 'node:fs';
import { dirname, extname, join, resolve } from 'node:path';
import type { ThreadExport } from '../../../kernel/app/api/trees.ts';
import { type ErrorInfo, EXIT, exitCodeOf, RyeError } from '../../../kernel/core/errors.ts';
import { compact } from '../../../kernel/core/json.ts';
import { EXPORT_FORMATS, type ExportFormat } from '../../../kernel/core/thread.ts';
import type { Io } from '../../ui/io.ts';
import { oneLine, shown } from '../../ui/visible.ts';
import {
  argument,
  type Context,
  choice,
  defineCommand,
  flag,
  optionalText,
  text,
} from '../command.ts';
import { assertWritableTarget } from '../input.ts';
import { count, displayPath, printDocument, printResult } from '../output.ts';
import { withRye } from '../session.ts';
import { THREAD } from '../shared-options.ts';

const exportThread = defineCommand({
  details:
    'html: one self-contained page with the whole tree, the costs and the verification result. md: the conversation of one branch. jsonl: one branch as an unsigned log. pi: a pi session file with all branches. If the log is damaged, exports the readable part and fails.',
  arguments: { id: THREAD },
  options: {
    format: choice(
      'FORMAT',
      EXPORT_FORMATS,
      'Format of the export (default: the extension of FILE, else md)',
    ),
    out: text('FILE', 'Write to FILE (default: stdout)', { short: 'o' }),
    branch: optionalText('ENTRY', 'Only the path to ENTRY; without ENTRY, the active branch'),
    redact: flag(
      'Omit tool arguments and results, inputs, thinking, hook state and anything that looks like a secret',
    ),
  },
  examples: [
    'rye threads export 2456 --out hello.html --redact --branch',
    'rye threads export 2456 --format jsonl --branch 3fa9',
  ],
  run: async (call) => {
    const { args, options, io, global } = call;
    const { out, redact } = options;
    const target = out === undefined ? undefined : await assertWritableTarget('--out', out, io);
    const format = formatOf(options.format, out);
    const branch = options.branch === true ? 'leaf' : options.branch;
    return await withRye(call, async ({ threads, trees, exports }) => {
      const asked = await threads.resolveId(args.id);
      const session = await threads.session(asked);
      // the log of the last thread begins with what it was given of those before it
      const id =
        typeof options.branch === 'string'
          ? await trees.locate(asked, options.branch)
          : (session.at(-1) ?? asked);
      if (session.length > 1 && !global.quiet) {
        const which = id === session.at(-1) ? 'the last of' : 'one of';
        io.stderr.write(
          shown`rye: this is ${oneLine(id)}, ${which} ${session.length} threads of the session\n`,
        );
      }
      const exported = await exports.export(
        id,
        compact({
          format,
          branch,
          redact,
          pageOf: target === undefined ? undefined : pagesBeside(target),
        }),
      );
      const defect = defectOf(exported);
      if (!global.quiet) warn(exported, io);
      if (target !== undefined) await writeExport(call, target, exported, defect);
      else if (global.json) {
        const content = [...exported.chunks].join('');
        printDocument(io, { ...documentOf(exported, defect), content });
      } else await printExport(exported.chunks, io);
      return defect === null ? EXIT.ok : exitCodeOf(defect.code);
    });
  },
});

function formatOf(named: ExportFormat | undefined, out: string | undefined): ExportFormat {
  if (named !== undefined || out === undefined) return named ?? 'md';
  const extension = extname(out).slice(1);
  const format = EXPORT_FORMATS.find((known) => known === extension);
  if (format !== undefined) return format;
  throw new RyeError('usage', `--out: the extension of ${out} is not an export format`, {
    hint: `Choose one with --format ${EXPORT_FORMATS.join('|')}`,
  });
}

/**
 * Finds the pages of other threads in the folder of an export: `<id>.html`, or named by the last segment of the id. That of
 * a schedule's thread is a time, which threads of other schedules share.
 */
function pagesBeside(target: string): (threadId: string) => string | undefined {
  return (threadId) => {
    const last = threadId.slice(threadId.lastIndexOf('/') + 1);
    const names = threadId.startsWith('schedule/') ? [threadId] : [threadId, last];
    const pages = names.map((name) => `${name}.html`);
    return pages.find((page) => existsSync(join(dirname(target), page)));
  };
}

/** Repairs that lose nothing: records on one line, and the half line that a running thread is writing. */
const HARMLESS: ReadonlySet<string> = new Set(['fused', 'torn_tail']);

/** Returns why the export is not the complete and authentic log, or null. */
function defectOf({ tampered, problems, thread_id }: ThreadExport): ErrorInfo | null {
  if (tampered !== null) return tampered;
  const losses = problems.filter(({ kind }) => !HARMLESS.has(kind));
  const [first] = losses;
  if (!first) return null;
  return {
    code: 'log_malformed',
    message: `the log of ${thread_id} has ${count(losses.length, 'defect')}, the first at byte ${first.offset}: ${first.message}`,
    hint: 'rye exported the readable part.',
  };
}

function warn({ problems, tampered }: ThreadExport, io: Io): void {
  for (const { offset, message } of problems) {
    io.stderr.write(shown`rye: warning: byte ${offset}: ${oneLine(message)}\n`);
  }
  if (tampered === null) return;
  io.stderr.write(shown`rye: warning: ${oneLine(tampered.message)} [${tampered.code}]\n`);
}

function documentOf(exported: ThreadExport, defect: ErrorInfo | null): object {
  const { chunks: _chunks, tampered: _tampered, ...members } = exported;
  return { success: defect === null, ...members, ...(defect === null ? {} : { error: defect }) };
}

async function writeExport(
  { io, global }: Context,
  target: string,
  exported: ThreadExport,
  defect: ErrorInfo | null,
): Promise<void> {
  const bytes = Buffer.concat([...exported.chunks].map((chunk) => Buffer.from(chunk)));
  const { writeOutput } = await import('../../../kernel/disk/whole-file.ts');
  writeOutput(target, bytes, {
    hint: 'Choose another file with --out. The thread is unchanged.',
  });
  if (global.json) {
    printDocument(io, { ...documentOf(exported, defect), path: target, bytes: bytes.length });
  } else if (!global.quiet) {
    io.stderr.write(shown`wrote ${displayPath(target, io)}, ${bytes.length} bytes\n`);
  }
}

const BATCH_CHARS = 1 << 20;

/** Writes in batches and waits for the reader, so that a slow one costs no memory and a closed pipe ends the work. */
async function printExport(chunks: Iterable<string>, io: Io): Promise<void> {
  let waiting = 0;
  for (const chunk of chunks) {
    io.stdout.writeRaw(chunk);
    waiting += chunk.length;
    if (waiting < BATCH_CHARS) continue;
    if ((await io.flush()) !== 'whole') return;
    waiting = 0;
  }
}

const importThread = defineCommand({
  details:
    'Reads session files of version 1 to 3 with all branches. The thread is completed and has no permissions; you can search, branch, export and resume it. Lists damaged or unknown lines on stderr.',
  arguments: { file: argument('The session file (.jsonl)') },
  options: {
    threadId: text('ID', 'ID for the new thread (must not exist yet)'),
    model: text('MODEL', "Model for a resume (default: the session's own, if it is configured)"),
  },
  examples: ['rye threads import session.jsonl', 'rye threads import session.jsonl --json'],
  run: async (call) => {
    const { args, options, io } = call;
    const path = resolve(io.cwd, args.file);
    const { thread, ...imported } = await withRye(
      call,
      async ({ trees }) => await trees.importSession(compact({ path, ...options })),
    );
    for (const { line, message } of imported.problems) {
      io.stderr.write(shown`line ${line}: ${oneLine(message)}\n`);
    }
    const { thread_id, status } = thread;
    return printResult(call, { thread_id, status, ...imported }, () => [oneLine(thread_id)]);
  },
});

export { exportThread as export, importThread as import };
