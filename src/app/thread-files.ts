import type { ThreadFiles } from '../threads/ports.ts';
import { openThreadFiles } from '../threads/thread-files-fs.ts';
import type { Foundation } from './foundation.ts';

/** The signed files of a project's threads. */
export function threadFiles({ options, clock, keyring }: Foundation): ThreadFiles {
  return openThreadFiles({
    projectPath: options.projectPath,
    clock,
    key: () => keyring.signer(),
    keys: keyring,
  });
}
