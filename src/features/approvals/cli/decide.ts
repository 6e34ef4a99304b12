import {
  type Argument,
  argument,
  type Context,
  choice,
  defineCommand,
  integer,
  negatedFlag,
  number,
  text,
} from '../../../faces/cli/command.ts';
import { failureText } from '../../../faces/cli/failure.ts';
import { colorsOf, count, printDocument, printLines } from '../../../faces/cli/output.ts';
import { withRye } from '../../../faces/cli/session.ts';
import { oddCount, requestLines } from '../../../faces/ui/dialogs/approval-lines.ts';
import { canPick } from '../../../faces/ui/io.ts';
import { oneLine, type Shown, shown } from '../../../faces/ui/visible.ts';
import type { DecidedApproval, DecideRequest } from '../../../kernel/app/api/approvals.ts';
import { APPROVAL_SCOPES } from '../../../kernel/core/approval.ts';
import {
  type ErrorInfo,
  EXIT,
  type ExitCode,
  exitCodeOf,
  RyeError,
  toRyeError,
} from '../../../kernel/core/errors.ts';
import {
  compact,
  isJsonObject,
  type JsonObject,
  parseGivenJson,
} from '../../../kernel/core/json.ts';

const IDS: Argument<readonly string[]> = {
  name: 'id...',
  optional: true,
  description: 'IDs of requests, or their beginnings (default at a terminal: pick one)',
  read: (words) => words,
};

const resuming = negatedFlag('Record the decision; do not resume the suspended thread');
const COMMENT = 'Recorded with the decision';

export const approve = defineCommand({
  details:
    'Signs the decision with your key over the hash of the request: what runs is exactly what was requested, or nothing. A suspended thread is resumed in another process.',
  arguments: { ids: IDS },
  options: {
    scope: choice(
      'SCOPE',
      APPROVAL_SCOPES,
      'once (default), or this thread with the same arguments or the same tool',
    ),
    input: text('JSON', 'Run it with this input instead; the model is told'),
    hunks: text('N,…', 'Run only these edits of a multi_edit; the model is told which were denied'),
    until: text('TIME', 'With a wider scope: until a time, such as 2h or 2026-12-24T18:00:00Z'),
    uses: integer('N', 'With a wider scope: for at most N calls'),
    spend: number('USD', 'With a wider scope: while its calls cost at most this'),
    comment: text('TEXT', COMMENT),
    resume: resuming,
  },
  examples: [
    'rye approve apr-3f2a',
    'rye approve apr-3f2a --scope tool --until 2h --uses 5',
    'rye approve apr-3f2a --hunks 1,3',
    'rye approve apr-3f2a --input \'{"command": "git push --dry-run"}\'',
  ],
  run: async (call) => {
    const { options, args, io } = call;
    const { scope, uses, spend: spendUsd, comment } = options;
    const input = options.input === undefined ? undefined : readObject(options.input);
    const hunks = options.hunks?.split(',').map((hunk) => Number(hunk.trim() || Number.NaN));
    if (input && hunks) {
      throw new RyeError('usage', '--hunks and --input cannot be combined', {
        hint: 'Use --hunks to leave edits out, or --input to change them.',
      });
    }
    if ((scope ?? 'once') === 'once' && (uses ?? 1) > 1) {
      throw new RyeError('usage', '--uses needs a scope that covers several calls', {
        hint: 'Add --scope arguments or --scope tool.',
      });
    }
    const forMs = options.until === undefined ? undefined : readUntil(options.until, io.now());
    const decision = compact({ scope, input, hunks, uses, spendUsd, comment, forMs });
    const ids = args.ids.length > 0 ? args.ids : [await pickedRequest(call, 'Approve')];
    return await decideAll(call, ids, {
      ...decision,
      decision: 'approve',
      resume: options.resume,
    });
  },
});

export const deny = defineCommand({
  details: 'The model reads the comment and continues without the call.',
  arguments: { ids: IDS },
  options: { comment: text('TEXT', 'The reason, which the model reads'), resume: resuming },
  examples: ['rye deny apr-3f2a --comment "Push to a branch instead."'],
  run: async (call) => {
    const { comment, resume } = call.options;
    const { ids } = call.args;
    return await decideAll(call, ids.length > 0 ? ids : [await pickedRequest(call, 'Deny')], {
      decision: 'deny',
      resume,
      ...compact({ comment }),
    });
  },
});

