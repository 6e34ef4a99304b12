import path from 'node:path';
import type { Rye } from '../../../kernel/app/api/rye.ts';
import type { LaunchedThread } from '../../../kernel/app/api/threads.ts';
import { type FailIf, failure as failIfReason, parseFailIf } from '../../../kernel/app/fail-if.ts';
import type { ExecuteDirectiveRequest } from '../../../kernel/app/presets.ts';
import type { AcceptedRisk } from '../../../kernel/core/capability.ts';
import {
  EXIT,
  type ExitCode,
  messageOf,
  RyeError,
  toRyeError,
} from '../../../kernel/core/errors.ts';
import { ISOLATION_RESULTS, ISOLATIONS, type Isolation } from '../../../kernel/core/isolation.ts';
import { compact, toText } from '../../../kernel/core/json.ts';
import { LIMIT_NAMES, LIMITS } from '../../../kernel/core/limits.ts';
import type { ThreadResult } from '../../../kernel/core/thread.ts';
import { formatCost } from '../../../kernel/core/usage.ts';
import type { Io } from '../../ui/io.ts';
import { planLines } from '../../ui/render/plan-lines.ts';
import { oneLine, type Shown, shown, visible } from '../../ui/visible.ts';
import { JUNIT, reporting } from '../ci.ts';
import type { CiCase } from '../ci-report.ts';
import {
  argument,
  type Context,
  choice,
  defineCommand,
  defineGroup,
  flag,
  integer,
  list,
  number,
  optionalArgument,
  text,
  type ValuesOf,
} from '../command.ts';
import { failureText } from '../failure.ts';
import {
  assertOnlyWithFleet,
  FLEET_OPTIONS,
  needsKey,
  optionName,
  runOnFleet,
} from '../fleet-run.ts';
import {
  assertWritableTarget,
  directiveNamed,
  readLimits,
  readSchema,
  readValues,
  unusedInput,
} from '../input.ts';
import { lastSession, nothingToContinue } from '../last-thread.ts';
import { printDocument, printLines, printText, resultText, watchLine } from '../output.ts';
import { ResultCollector, saveResult } from '../result-document.ts';
import { openedRye, withRye } from '../session.ts';
import {
  exitCodeOfResult,
  OUTPUT_OPTIONS,
  outputModeOf,
  RAISE_LIMITS,
  showThread,
} from '../thread-run.ts';
import { withWarnings } from '../warnings.ts';

const SAFETY_OPTIONS = {
  acknowledge: list(
    'RISK',
    'Allow a risk that policy would otherwise block: elevated, or elevated:rye/bash for that tool',
  ),
  allowUnsigned: flag("Run the project's own unsigned items; marks the thread as unverified"),
} as const;

const ASYNC = flag(
  'Run in the background; print the thread ID (as JSON in a pipe or with --json) and exit',
);

/** The limits with their units. */
const LIMIT_LIST = LIMIT_NAMES.map((name) => {
  const { unit } = LIMITS[name];
  return unit === undefined ? name : `${name} (${unit})`;
}).join(', ');

