import type { Rye } from '../../app/api/rye.ts';
import type { BranchOptions } from '../../app/api/trees.ts';
import { EXIT, type ExitCode, RyeError } from '../../core/errors.ts';
import type { LogEvent } from '../../core/events.ts';
import { compact } from '../../core/json.ts';
import { flagOption, type Invocation, requiredArgument, textOption } from '../invocation.ts';
import type { Io } from '../io.ts';
import { printDocument, printLine } from '../output.ts';
import { resumeThread } from '../resume-thread.ts';
import { withRye } from '../session.ts';

interface Branched {
  readonly thread_id: string;
  readonly leaf_id: string | null;
  /** The thread that the path was copied from. */
  readonly branched_from?: string;
}

/** `rye threads branch <id> --at ENTRY`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const part = requiredArgument(invocation, 0, 'id');
  const at = textOption(invocation, 'at');
  if (at === undefined) {
    throw new RyeError('usage', 'the option --at ENTRY is missing', {
      hint: 'List the entries with `rye threads entries`.',
    });
  }
  const isRun = flagOption(invocation, 'run');
  const signal = io.cancellation();
  return await withRye(invocation, io, async (rye) => {
    const id = await rye.threads.resolveId(part);
    const branched = flagOption(invocation, 'new')
      ? await extract(rye, invocation, { id, at })
      : await branch(rye, invocation, { id, at, signal });
    if (isRun) {
      const message = textOption(invocation, 'message');
      const request = compact({ threadId: branched.thread_id, message });
      return await resumeThread(rye, request, { invocation, io, signal });
    }
    if (invocation.global.json) printDocument(io, { success: true, ...branched });
    else if (branched.branched_from !== undefined) printLine(io, branched.thread_id);
    else printLine(io, `the leaf of ${id} is now ${branched.leaf_id ?? 'before the first entry'}`);
    return EXIT.ok;
  });
}

/** With --run the resume brings the message. */
function messageOf(invocation: Invocation): string | undefined {
  return flagOption(invocation, 'run') ? undefined : textOption(invocation, 'message');
}

async function branch(
  { trees }: Rye,
  invocation: Invocation,
  { id, at, signal }: { readonly id: string; readonly at: string; readonly signal: AbortSignal },
): Promise<Branched> {
  const target = at === 'root' ? 'root' : (await trees.entry(id, at)).id;
  await label({ trees }, invocation, { id, entry: target });
  const options: BranchOptions = compact({
    at: target,
    summary: summaryOf(invocation),
    instructions: textOption(invocation, 'instructions'),
    message: messageOf(invocation),
    signal,
  });
  const last = (await trees.branch(id, options)).findLast((event) => event.id !== undefined);
  if (!last) return { thread_id: id, leaf_id: target === 'root' ? null : target };
  return { thread_id: id, leaf_id: leafAt(last) };
}

/** The leaf behind an entry that was just written. */
function leafAt(last: LogEvent): string | null {
  return last.event_type === 'leaf' ? last.payload.target_id : (last.id ?? null);
}

function summaryOf({ options }: Invocation): BranchOptions['summary'] {
  const { summary } = options;
  if (summary === true) return 'model';
  return typeof summary === 'string' ? { text: summary } : undefined;
}

async function extract(
  { trees }: Rye,
  invocation: Invocation,
  { id, at }: { readonly id: string; readonly at: string },
): Promise<Branched> {
  if (summaryOf(invocation) !== undefined) {
    throw new RyeError('usage', '--summary has no branch to summarise where --new copies the path');
  }
  const threadId = textOption(invocation, 'thread-id');
  const { thread_id } = await trees.extract(id, compact({ at, threadId }));
  const target = (await trees.entry(id, at)).id;
  await label({ trees }, invocation, { id: thread_id, entry: target });
  const message = messageOf(invocation);
  if (message !== undefined) await trees.branch(thread_id, { at: target, message });
  return { thread_id, leaf_id: (await trees.view(thread_id)).leaf_id, branched_from: id };
}

/** Named before the leaf moves, since a label is an entry too. */
async function label(
  { trees }: Pick<Rye, 'trees'>,
  invocation: Invocation,
  { id, entry }: { readonly id: string; readonly entry: string },
): Promise<void> {
  const text = textOption(invocation, 'label');
  if (text !== undefined) await trees.label(id, entry, text);
}
