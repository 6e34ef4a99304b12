import { isUtf8 } from 'node:buffer';
import { stat } from 'node:fs/promises';
import path from 'node:path';
import type { Rye } from '../../../kernel/app/api/rye.ts';
import type { ResumeThreadRequest } from '../../../kernel/app/api/threads.ts';
import { messageLimits } from '../../../kernel/app/message-limits.ts';
import { RyeError } from '../../../kernel/core/errors.ts';
import { compact } from '../../../kernel/core/json.ts';
import type { ThreadResult } from '../../../kernel/core/thread.ts';
import type { Io } from '../../ui/io.ts';
import { shown } from '../../ui/visible.ts';
import {
  type Argument,
  argument,
  type Context,
  defineCommand,
  flag,
  number,
  text,
} from '../command.ts';
import { readLimits, readNamedFile, readSchema } from '../input.ts';
import { lastSession, modelWanted, nothingToContinue } from '../last-thread.ts';
import { READ_ONLY_TOOLS, readOnlyTools } from '../read-only-tools.ts';
import { quietOptions, withRye } from '../session.ts';
import { exitCodeOfResult, outputModeOf, showThread } from '../thread-run.ts';

const DIRECTIVE = 'rye/core/ask';

/** Bytes of files and standard input together: about 64,000 tokens. */
const MAX_CONTEXT = 256 * 1024;

const FILES: Argument<readonly string[]> = {
  name: 'files...',
  optional: true,
  description: 'Files that the question refers to, or - for stdin',
  read: (words) => words,
};

export const ask = defineCommand({
  details:
    "Runs the read-only directive rye/core/ask as a thread. Piped stdin and the files become context. Prints only the answer on stdout; -v adds the thread's ID and cost on stderr, --json prints both.",
  arguments: { question: argument('The question'), files: FILES },
  options: {
    tools: text(
      'NAMES',
      `Allow only these tools, separated by commas: ${READ_ONLY_TOOLS.join(', ')}`,
    ),
    schema: text('SCHEMA', 'JSON Schema of the answer, as JSON or a file; prints JSON'),
    model: text('MODEL', 'Model ID or tier'),
    provider: text('PROVIDER', 'Provider of the model'),
    maxBudgetUsd: number('USD', 'Spend at most this; below the limit of the directive'),
    continue: flag('Ask it in the last thread of `rye ask`, which knows the earlier answers'),
  },
  examples: [
    'rye ask "What does this project do?"',
    'git diff | rye ask "Write a commit message."',
    'rye ask "Which of these are unused?" src/a.ts src/b.ts --tools read,grep',
    'rye ask --continue "And in French?"',
  ],
  run: async (call) => {
    const { args, options, io } = call;
    const { model, provider, maxBudgetUsd } = options;
    const limits = readLimits([], undefined, maxBudgetUsd);
    const question = args.question.trim();
    if (question === '' || question === '-') {
      throw new RyeError('usage', 'the question is missing', {
        hint: 'Put it first: rye ask "What does this do?" [FILES...]',
      });
    }
    const onlyTools = readOnlyTools(options.tools, 'rye ask');
    const outputSchema = await readSchema(options.schema, '--schema', io);
    const context = await contextOf(args.files, call);
    const output = { mode: outputModeOf(call, undefined), isLive: true, isAnswer: true };
    if (options.continue) {
      if (options.tools !== undefined || outputSchema !== undefined) {
        throw new RyeError('usage', '--tools and --schema apply to a new thread', {
          hint: 'Remove --continue to ask in a new thread.',
        });
      }
      const message = [question, context].filter((part) => part !== '').join('\n\n');
      const continued = await showThread(call, output, (subscriber) =>
        withRye(call, (rye) =>
          continueLast(rye, { ...subscriber, message, model, provider, limits }).catch(inAskWords),
        ),
      );
      return exitCodeOfResult(continued);
    }
    const request = compact({
      directiveId: DIRECTIVE,
      inputs: { question, context },
      onlyTools,
      outputSchema,
      model,
      provider,
      limits,
      parentThreadId: io.env['RYE_PARENT_THREAD_ID'] || undefined,
    });
    const result = await showThread(call, output, (subscriber) =>
      withRye(call, (rye) => rye.threads.execute({ ...request, ...subscriber }).catch(inAskWords)),
    );
    return exitCodeOfResult(result);
  },
});

