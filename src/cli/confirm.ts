import { RyeError } from '../core/errors.ts';
import { flagOption, type Invocation } from './invocation.ts';
import type { Io } from './io.ts';
import { oneLine } from './terminal-text.ts';

/**
 * Asks a person at a terminal before something that is hard to take back; anything but yes is refused with `cancelled`.
 * Where nobody can answer, giving the command was the answer.
 */
export async function confirm(
  invocation: Invocation,
  io: Io,
  { facts, question }: { readonly facts: readonly string[]; readonly question: string },
): Promise<void> {
  if (!io.stdinIsTty || !io.stderr.isTty || flagOption(invocation, 'yes')) return;
  for (const fact of facts) io.stderr.write(`${oneLine(fact)}\n`);
  const answer = await io.ask(`${question} [y/N] `);
  if (/^y(?:es)?$/i.test(answer.trim())) return;
  throw new RyeError('cancelled', 'nothing was changed', {
    hint: 'To go on, answer y, or give --yes.',
  });
}