export const answer = defineCommand({
  details: 'The answer must match the JSON Schema of the question: see `rye approvals show ID`.',
  arguments: {
    id: argument('ID of the question, or its beginning'),
    json: argument('The answer as JSON'),
  },
  options: { comment: text('TEXT', COMMENT), resume: resuming },
  examples: ['rye answer apr-3f2a \'"main"\'', 'rye answer apr-3f2a \'{"env": "staging"}\''],
  run: async (call) => {
    const { comment } = call.options;
    const value = parseGivenJson(call.args.json);
    if (value === undefined) {
      throw new RyeError('invalid_input', 'the answer is not JSON', {
        hint: 'Quote a text twice for the shell, such as \'"main"\'.',
      });
    }
    return await decideAll(call, [call.args.id], {
      decision: 'answer',
      answer: value,
      resume: call.options.resume,
      ...compact({ comment }),
    });
  },
});

/** Lets a person at a terminal pick a request, shows all of it and asks. */
async function pickedRequest(context: Context, verb: 'Approve' | 'Deny'): Promise<string> {
  const hint = 'List the requests with: rye approvals';
  if (!canPick(context)) throw new RyeError('usage', 'missing argument <id...>', { hint });
  const pending = await withRye(context, async (rye) => await rye.approvals.list({}));
  const calls = pending.filter(({ kind }) => kind !== 'question');
  const [only] = calls;
  if (only === undefined) {
    const questions = pending.length === 0 ? '' : '; questions wait for: rye answer ID JSON';
    throw new RyeError('approval_not_found', `no request waits for a decision${questions}`, {
      hint,
    });
  }
  const { pickRequest } = await import('../../../faces/cli/pick-thread.ts');
  const id = calls.length === 1 ? only.id : await pickRequest(context, calls);
  const request = calls.find((one) => one.id === id) ?? only;
  const { io } = context;
  for (const line of requestLines(request, colorsOf(io.stderr, context))) {
    io.stderr.write(shown`${line}\n`);
  }
  // one key does not approve what can mislead
  const isOdd = verb === 'Approve' && oddCount(request) > 0;
  const reply = await io.ask(
    isOdd ? shown`Type "approve" to approve it: ` : shown`${verb} it? [y/N] `,
  );
  if ((isOdd ? /^approve$/i : /^y(?:es)?$/i).test(reply.trim())) return id;
  throw new RyeError('cancelled', `${id} still waits for a decision`, { hint });
}

function readObject(json: string): JsonObject {
  const value = parseGivenJson(json);
  if (isJsonObject(value)) return value;
  throw new RyeError('invalid_input', '--input is not a JSON object', {
    hint: 'Give the whole input, such as --input \'{"command": "ls"}\'.',
  });
}

const UNITS_MS: Readonly<Record<string, number>> = { s: 1e3, m: 6e4, h: 36e5, d: 864e5, w: 6048e5 };

function readUntil(until: string, now: number): number {
  const [, digits, unit = ''] = /^(\d{1,6})([smhdw])$/.exec(until) ?? [];
  const given =
    digits === undefined
      ? Date.parse(until) - now
      : Number(digits) * (UNITS_MS[unit] ?? Number.NaN);
  if (given > 0) return given;
  throw new RyeError('invalid_input', `--until: ${JSON.stringify(until)} is not a time to come`, {
    hint: 'Use a number and s, m, h, d or w, such as 2h, or a time such as 2026-12-24T18:00:00Z.',
  });
}

/** Decides about each request. One that fails does not keep the others from being decided. */
async function decideAll(
  context: Context,
  ids: readonly string[],
  decision: Omit<DecideRequest, 'id'>,
): Promise<ExitCode> {
  const { io, global } = context;
  const decided: DecidedApproval[] = [];
  const problems: { readonly id: string; readonly error: ErrorInfo }[] = [];
  await withRye(context, async (rye) => {
    for (const id of ids) {
      try {
        decided.push(await rye.approvals.decide({ ...decision, id }));
      } catch (error) {
        problems.push({ id, error: toRyeError(error).toJSON() });
      }
    }
  });
  const [first] = problems;
  if (global.json) {
    const error = first && { error: first.error };
    printDocument(io, {
      success: !first,
      approvals: decided,
      total: decided.length,
      problems,
      ...error,
    });
  } else {
    if (!global.quiet) printLines(io, decided.map(decidedLine));
    for (const { error } of problems) {
      const { code, message, hint } = error;
      io.stderr.write(failureText(new RyeError(code, message, { hint })));
    }
  }
  return first ? exitCodeOf(first.error.code) : EXIT.ok;
}

function decidedLine({
  id,
  state,
  missing,
  resumed,
  awaits_owner: awaitsOwner,
  thread_id: threadId,
}: DecidedApproval): Shown {
  if (missing > 0) return oneLine(`${id} recorded; ${count(missing, 'more approver')} needed`);
  const owner = `; its owner continues it: rye threads resume ${threadId}`;
  const next = resumed ? `; thread ${threadId} continues` : '';
  return oneLine(`${id} ${state}${awaitsOwner === true ? owner : next}`);
}
