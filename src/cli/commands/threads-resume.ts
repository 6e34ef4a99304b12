import type { ExitCode } from '../../core/errors.ts';
import { compact, toText } from '../../core/json.ts';
import type { OutputMode } from '../failure.ts';
import { readLimits, readValues } from '../input-values.ts';
import {
  flagOption,
  type Invocation,
  listOption,
  requiredArgument,
  textOption,
} from '../invocation.ts';
import type { Io } from '../io.ts';
import { createRenderer } from '../render/create-renderer.ts';
import { withRye } from '../session.ts';
import { exitCodeOfResult } from '../thread-exit.ts';

/** `rye threads resume <id>`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const part = requiredArgument(invocation, 0, 'id');
  const request = compact({
    message: textOption(invocation, 'message'),
    from: textOption(invocation, 'from'),
    limits: readLimits({
      pairs: listOption(invocation, 'limit'),
      maxTurns: undefined,
      maxBudgetUsd: undefined,
    }),
    secrets: await readSecrets(invocation, io),
    allowUnsigned: flagOption(invocation, 'allow-unsigned'),
  });
  const renderer = createRenderer({
    mode: modeOf(invocation),
    io,
    global: invocation.global,
    isLive: !flagOption(invocation, 'print'),
  });
  // listens before the project is opened, so that an early interrupt is a cancellation too
  const signal = io.cancellation();
  try {
    const result = await withRye(invocation, io, async ({ threads, recovery }) =>
      recovery.resume({
        ...request,
        threadId: await threads.resolveId(part),
        signal,
        onEvent: renderer.event,
      }),
    );
    renderer.finish(result);
    return exitCodeOfResult(result);
  } finally {
    renderer.close();
  }
}

async function readSecrets(
  invocation: Invocation,
  io: Io,
): Promise<Readonly<Record<string, string>>> {
  const values = await readValues(
    {
      pairs: listOption(invocation, 'input'),
      document: undefined,
      pairOption: '--input',
      documentOption: '--inputs',
    },
    io,
  );
  return Object.fromEntries(
    Object.entries(values).map(([name, value]) => [name, toText(value ?? null)]),
  );
}

function modeOf(invocation: Invocation): OutputMode {
  const format = textOption(invocation, 'output-format');
  if (format === 'stream-json') return 'stream-json';
  return format === 'json' || invocation.global.json ? 'json' : 'text';
}
