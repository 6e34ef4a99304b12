import type { StatsKey } from '../../../kernel/app/api/threads.ts';
import { EXIT, type ExitCode } from '../../../kernel/core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../../kernel/core/events.ts';
import { compact } from '../../../kernel/core/json.ts';
import { formatSeconds, formatSpend, formatTokens, formatUsd } from '../../../kernel/core/usage.ts';
import { formatLogEvent, markMembers, warnUnverified } from '../../ui/render/log-line.ts';
import { threadLines } from '../../ui/render/thread-details.ts';
import { oneLine, shown } from '../../ui/visible.ts';
import { type Context, choice, defineCommand, flag, integer } from '../command.ts';
import {
  colorsOf,
  formatTable,
  printDocument,
  printJsonLine,
  printLine,
  printLines,
  printResult,
} from '../output.ts';
import { withRye } from '../session.ts';
import { THREAD } from '../shared-options.ts';

export const show = defineCommand({
  arguments: { id: THREAD },
  examples: ['rye threads show hello-7f3k'],
  run: async (call) => {
    const { io, args } = call;
    const { details, mark, requests } = await withRye(call, async ({ threads, approvals }) => {
      const id = await threads.resolveId(args.id);
      const found = await threads.show(id);
      const isWaiting = found.document?.waiting_for !== undefined;
      return {
        details: found,
        mark: await threads.mark(id),
        requests: isWaiting ? await approvals.list({ threadId: id, state: 'pending' }) : [],
      };
    });
    warnUnverified(mark, io);
    const style = {
      colors: colorsOf(io.stdout, call),
      now: io.now(),
      ...(io.stdout.isTty ? { columns: io.stdout.columns - 1 } : {}),
    };
    return printResult(call, { ...details, ...markMembers(mark) }, () =>
      threadLines({ ...details, requests }, style, io),
    );
  },
});

export const logs = defineCommand({
  details: '--json prints one document; with --follow it prints one event per line.',
  arguments: { id: THREAD },
  options: {
    follow: flag('Stream new events until the current run ends', { short: 'f' }),
    text: flag('Human-readable output (default)'),
    tail: integer('N', 'The last N events', { short: 'n' }),
    since: integer('SEQ', 'Only events after SEQ'),
    unverified: flag('Only lines that no signature covers; they may be forged'),
  },
  examples: ['rye threads logs 7f3k --tail 20', 'rye threads logs 7f3k --follow'],
  run: async (call) => {
    const { args, options, io, global } = call;
    if (options.unverified) return await printUnverified(call, args.id);
    const { follow, tail, since } = options;
    const cancelled = follow ? io.cancellation() : undefined;
    const signal = cancelled && AbortSignal.any([cancelled, io.outputClosed]);
    const query = compact({ tail, since, follow, signal });
    const events: (LogEvent | UnknownEvent)[] = [];
    const { id, mark } = await withRye(call, async ({ threads }) => {
      const session = await threads.session(await threads.resolveId(args.id));
      // a number of events and a place in the log refer to the last thread
      const isPart = tail !== undefined || since !== undefined;
      const threadId = session.at(isPart ? -1 : 0) ?? args.id;
      for await (const event of threads.logs(threadId, query)) {
        if (!global.json) printLines(io, formatLogEvent(event));
        else if (follow) printJsonLine(io, event);
        else events.push(event);
      }
      const marks = [];
      for (const one of isPart ? [threadId] : session) marks.push(await threads.mark(one));
      const found = marks.find(({ verified }) => verified !== true) ?? marks[0];
      if (found) warnUnverified(found, io);
      return { id: threadId, mark: found };
    });
    if (global.json && !follow) {
      const document = { thread_id: id, events, total: events.length };
      printDocument(io, { success: true, ...document, ...(mark ? markMembers(mark) : {}) });
    }
    return cancelled?.aborted === true ? EXIT.cancelled : EXIT.ok;
  },
});

/** Marks each line as unverified, so that it cannot be mistaken for the log. */
async function printUnverified(context: Context, idPart: string): Promise<ExitCode> {
  const { io, global } = context;
  await withRye(context, async ({ threads }) => {
    const id = await threads.resolveId(idPart);
    const lines = [];
    for (const one of await threads.session(id)) {
      for await (const line of threads.unverified(one)) {
        const { file, line: number, text: content } = line;
        if (global.json) lines.push(line);
        else printLine(io, shown`unverified  ${oneLine(file)}:${number}  ${oneLine(content)}`);
      }
    }
    if (global.json) {
      printDocument(io, { success: true, thread_id: id, lines, total: lines.length });
    }
  });
  return EXIT.ok;
}

const STATS_KEYS = ['directive', 'model', 'day'] as const satisfies readonly StatsKey[];

export const stats = defineCommand({
  options: { by: choice('KEY', STATS_KEYS, 'Group by (default: directive)') },
  examples: ['rye threads stats', 'rye threads stats --by day --json'],
  run: async (call) => {
    const { by = 'directive' } = call.options;
    const found = await withRye(call, (rye) => rye.children.stats(by));
    return printResult(call, { by, stats: found, total: found.length }, () => {
      // a narrow terminal cuts off the last columns, so the least important ones are last
      const isEstimated = found.some(({ estimated_spend_usd: part = 0 }) => part > 0);
      const estimate = isEstimated ? ' ESTIMATED' : '';
      const headings = `${by.toUpperCase()} SPEND${estimate} TOKENS TIME TURNS THREADS OPEN COMPLETED ERROR CANCELLED`;
      const rows = found.map((row) => [
        row.key,
        formatSpend(row),
        ...(isEstimated ? [formatUsd(row.estimated_spend_usd ?? 0)] : []),
        formatTokens(row.tokens),
        formatSeconds(row.elapsed_seconds),
        String(row.turns),
        String(row.threads),
        String(row.open),
        String(row.completed + row.continued),
        String(row.error),
        String(row.cancelled),
      ]);
      return formatTable(headings.split(' '), rows, call.io.stdout);
    });
  },
});
