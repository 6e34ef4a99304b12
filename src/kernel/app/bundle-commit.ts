import { tryGit } from '../tools/git.ts';

export interface CommitOptions {
  readonly projectPath: string;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** Returns the commit of a repository that holds these files as they are on the disk; undefined without one. */
export async function commitOf(
  { projectPath: cwd, env }: CommitOptions,
  paths: readonly string[],
): Promise<string | undefined> {
  const run = async (...args: readonly string[]): Promise<string | undefined> => {
    const { code, stdout } = await tryGit(args, { cwd, env });
    return code === 0 ? stdout.toString('utf8') : undefined;
  };
  try {
    const head = (await run('rev-parse', '--verify', 'HEAD'))?.trim();
    const tracked = (await run('ls-files', '-z', '--', '.ai'))?.split('\0') ?? [];
    const changed = await run('diff', '--name-only', 'HEAD', '--', '.ai');
    const known = new Set(tracked);
    return changed === '' && paths.every((path) => known.has(path)) ? head : undefined;
  } catch {
    return undefined; // there is no git
  }
}