/** Asks in the last thread, with the turns, tokens and time of a new one and the rest of its budget, or less. */
async function continueLast(
  rye: Rye,
  {
    model,
    provider,
    limits: given,
    ...request
  }: Omit<ResumeThreadRequest, 'threadId'> & {
    readonly model: string | undefined;
    readonly provider: string | undefined;
  },
): Promise<ThreadResult> {
  const threadId = await lastSession(rye, DIRECTIVE);
  if (threadId === undefined) throw nothingToContinue('rye ask "What is this?"', DIRECTIVE);
  const details = await rye.threads.show(threadId);
  const limits = { ...messageLimits(details), ...given };
  const wanted = modelWanted({ model, provider }, details);
  if (wanted) await rye.trees.changeModel(threadId, wanted);
  return await rye.recovery.resume({ ...request, threadId, limits });
}

/** Throws the refusal of a budget with the options that `rye ask` has. */
function inAskWords(error: unknown): never {
  if (!(error instanceof RyeError) || error.code !== 'raise_limits_required') throw error;
  const { granted } = error.details ?? {};
  throw new RyeError(error.code, error.message, {
    hint: `Pass at most --max-budget-usd ${String(granted)}. A question that needs more: rye run ${DIRECTIVE} --input question=TEXT --max-budget-usd USD --raise-limits`,
    details: error.details,
  });
}

/** Returns the text of the files and of standard input, each in an element that names its source. */
async function contextOf(files: readonly string[], context: Context): Promise<string> {
  const { io } = context;
  const parts: string[] = [];
  let left = MAX_CONTEXT;
  const add = (source: string, bytes: Buffer, element: string): void => {
    left -= bytes.length;
    if (left < 0) {
      throw tooLarge(source);
    }
    if (!isUtf8(bytes) || bytes.includes(0)) {
      throw new RyeError('invalid_input', `${source} is not UTF-8 text`, {
        hint: 'Pass text files only.',
      });
    }
    const content = bytes.toString('utf8');
    const end = content.endsWith('\n') ? '' : '\n';
    parts.push(`<${element}>\n${content}${end}</${element.split(' ', 1)[0] ?? ''}>`);
  };
  for (const file of files) {
    if (file === '-') continue;
    await assertFits(file, left, io);
    add(
      file,
      await readNamedFile(file, 'ask', io, quietOptions(context)),
      `file path=${JSON.stringify(file)}`,
    );
  }
  const input = await pipedText(files.includes('-'), io);
  if (input !== '') add('standard input', Buffer.from(input), 'stdin');
  return parts.join('\n\n');
}

/** Refuses a folder, and a large file before it is read. */
async function assertFits(file: string, left: number, io: Io): Promise<void> {
  const facts = await stat(path.resolve(io.cwd, file)).catch(() => undefined);
  if (facts?.isDirectory() === true) {
    throw new RyeError('invalid_input', `${file} is a folder`, {
      hint: 'Name files, or let the model read the folder: rye ask QUESTION --tools read,grep,ls',
    });
  }
  if ((facts?.size ?? 0) > left) throw tooLarge(file);
}

function tooLarge(source: string): RyeError {
  return new RyeError(
    'invalid_input',
    `${source}: the input is larger than ${MAX_CONTEXT / 1024} KiB`,
    {
      hint: 'Pass less text, or let the model search it: rye ask QUESTION --tools read,grep',
    },
  );
}

const PATIENCE_MS = 3000;

/** Reads what is piped in. Tells a person if a pipe stays silent. */
async function pipedText(isNamed: boolean, io: Io): Promise<string> {
  if (!isNamed && (await io.stdinState()) === 'none') return '';
  let isTold = false;
  const stop = io.repeat(PATIENCE_MS, () => {
    if (!isTold)
      io.stderr.write(shown`rye: waiting for standard input (to ignore it: < /dev/null)\n`);
    isTold = true;
  });
  try {
    return await io.readStdin();
  } finally {
    stop();
  }
}