const DIRECTIVE_OPTIONS = {
  input: list('NAME=VALUE', 'An input; NAME=@FILE reads a file, NAME=- stdin'),
  inputs: text('JSON', 'All inputs as JSON, @FILE, or - for stdin'),
  model: text('MODEL', 'Model ID or tier'),
  provider: text('PROVIDER', 'Provider of the model'),
  limit: list('NAME=N', `A limit: ${LIMIT_LIST}`),
  maxTurns: integer('N', 'Same as --limit turns=N'),
  maxBudgetUsd: number('USD', 'Same as --limit spend=USD'),
  raiseLimits: RAISE_LIMITS,
  threadId: text('ID', 'ID for the new thread (must not exist yet)'),
  sessionId: text('ID', 'Same as --thread-id'),
  label: text('TEXT', 'Name of the thread in lists'),
  parent: text('ID', 'Parent thread (default: $RYE_PARENT_THREAD_ID)'),
  ...SAFETY_OPTIONS,
  allowUnpriced: flag('Allow models without a known price (disables the spend limit)'),
  jsonSchema: text('SCHEMA', 'JSON Schema that the outputs must match, as JSON or a file'),
  isolation: choice('KIND', ISOLATIONS, 'Work in a separate git worktree, from the last commit'),
  isolationResult: choice(
    'RESULT',
    ISOLATION_RESULTS,
    'Changes of the worktree: leave a patch (default) or merge them',
  ),
  continue: flag('Resume the last thread, or the last one of the directive'),
  message: text('TEXT', 'With --continue: message to the model', { short: 'm' }),
  unsignedRecord: flag('Run without a signing key; sign the record later: rye sign thread'),
  async: ASYNC,
  ...FLEET_OPTIONS,
  dryRun: flag('Print the plan; register, spend and write nothing'),
  outputFormat: OUTPUT_OPTIONS.outputFormat,
  output: text('FILE', 'Also write the final result to FILE', { short: 'o' }),
  junit: JUNIT,
  receipt: text(
    'FILE',
    'Also write a receipt to FILE: outputs, cost, files, approvals, as Markdown',
  ),
  failIf: text('CONDITION', 'Exit with 1 if the outputs are such as \'.verdict == "changes"\''),
  print: OUTPUT_OPTIONS.print,
  record: text('FILE', 'Record model responses to FILE'),
  replay: text('FILE', 'Replay responses from FILE instead of calling a model'),
} as const;

const directive = defineCommand({
  details:
    '--continue resumes the last thread, or the last one of the directive, like `rye threads resume`.',
  arguments: {
    id: optionalArgument('ID of the directive, such as rye/core/project_report', {
      item: { type: 'directive' },
    }),
  },
  options: DIRECTIVE_OPTIONS,
  examples: [
    'rye execute directive hello --input who=Ada',
    'rye run rye/core/project_report --input path=. --limit spend=0.50',
    'rye run hello --dry-run --json',
    'rye run hello --async',
    'rye run team/review --receipt review.md --fail-if \'.verdict == "changes"\'',
    'rye run --continue --message "And the tests?"',
  ],
  run: async (call) => {
    const { args, options, io } = call;
    if (options.continue) return await continueLast(call, args.id);
    if (options.dryRun || options.async || options.fleet) return await startOnly(call, args.id);
    if (options.unsignedRecord && options.receipt !== undefined) {
      throw new RyeError('usage', '--receipt needs a signed record', {
        hint: 'Sign the record, then: rye threads receipt ID',
      });
    }
    const mode = outputModeOf(call, options.outputFormat);
    const collector = new ResultCollector();
    let target: string | undefined;
    let receiptTarget: string | undefined;
    const failIf = options.failIf === undefined ? undefined : parseFailIf(options.failIf);
    const run = async (): Promise<EndedRun> => {
      const request = await requestOf(args.id, call);
      assertOnlyWithFleet(options);
      target = await targetOf(options.output, io);
      receiptTarget = await targetOf(options.receipt, io, '--receipt');
      const result = await showThread(call, { mode, isLive: !options.print }, (subscriber) =>
        withRye(
          call,
          async (rye) =>
            rye.threads.execute({
              ...(await withParent(rye, request)),
              ...subscriber,
              onEvent: collector.before(subscriber.onEvent),
            }),
          { unsignedRecords: options.unsignedRecord },
        ),
      );
      const receipt = await receiptOfRun(call, result);
      return compact({ result, receipt, failed: failIf && judged(failIf, result) });
    };
    const suite = { suite: 'rye run', junit: options.junit, name: args.id ?? 'rye run' };
    const ended = await reporting(call, { ...suite, casesOf: casesOfRun }, run);
    const { result, receipt, failed } = ended;
    if (receiptTarget !== undefined) await saveResult(receiptTarget, result, receipt ?? '');
    if (target !== undefined) {
      const document = mode === 'text' ? undefined : withWarnings(io, collector.document(result));
      await saveResult(target, result, document ?? resultText(result));
    }
    if (failed === undefined) return exitCodeOfResult(result);
    io.stderr.write(failureText(failed));
    return failed.exitCode;
  },
});

/** The end of a run, with its receipt where one is wanted. */
interface EndedRun {
  readonly result: ThreadResult;
  readonly receipt?: string;
  /** Why `--fail-if` makes a run that completed a failed one. */
  readonly failed?: RyeError;
}

