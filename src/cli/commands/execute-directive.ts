import path from 'node:path';
import type { ExecuteDirectiveRequest } from '../../app/api/rye.ts';
import type { Risk } from '../../core/capability.ts';
import { EXIT, type ExitCode, RyeError } from '../../core/errors.ts';
import { compact, isJsonObject, type JsonObject, parseJson } from '../../core/json.ts';
import type { ThreadResult } from '../../core/thread.ts';
import type { OutputMode } from '../failure.ts';
import { assertWritableTarget, readTextSource } from '../files.ts';
import { readLimits, readValues } from '../input-values.ts';
import {
  flagOption,
  type Invocation,
  listOption,
  numberOption,
  requiredArgument,
  textOption,
} from '../invocation.ts';
import type { Io } from '../io.ts';
import { printDocument } from '../output.ts';
import { createRenderer } from '../render/create-renderer.ts';
import { describePlan } from '../render/plan.ts';
import { resultText } from '../render/text.ts';
import { withRye } from '../session.ts';
import { exitCodeOfResult } from '../thread-exit.ts';

/** `rye execute directive <id>`, and `rye run <id>`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const request = await requestOf(invocation, io);
  const mode = modeOf(invocation);
  if (flagOption(invocation, 'dry-run')) {
    const plan = await withRye(invocation, io, (rye) => rye.threads.plan(request));
    if (mode === 'text') io.stdout.write(describePlan(plan));
    else
      printDocument(io, {
        ...(mode === 'json' ? {} : { event_type: 'result' }),
        success: true,
        plan,
      });
    return EXIT.ok;
  }
  if (flagOption(invocation, 'async')) {
    const launched = await withRye(invocation, io, (rye) =>
      rye.children.launch(request, { leaves: true }),
    );
    const head = mode === 'stream-json' ? { event_type: 'result' } : {};
    printDocument(io, { ...head, success: true, ...launched });
    return EXIT.ok;
  }
  const outputFile = textOption(invocation, 'output');
  const target =
    outputFile === undefined ? undefined : await assertWritableTarget('--output', outputFile, io);
  const result = await execute(request, invocation, io, mode);
  if (target !== undefined) await writeResult(target, result, mode);
  return exitCodeOfResult(result);
}

async function execute(
  request: ExecuteDirectiveRequest,
  invocation: Invocation,
  io: Io,
  mode: OutputMode,
): Promise<ThreadResult> {
  const renderer = createRenderer({
    mode,
    io,
    global: invocation.global,
    isLive: !flagOption(invocation, 'print'),
  });
  // listens before the project is opened, so that an early interrupt is a cancellation too
  const signal = io.cancellation();
  try {
    const result = await withRye(invocation, io, (rye) =>
      rye.threads.execute({ ...request, signal, onEvent: renderer.event }),
    );
    renderer.finish(result);
    return result;
  } finally {
    renderer.close();
  }
}

function modeOf(invocation: Invocation): OutputMode {
  const format = textOption(invocation, 'output-format');
  if (format === 'stream-json') return 'stream-json';
  return format === 'json' || invocation.global.json ? 'json' : 'text';
}

async function requestOf(invocation: Invocation, io: Io): Promise<ExecuteDirectiveRequest> {
  const file = (option: string): string | undefined => {
    const name = textOption(invocation, option);
    return name === undefined ? undefined : path.resolve(io.cwd, name);
  };
  return compact({
    directiveId: requiredArgument(invocation, 0, 'id'),
    inputs: await readValues(
      {
        pairs: listOption(invocation, 'input'),
        document: textOption(invocation, 'inputs'),
        pairOption: '--input',
        documentOption: '--inputs',
      },
      io,
    ),
    model: textOption(invocation, 'model'),
    provider: textOption(invocation, 'provider'),
    limits: readLimits({
      pairs: listOption(invocation, 'limit'),
      maxTurns: numberOption(invocation, 'max-turns'),
      maxBudgetUsd: numberOption(invocation, 'max-budget-usd'),
    }),
    threadId: textOption(invocation, 'thread-id') ?? textOption(invocation, 'session-id'),
    parentThreadId: textOption(invocation, 'parent') ?? nonEmpty(io.env['RYE_PARENT_THREAD_ID']),
    // preparing refuses a value that is no risk
    acknowledge: listOption(invocation, 'acknowledge') as readonly Risk[],
    allowUnsigned: flagOption(invocation, 'allow-unsigned'),
    allowUnpriced: flagOption(invocation, 'allow-unpriced'),
    recordTo: file('record'),
    replayFrom: file('replay'),
    outputSchema: await readSchema(textOption(invocation, 'json-schema'), io),
  });
}

function nonEmpty(text: string | undefined): string | undefined {
  return text === '' ? undefined : text;
}

async function readSchema(file: string | undefined, io: Io): Promise<JsonObject | undefined> {
  if (file === undefined) return undefined;
  const schema = parseJson(await readTextSource(file, '--json-schema', io));
  if (schema !== undefined && isJsonObject(schema)) return schema;
  throw new RyeError('invalid_input', `--json-schema: ${file} is not a JSON object`);
}

async function writeResult(target: string, result: ThreadResult, mode: OutputMode): Promise<void> {
  const text = mode === 'text' ? resultText(result) : JSON.stringify(result);
  const { writeOutput } = await import('../../disk/whole-file.ts');
  writeOutput(target, text.endsWith('\n') ? text : `${text}\n`, {
    hint: `The thread itself has finished. See its result with: rye threads show ${result.thread_id}`,
  });
}
