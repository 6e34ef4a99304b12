import { constants } from 'node:fs';
import { open, readFile, realpath } from 'node:fs/promises';
import { homedir } from 'node:os';
import { isAbsolute } from 'node:path';
import { RyeError } from '../core/errors.ts';
import { deniesRead } from '../tools/deny-read.ts';
import { isInside } from '../tools/paths.ts';
import { findProject } from './user-space.ts';

interface Reader {
  readonly cwd: string;
  readonly home: string | undefined;
  /** True if a model would see the text. */
  readonly isForModel: boolean;
}

/**
 * Reads a file that a person named, by its absolute path. Throws `path_denied` for a file of the project that is a link to
 * somewhere else, for a named pipe, which would wait for a writer, and for secrets that a model would see. The message
 * continues the name of the file.
 */
export async function readFileOfPerson(
  absolute: string,
  { cwd, home, isForModel }: Reader,
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
  const homes = [homedir(), ...(home === undefined ? [] : [home])].filter((one) => isAbsolute(one));
  if (isForModel && deniesRead([], homes)(real, project)) {
    throw new RyeError('path_denied', 'may hold secrets: tools.deny_read covers it', {
      hint: 'Pass its text on standard input if the model may see it.',
    });
  }
  const handle = await open(real, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    if ((await handle.stat()).isFIFO()) {
      throw new RyeError('path_denied', 'is a named pipe', { hint: 'Pass a regular file.' });
    }
    return await handle.readFile();
  } finally {
    await handle.close();
  }
}