async function targetOf(
  output: string | undefined,
  io: Io,
  option = '--output',
): Promise<string | undefined> {
  return output === undefined ? undefined : await assertWritableTarget(option, output, io);
}

/** Judges a run that completed. A failed one keeps its own error. */
function judged(failIf: FailIf, result: ThreadResult): RyeError | undefined {
  if (!result.success) return undefined;
  try {
    const reason = failIfReason(failIf, result);
    return reason === undefined ? undefined : new RyeError('fail_if', `--fail-if holds: ${reason}`);
  } catch (error) {
    return toRyeError(error);
  }
}

/** Returns the receipt of a run for `--receipt` and for the summary of a job, which needs none to be written. */
async function receiptOfRun(
  call: Context & {
    readonly options: Pick<ValuesOf<typeof DIRECTIVE_OPTIONS>, 'receipt' | 'unsignedRecord'>;
  },
  result: ThreadResult,
): Promise<string | undefined> {
  const { io, options } = call;
  const isWanted = options.receipt !== undefined;
  const hasSummary = (io.env['GITHUB_STEP_SUMMARY'] ?? '') !== '';
  // only a signed record is read
  if (!isWanted && (!hasSummary || options.unsignedRecord)) return undefined;
  const { receiptOf, receiptText } = await import('../../../kernel/app/receipt.ts');
  try {
    return receiptText(await withRye(call, async (rye) => await receiptOf(rye, result.thread_id)));
  } catch (error) {
    if (isWanted) throw error;
    io.stderr.write(shown`rye: warning: no receipt: ${oneLine(messageOf(error))}\n`);
    return undefined;
  }
}

/** Prints the plan, or starts a thread and does not wait for its end here. */
async function startOnly(
  call: Context & { readonly options: ValuesOf<typeof DIRECTIVE_OPTIONS> },
  id: string | undefined,
): Promise<ExitCode> {
  const { options, io } = call;
  if (options.async && options.fleet) {
    throw new RyeError('usage', '--async and --fleet exclude each other', {
      hint: 'Remove --async: --fleet returns at once too.',
    });
  }
  const how = options.dryRun ? '--dry-run' : options.async ? '--async' : '--fleet';
  if (options.unsignedRecord && !options.dryRun) throw needsKey(how);
  const waiting = ['output', 'junit', 'print', 'receipt', 'failIf'] as const;
  const misplaced = waiting.find((name) => isUsed(options[name]));
  if (misplaced !== undefined) {
    throw new RyeError(
      'usage',
      `${optionName(misplaced)} needs the result, for which ${how} does not wait`,
      {
        hint: `Remove ${optionName(misplaced)}, or run the directive without ${how}.`,
      },
    );
  }
  if (!options.fleet) assertOnlyWithFleet(options);
  const request = await requestOf(id, call);
  const mode = outputModeOf(call, options.outputFormat);
  const head = { ...(mode === 'stream-json' ? { event_type: 'result' } : {}), success: true };
  if (options.dryRun) {
    const plan = await withRye(call, async (rye) =>
      rye.threads.plan(await withParent(rye, request)),
    );
    if (mode === 'text') printLines(io, planLines(plan));
    else printDocument(io, { ...head, plan, warnings: plan.warnings });
    return EXIT.ok;
  }
  if (options.fleet) return await runOnFleet(call, request, mode);
  const launched = await withRye(call, async (rye) =>
    rye.children.launch(await withParent(rye, request), { leaves: true }),
  );
  if (mode === 'text' && io.stdout.isTty) printLines(io, launchedLines(launched));
  else printDocument(io, { ...head, ...launched });
  return EXIT.ok;
}

/** Tells a person at a terminal what `--async` has started. */
function launchedLines({ thread_id: id, status }: LaunchedThread): readonly Shown[] {
  const started =
    status === 'created' ? 'queued: it waits for a slot' : 'running in the background';
  return [oneLine(`${id} is ${started}`), watchLine(id)];
}

