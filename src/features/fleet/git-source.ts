import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { RyeError } from '../../kernel/core/errors.ts';
import { makeFolders } from '../../kernel/disk/folders.ts';
import { writeWhole } from '../../kernel/disk/whole-file.ts';
import { type GitOptions, type GitOutcome, git, tryGit } from '../../kernel/tools/git.ts';

/** Bound of one exchange with a server. */
const EXCHANGE_MS = 600_000;
/** A packed commit of at most this many bytes may be sent without a server. */
const MAX_PACK_BYTES = 32 * 1024 * 1024;

type Env = GitOptions['env'];

/** A checked address: it is no option, and names no program. */
export interface SourceAddress {
  readonly url: string;
  /** The protocol of the URL, the only one that git may use. */
  readonly protocol: string;
}

export interface SourceFetch {
  /** The folder that becomes the repository. */
  readonly folder: string;
  /** Full ID. */
  readonly commit: string;
  readonly env: Env;
}

/** Makes a repository that has one commit, fetched from a server. Does nothing if it has it. */
export async function fetchSource(
  source: SourceFetch,
  { url, protocol }: SourceAddress,
): Promise<void> {
  await makeSource(source, async (options) => {
    const fetched = await tryGit(
      [
        'fetch',
        '--quiet',
        '--depth=1',
        '--no-tags',
        '--no-recurse-submodules',
        '--no-write-fetch-head',
        '--',
        url,
        source.commit,
      ],
      { ...options, ...reaching(protocol) },
    );
    if (fetched.code === 0) return;
    throw new RyeError(
      'source_unavailable',
      `commit ${short(source.commit)} cannot be fetched from ${url}: ${lastLine(fetched)}`,
      {
        hint: 'Push the commit there, give the worker access, or send it with the thread: --source bundle.',
        details: { url, commit: source.commit },
      },
    );
  });
}

/** Makes a repository from a packed commit. Does nothing if it has it. */
export async function unpackSource(source: SourceFetch, pack: Uint8Array): Promise<void> {
  await makeSource(source, async (options) => {
    // the commit has no parents here, which a fetch notes by itself
    writeWhole(join(source.folder, '.git', 'shallow'), `${source.commit}\n`);
    await git(['index-pack', '--stdin'], { ...options, stdin: pack });
  });
}

/** Packs a commit without its history. Throws `resource_exhausted` if that is too large to be sent. */
export async function packSource(
  cwd: string,
  { commit, env }: Pick<SourceFetch, 'commit' | 'env'>,
): Promise<Buffer> {
  const listed = await git(['rev-list', '--objects', '--no-object-names', '--no-walk', commit], {
    cwd,
    env,
  });
  const pack = await git(['pack-objects', '--quiet', '--stdout'], { cwd, env, stdin: listed });
  if (pack.length <= MAX_PACK_BYTES) return pack;
  throw new RyeError(
    'resource_exhausted',
    `commit ${short(commit)} is too large: ${pack.length} bytes packed, maximum ${MAX_PACK_BYTES}`,
    { hint: 'Push it to a server that the workers reach, and use --source git.' },
  );
}

/** A commit that is to be the value of a ref. */
export interface SourcePush {
  /** The repository that has the commit. */
  readonly folder: string;
  readonly commit: string;
  /** Its parent, which the server has. */
  readonly base: string;
  readonly ref: string;
  /** The value that the ref has; undefined: it does not exist. */
  readonly before: string | undefined;
  readonly env: Env;
}

/**
 * Pushes a commit. The thread may have changed the settings of the repository, so a new one without any is used. Returns
 * why the server did not take it.
 */
export async function pushSource(
  { folder, commit, base, ref, before, env }: SourcePush,
  { url, protocol }: SourceAddress,
): Promise<string | undefined> {
  const bare = await mkdtemp(join(folder, '.push-'));
  try {
    const options = { cwd: bare, env };
    await git(initWords(commit, '--bare'), options);
    writeWhole(join(bare, 'objects', 'info', 'alternates'), `${join(folder, '.git', 'objects')}\n`);
    // the history of the base is on the server only
    writeWhole(join(bare, 'shallow'), `${base}\n`);
    const words = ['push', '--quiet', '--no-verify', `--force-with-lease=${ref}:${before ?? ''}`];
    // on this machine the server is a program of git, which would run the hooks of the repository
    const there =
      protocol === 'file' ? ['--receive-pack=git -c core.hooksPath=/dev/null receive-pack'] : [];
    const pushed = await tryGit([...words, ...there, '--', url, `${commit}:${ref}`], {
      ...options,
      ...reaching(protocol),
    });
    return pushed.code === 0 ? undefined : lastLine(pushed);
  } finally {
    await rm(bare, { recursive: true, force: true });
  }
}

async function makeSource(
  source: SourceFetch,
  fill: (options: GitOptions) => Promise<void>,
): Promise<void> {
  const { folder: cwd, commit, env } = source;
  const options: GitOptions = { cwd, env, variables: { GIT_DIR: join(cwd, '.git') } };
  if (await isWhole(options, commit)) return;
  // a process that was killed leaves locks
  await rm(join(cwd, '.git'), { recursive: true, force: true });
  makeFolders(cwd);
  await git(initWords(commit), options);
  await fill(options);
  const { stdout } = await tryGit(['cat-file', '-t', commit], options);
  if (stdout.toString('utf8').trim() !== 'commit') {
    throw new RyeError('source_unavailable', `the source has no commit ${short(commit)}`, {
      hint: 'Start the thread again: rye run … --fleet',
      details: { commit },
    });
  }
  await git(['update-ref', '--no-deref', 'HEAD', commit], options);
}

/** HEAD is written last. */
async function isWhole(options: GitOptions, commit: string): Promise<boolean> {
  if (!existsSync(join(options.cwd, '.git'))) return false;
  const { stdout } = await tryGit(['rev-parse', '--verify', '--quiet', 'HEAD^{commit}'], options);
  return stdout.toString('utf8').trim() === commit;
}

function initWords(commit: string, ...more: readonly string[]): readonly string[] {
  const format = commit.length === 64 ? 'sha256' : 'sha1';
  return ['init', '--quiet', '--template=', `--object-format=${format}`, ...more];
}

function reaching(protocol: string): Partial<GitOptions> {
  const settings = [
    [`protocol.${protocol}.allow`, 'always'],
    ['protocol.version', '2'],
    ['http.followRedirects', 'initial'],
    ['http.lowSpeedLimit', '1000'],
    ['http.lowSpeedTime', '60'],
  ] as const;
  return { isUsers: true, timeoutMs: EXCHANGE_MS, settings };
}

function lastLine({ stderr }: GitOutcome): string {
  const lines = stderr
    .trim()
    .split('\n')
    .filter((line) => line.trim() !== '');
  return (
    lines.find((line) => /^(?:fatal|error|remote|!| !)/.test(line)) ??
    lines.at(-1) ??
    'git failed'
  )
    .trim()
    .slice(0, 300);
}

function short(commit: string): string {
  return commit.slice(0, 12);
}
