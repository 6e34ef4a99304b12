import {
  argument,
  choice,
  defineCommand,
  defineGroup,
  flag,
  text,
} from '../../../faces/cli/command.ts';
import {
  colorsOf,
  count,
  formatTable,
  printDocument,
  printLines,
  printResult,
} from '../../../faces/cli/output.ts';
import { withRye } from '../../../faces/cli/session.ts';
import { requestLines, wholeCall } from '../../../faces/ui/dialogs/approval-lines.ts';
import { oneLine, type Shown, shown } from '../../../faces/ui/visible.ts';
import type { ListedApproval } from '../../../kernel/app/api/approvals.ts';
import { APPROVAL_STATES } from '../../../kernel/core/approval.ts';
import { EXIT, exitCodeOf, RyeError } from '../../../kernel/core/errors.ts';
import { compact } from '../../../kernel/core/json.ts';

const REQUEST = argument('ID of the request, or its beginning');

const list = defineCommand({
  name: 'list',
  summary: 'List what waits for a person, oldest first',
  details: '--json prints one document; with --watch it prints one request per line.',
  options: {
    watch: flag('Keep running and print new requests'),
    resume: flag('With --watch: resume threads of your key once people have decided'),
    thread: text('ID', 'Only requests of this thread'),
    state: choice(
      'STATE',
      [...APPROVAL_STATES, 'all'],
      'Requests in this state (default: pending)',
    ),
  },
  examples: [
    'rye approvals',
    'rye approvals list --json',
    'rye approvals --watch',
    'rye approvals --watch --resume',
  ],
  run: async (call) => {
    const { options, io, global } = call;
    return await withRye(call, async (rye) => {
      const session =
        options.thread === undefined
          ? undefined
          : await rye.threads.session(await rye.threads.resolveId(options.thread));
      const isShown = ({ thread_id: id }: { readonly thread_id: string }): boolean =>
        session === undefined || session.includes(id);
      if (options.resume && !options.watch) {
        throw new RyeError('usage', '--resume needs --watch', {
          hint: 'To resume one thread, run: rye threads resume ID',
        });
      }
      if (options.watch && options.state !== undefined) {
        throw new RyeError('usage', '--watch shows requests that wait for a decision', {
          hint: 'Remove --state, or list the others: rye approvals --state STATE',
        });
      }
      if (options.watch) {
        const onResume = (id: string): void => {
          if (!global.quiet) io.stderr.write(shown`thread ${oneLine(id)} continues\n`);
        };
        const signal = AbortSignal.any([io.cancellation(), io.outputClosed]);
        for await (const one of rye.approvals.watch({
          signal,
          ...(options.resume ? { onResume } : {}),
        })) {
          if (!isShown(one)) continue;
          if (global.json) printDocument(io, one);
          else printLines(io, [requestLine(one)]);
        }
        return EXIT.ok;
      }
      const all = await rye.approvals.list(compact({ state: options.state }));
      const approvals = all.filter(isShown);
      return printResult(call, { approvals, total: approvals.length }, () =>
        approvals.length === 0
          ? [shown`Nothing waits for a decision`]
          : formatTable(
              ['REQUEST', 'KIND', 'TOOL', 'THREAD', 'EXPIRES', 'WHAT'],
              approvals.map((one) => [
                one.id,
                one.kind,
                one.tool,
                one.thread_id,
                one.state === 'pending' ? one.expires_at : one.state,
                { drawn: wholeCall(one) },
              ]),
              io.stdout,
              ['KIND', 'EXPIRES', 'TOOL'],
            ),
      );
    });
  },
});

function requestLine(approval: ListedApproval): Shown {
  const { id, kind, tool, thread_id: threadId } = approval;
  return shown`${oneLine(`${id} ${kind} ${tool} ${threadId}`)} ${wholeCall(approval)}`;
}

const show = defineCommand({
  name: 'show',
  summary: 'Show one request: what would run, where, and who may decide',
  arguments: { id: REQUEST },
  examples: ['rye approvals show apr-3f2a', 'rye approvals show apr-3f2a --json'],
  run: async (call) => {
    const approval = await withRye(call, (rye) => rye.approvals.show(call.args.id));
    return printResult(call, { approval }, () =>
      requestLines(approval, colorsOf(call.io.stdout, call)),
    );
  },
});

const verify = defineCommand({
  name: 'verify',
  summary: "Check a request and its decisions in the thread's signed log",
  arguments: { id: REQUEST },
  examples: ['rye approvals verify apr-3f2a'],
  run: async (call) => {
    const { io, global } = call;
    const report = await withRye(call, (rye) => rye.approvals.verify(call.args.id));
    const message = `a decision of ${report.id} is not verified`;
    const error = report.ok ? undefined : { code: 'signature_invalid', message };
    if (global.json) printDocument(io, compact({ success: report.ok, error, ...report }));
    else {
      printLines(io, [
        shown`${oneLine(report.id)}  ${report.outcome}  ${report.ok ? 'verified' : 'NOT VERIFIED'}`,
        shown`  thread  ${oneLine(report.thread_id)}`,
        shown`  request  ${oneLine(report.request_sha256)}`,
        ...report.decisions.map(({ key_id: key, decision, decided_at: at, problem }) =>
          oneLine(`  ${decision} by ${key} at ${at}${problem === undefined ? '' : `: ${problem}`}`),
        ),
        count(report.decisions.length, 'decision'),
      ]);
    }
    return report.ok ? EXIT.ok : exitCodeOf('signature_invalid');
  },
});

export const approvals = defineGroup({
  examples: ['rye approvals', 'rye approvals show apr-3f2a', 'rye approve apr-3f2a'],
  defaultCommand: 'list',
  commands: [list, show, verify],
});