/** Returns the one case of a run. */
function casesOfRun({ result, receipt, failed }: EndedRun): CiCase[] {
  const { success, status, error, cost, directive: name, thread_id: thread, outputs } = result;
  const { code = status, message = `the thread is ${status}` } = error ?? failed ?? {};
  const failure = success && !failed ? {} : { failure: { code, message } };
  const facts = { thread, status, cost: formatCost(cost) };
  const returned = Object.entries(outputs ?? { result: result.result }).flatMap(([key, value]) =>
    value === undefined || value === '' ? [] : [[key, toText(value)] as const],
  );
  const texts = Object.fromEntries(returned);
  return [
    compact({ name, seconds: cost.elapsed_seconds, ...failure, facts, outputs: texts, receipt }),
  ];
}

/** Returns the directive of a new thread. Throws `usage` without one, and for a message that only a resume can have. */
function namedDirective(id: string | undefined, message: string | undefined): string {
  if (id !== undefined && message === undefined) return directiveNamed(id);
  const problem = id === undefined ? 'missing argument <id>' : '--message needs --continue';
  throw new RyeError('usage', problem, { hint: 'List the directives with: rye list directive' });
}

/** Options that apply to the run of an existing thread. */
const OF_CONTINUED: ReadonlySet<string> = new Set([
  'continue',
  'message',
  'limit',
  'maxTurns',
  'maxBudgetUsd',
  'allowUnsigned',
  'outputFormat',
  'print',
]);

/** Resumes the last thread, or the last one of a directive, within the limits that it has left. */
async function continueLast(
  call: Context & { readonly options: ValuesOf<typeof DIRECTIVE_OPTIONS> },
  directiveId: string | undefined,
): Promise<ExitCode> {
  const { options } = call;
  const misplaced = Object.entries(options).find(
    ([name, value]) => !OF_CONTINUED.has(name) && isUsed(value),
  );
  if (misplaced !== undefined) {
    const name = optionName(misplaced[0]);
    throw new RyeError('usage', `${name} applies to a new thread, not to one that continues`, {
      hint: 'Remove --continue to start a new thread.',
    });
  }
  const limits = readLimits(options.limit, options.maxTurns, options.maxBudgetUsd);
  const { message } = options;
  const allowUnsigned = options.allowUnsigned || undefined;
  const mode = outputModeOf(call, options.outputFormat);
  const result = await showThread(call, { mode, isLive: !options.print }, (subscriber) =>
    withRye(call, async (rye) => {
      const threadId = await lastSession(rye, directiveId);
      if (threadId === undefined) {
        throw nothingToContinue(`rye run ${directiveId ?? 'hello'}`, directiveId);
      }
      const request = compact({ threadId, message, limits, allowUnsigned });
      return await rye.recovery.resume({ ...request, ...subscriber });
    }),
  );
  return exitCodeOfResult(result);
}

function isUsed(value: unknown): boolean {
  return Array.isArray(value) ? value.length > 0 : value !== undefined && value !== false;
}

type RunCall = Context & { readonly options: ValuesOf<typeof DIRECTIVE_OPTIONS> };

async function requestOf(id: string | undefined, call: RunCall): Promise<ExecuteDirectiveRequest> {
  const directiveId = namedDirective(id, call.options.message);
  const request = await requestFrom(directiveId, call);
  if ((await call.io.stdinState()) === 'data') throw unusedInput(directiveId);
  return request;
}

async function requestFrom(directiveId: string, call: RunCall): Promise<ExecuteDirectiveRequest> {
  const { options, io } = call;
  const { model, provider, allowUnsigned, allowUnpriced } = options;
  const absolute = (file: string | undefined): string | undefined =>
    file === undefined ? undefined : path.resolve(io.cwd, file);
  return compact({
    directiveId,
    inputs: await readValues(
      {
        pairs: options.input,
        pairOption: '--input',
        document: options.inputs,
        documentOption: '--inputs',
      },
      call,
    ),
    model,
    provider,
    limits: readLimits(options.limit, options.maxTurns, options.maxBudgetUsd),
    raiseLimits: options.raiseLimits || undefined,
    threadId: onlyOne({ '--thread-id': options.threadId, '--session-id': options.sessionId }),
    parentThreadId: options.parent ?? (io.env['RYE_PARENT_THREAD_ID'] || undefined),
    // prepare refuses an unknown risk
    acknowledge: options.acknowledge as readonly AcceptedRisk[],
    isolation: isolationOf(options),
    label: options.label,
    allowUnsigned,
    allowUnpriced,
    recordTo: absolute(options.record),
    replayFrom: absolute(options.replay),
    outputSchema: await readSchema(options.jsonSchema, '--json-schema', io),
  });
}

