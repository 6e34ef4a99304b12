import { existsSync } from 'node:fs';
import path from 'node:path';
import { EXIT, type ExitCode, RyeError } from '../../kernel/core/errors.ts';
import type { Context } from './command.ts';
import { printText } from './output.ts';
import { spaceFolders, withRye } from './session.ts';

/** Runs the command of a plug-in that the first word names; undefined if no plug-in has it. */
export async function runPluginCommand(
  [name, ...words]: readonly string[],
  context: Context,
): Promise<ExitCode | undefined> {
  if (!namesPlugins(context)) return undefined;
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
    if (status !== undefined && !isStatus(status)) {
      throw new RyeError('plugin_invalid', `the command ${name} returned no exit status`, {
        hint: 'Its function "run" has to return a number from 0 to 255, or nothing.',
      });
    }
    return (status ?? EXIT.ok) as ExitCode;
  });
}

function isStatus(value: unknown): boolean {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 255;
}

/** True if a space has a file of plug-ins. An unknown word opens nothing else. */
function namesPlugins(context: Context): boolean {
  const files = ['plugins.yaml', 'plugins.yml'];
  try {
    return spaceFolders(context).some((folder) =>
      files.some((file) => existsSync(path.join(folder, '.ai', 'config', file))),
    );
  } catch {
    return false; // there is no working folder
  }
}
