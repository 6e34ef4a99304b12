import { EXIT, type ExitCode, RyeError } from '../../core/errors.ts';
import { completionScript, SHELLS } from '../completion.ts';
import { type Invocation, requiredArgument } from '../invocation.ts';
import type { Io } from '../io.ts';
import { printDocument } from '../output.ts';
import type { CommandSpec } from '../spec.ts';

/** `rye completion bash|zsh|fish`. */
export async function run(invocation: Invocation, io: Io, root: CommandSpec): Promise<ExitCode> {
  const name = requiredArgument(invocation, 0, 'shell');
  const shell = SHELLS.find((known) => known === name);
  if (shell === undefined) {
    throw new RyeError('usage', `there is no completion for ${JSON.stringify(name)}`, {
      hint: `Shells are: ${SHELLS.join(', ')}.`,
    });
  }
  const script = completionScript(shell, root);
  if (invocation.global.json) printDocument(io, { success: true, shell, script });
  else io.stdout.write(script);
  return Promise.resolve(EXIT.ok);
}