/** Resolves the parent: a person may give a part of its ID. */
async function withParent(
  { threads }: Rye,
  request: ExecuteDirectiveRequest,
): Promise<ExecuteDirectiveRequest> {
  const { parentThreadId: parent } = request;
  return parent === undefined
    ? request
    : { ...request, parentThreadId: await threads.resolveId(parent) };
}

/** Returns the value of an option that has two names. */
function onlyOne(given: Readonly<Record<string, string | undefined>>): string | undefined {
  const used = Object.entries(given).filter(([, value]) => value !== undefined);
  if (used.length < 2) return used[0]?.[1];
  throw new RyeError('usage', `${used.map(([name]) => name).join(' and ')} are the same option`, {
    hint: 'Pass one of them.',
  });
}

function isolationOf({
  isolation: kind,
  isolationResult: result,
}: Pick<ValuesOf<typeof DIRECTIVE_OPTIONS>, 'isolation' | 'isolationResult'>):
  | Isolation
  | undefined {
  if (kind !== undefined) return compact({ kind, result });
  if (result === undefined) return undefined;
  throw new RyeError('usage', '--isolation-result needs --isolation worktree');
}

const tool = defineCommand({
  name: 'tool',
  summary: 'Run one tool with the same checks as in a thread',
  arguments: {
    id: argument('ID of the tool, such as rye/file-system/glob', { item: { type: 'tool' } }),
  },
  options: {
    param: list('NAME=VALUE', 'A parameter; NAME=@FILE reads a file, NAME=- stdin'),
    params: text('JSON', 'All parameters as JSON, @FILE, or - for stdin'),
    async: ASYNC,
    ...SAFETY_OPTIONS,
  },
  examples: ["rye execute tool rye/file-system/glob --param pattern='**/*.md'"],
  run: async (call) => {
    const { args, options, io } = call;
    const signal = io.cancellation();
    const request = {
      toolId: args.id,
      params: await readValues(
        {
          pairs: options.param,
          pairOption: '--param',
          document: options.params,
          documentOption: '--params',
        },
        call,
      ),
      allowUnsigned: options.allowUnsigned,
      // prepare refuses an unknown risk
      acknowledge: options.acknowledge as readonly AcceptedRisk[],
      signal,
    };
    if (options.async) {
      const launched = await withRye(call, (rye) => rye.children.launchTool(request));
      if (io.stdout.isTty && !call.global.json) printLines(io, launchedLines(launched));
      else printDocument(io, { success: true, ...launched });
      return EXIT.ok;
    }
    const outcome = await withRye(call, (rye) => rye.threads.executeTool(request));
    printOutcome(call, args.id, outcome);
    if (signal.aborted) return EXIT.cancelled;
    return outcome.success ? EXIT.ok : EXIT.failed;
  },
});

function printOutcome(
  { io, global }: Context,
  toolId: string,
  outcome: { readonly success: boolean; readonly result: string },
): void {
  const { success, result } = outcome;
  if (global.json) {
    const error = { code: 'tool_failed', message: `tool ${toolId} failed: ${result}` };
    printDocument(io, { ...outcome, ...(success ? {} : { error }) });
  } else if (success) printText(io, `${result}\n`);
  else
    io.stderr.write(shown`rye: tool ${oneLine(toolId)} failed: ${visible(result)} [tool_failed]\n`);
}

export const execute = defineGroup({
  examples: ['rye execute directive hello --input who=Ada'],
  commands: [{ name: 'directive', summary: 'Run a directive as a thread', ...directive }, tool],
});

/** Runs a thread in the background process that `--async` starts. Its output goes to the thread's spawn.log. */
const runLaunched = defineCommand({
  arguments: { id: argument('Thread ID') },
  examples: [],
  run: async (call) => {
    const { runInTurn } = await import('../../../kernel/app/thread-process.ts');
    const result = await runInTurn(call.args.id, {
      open: async () => await openedRye(call),
      signal: call.io.cancellation(),
      exiting: call.io.endsWithCommand,
      waits: call.io.endsWithCommand,
    });
    return exitCodeOfResult(result);
  },
});

export { directive as run, runLaunched as '__run-thread' };
