import type { ExitCode } from '../../kernel/core/errors.ts';
import type { Context } from './command.ts';
import { printText } from './output.ts';
import { withRye } from './session.ts';

/** Runs the command of a plug-in that the first word names; undefined if no plug-in has it. */
export async function runPluginCommand(
  [name, ...words]: readonly string[],
  context: Context,
): Promise<ExitCode | undefined> {
  const { io, global } = context;
  return await withRye(context, async (rye) => {
    const commands = (await rye.plugins()).flatMap((plugin) => plugin.commands ?? []);
    const command = commands.find((one) => one.name === name);
    if (command === undefined) return undefined;
    const status = await command.run({
      words,
      json: global.json,
      rye,
      print: (text) => printText(io, `${text}\n`),
    });
    return (status ?? 0) as ExitCode;
  });
}
