import type { Rye } from '../../app/api/rye.ts';
import { EXIT, type ExitCode, RyeError } from '../../core/errors.ts';
import { compact } from '../../core/json.ts';
import type { BrowseOptions } from '../browser/browse.ts';
import { type Invocation, requiredArgument } from '../invocation.ts';
import type { Io } from '../io.ts';
import { colorsOf } from '../output.ts';
import { resumeThread } from '../resume-thread.ts';
import { withRye } from '../session.ts';
import { ERASE_LINE } from '../terminal-text.ts';

/** `rye threads open <id>`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const part = requiredArgument(invocation, 0, 'id');
  assertTerminal(invocation, io);
  const signal = io.cancellation();
  return await withRye(invocation, io, async (rye) => {
    const threadId = await rye.threads.resolveId(part);
    const { browse } = await import('../browser/browse.ts');
    // a large log takes a moment
    io.stderr.write(`reading ${threadId}…`);
    const source = await readTree(rye, threadId);
    io.stderr.write(ERASE_LINE);
    const ending = await browse({
      colors: colorsOf(io.stdout, io, invocation.global),
      signal,
      source,
      reread: () => readTree(rye, threadId),
      apply: (effect) => apply(rye, threadId, effect),
    });
    if (ending.kind === 'resume') {
      const { entry, message } = ending;
      const request = compact({
        threadId,
        from: entry,
        message: message === '' ? undefined : message,
      });
      return await resumeThread(rye, request, { invocation, io, signal });
    }
    return signal.aborted ? EXIT.cancelled : EXIT.ok;
  });
}

function assertTerminal({ global }: Invocation, io: Io): void {
  const isCapable = io.stdinIsTty && io.stdout.isTty && io.env['TERM'] !== 'dumb';
  if (isCapable && !global.json) return;
  throw new RyeError('terminal_required', '`rye threads open` needs a terminal to draw on', {
    hint: 'Scripts read the same with `rye threads entries <id> --json`.',
  });
}

async function readTree({ trees }: Rye, threadId: string): Promise<BrowseOptions['source']> {
  const tree = await trees.open(threadId);
  const { title, total } = tree;
  return { threadId, title, total, rows: (filter) => tree.rows(filter) };
}

/** The same operations as `rye threads branch` and `rye threads label`. */
async function apply(
  { trees }: Rye,
  threadId: string,
  effect: Parameters<BrowseOptions['apply']>[0],
): Promise<string> {
  const { entry } = effect;
  if (effect.kind === 'branch') {
    const written = await trees.branch(threadId, { at: entry });
    return written.length === 0 ? 'the leaf is there already' : `the leaf is now ${entry}`;
  }
  await trees.label(threadId, entry, effect.label);
  return effect.label === null ? 'the label is gone' : `labelled ${effect.label}`;
}
