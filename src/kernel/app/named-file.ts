import { constants } from 'node:fs';
import { open, readFile, realpath } from 'node:fs/promises';
import { homedir } from 'node:os';
import { RyeError } from '../core/errors.ts';
import { isInside, specialKind } from '../tools/paths.ts';
import type { OpenRyeOptions } from './api/rye.ts';
import { readDenier } from './session-tools.ts';
import { readThreadConfig } from './settings.ts';

import { checkedPlaces, findProject, withUserEnv } from './user-space.ts';
import { Workspace } from './workspace.ts';

interface Reader {
  readonly cwd: string;
  readonly home: string | undefined;
  /** The project whose model would see the text; absent: no model does. */
  readonly model?: OpenRyeOptions | undefined;
}

/**
 * Reads a file that a person named, by its absolute path. Throws `path_denied` for a file of the project that is a link to
 * somewhere else, for a named pipe, which would wait for a writer, and for secrets that a model would see. The message
 * continues the name of the file.
 */
export async function readFileOfPerson(
  absolute: string,
  { cwd, home, model }: Reader,
): Promise<Buffer> {
  // a shell passes the output of a command as a pipe: x=@<(command)
  if (/^\/(?:dev\/(?:fd\/|stdin$)|proc\/self\/fd\/)/.test(absolute))
    return await readFile(absolute);
  const named = findProject(cwd, home ?? homedir());
  const [real, project] = await Promise.all([realpath(absolute), realpath(named)]);
  if (isInside(absolute, named) && !isInside(real, project)) {
    const hint = `To read it all the same, name ${real}`;
    throw new RyeError('path_denied', `is a link to ${real}, outside the project`, { hint });
  }
  if (model && (await isDenied(real, model))) {
    throw new RyeError('path_denied', 'may hold secrets: tools.deny_read covers it', {
      hint: 'Pass its text on standard input if the model may see it.',
    });
  }
  const handle = await open(real, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const kind = specialKind(await handle.stat());
    if (kind !== undefined) {
      throw new RyeError('path_denied', `is ${kind}`, { hint: 'Pass a regular file.' });
    }
    return await handle.readFile();
  } finally {
    await handle.close();
  }
}

/** True if the tools of a thread of that project would not read the file. */
async function isDenied(real: string, model: OpenRyeOptions): Promise<boolean> {
  const options = checkedPlaces(model);
  const workspace = new Workspace({ ...options, env: withUserEnv(options) });
  try {
    const { settings } = await readThreadConfig(await workspace.config());
    return readDenier(workspace, settings)(real, await realpath(options.projectPath));
  } finally {
    workspace.close();
  }
}
