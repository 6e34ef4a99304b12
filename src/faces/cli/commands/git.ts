import { existsSync } from 'node:fs';
import path from 'node:path';
import { EXIT } from '../../../kernel/core/errors.ts';
import type { Io } from '../../ui/io.ts';
import { oneLine, shown } from '../../ui/visible.ts';
import { argument, defineCommand, defineGroup, optionalArgument } from '../command.ts';
import { displayPath, printResult } from '../output.ts';
import { withRye } from '../session.ts';

const setup = defineCommand({
  name: 'setup',
  summary: 'Let git merge signed files without their signature lines',
  details:
    'Writes .gitattributes, which you commit, and the merge driver to the local configuration of this clone; each clone needs the command once. A merged file has no signature: review it and sign it again.',
  examples: ['rye git setup'],
  run: async (call) => {
    const { io } = call;
    const { setUpGit } = await import('../../../kernel/app/git.ts');
    const outcome = await withRye(call, async ({ projectPath }) =>
      setUpGit({ projectPath, env: io.env }, programFor(io)),
    );
    return printResult(call, outcome, () => [
      outcome.changed
        ? shown`git merges signed files with rye; commit ${displayPath(outcome.attributes, io)}`
        : shown`git is set up already`,
    ]);
  },
});

/** The command that starts rye again: its name if it is on the path, else this very program. */
function programFor({ env, program }: Io): readonly string[] {
  const folders = (env['PATH'] ?? '').split(path.delimiter).filter((one) => path.isAbsolute(one));
  if (folders.some((folder) => existsSync(path.join(folder, 'rye')))) return ['rye'];
  return [process.execPath, program];
}

const mergeDriver = defineCommand({
  name: 'merge-driver',
  summary: 'Merge three versions of a signed file; git runs it',
  arguments: {
    base: argument('The common version (%O)'),
    ours: argument('Our version, which takes the result (%A)'),
    theirs: argument('Their version (%B)'),
    name: optionalArgument('The path of the file in the repository (%P)', { name: 'path' }),
  },
  examples: ['rye git merge-driver %O %A %B %P'],
  run: async ({ args, io }) => {
    const { mergeSigned } = await import('../../../kernel/app/git.ts');
    const [base, ours, theirs] = [args.base, args.ours, args.theirs].map((file) =>
      path.resolve(io.cwd, file),
    );
    const { name = args.ours } = args;
    const outcome = mergeSigned({
      base: base ?? '',
      ours: ours ?? '',
      theirs: theirs ?? '',
      path: name,
      env: io.env,
    });
    if (outcome === 'kept') return EXIT.ok;
    const next =
      outcome === 'merged'
        ? 'merged; it has no signature now. Review it, then sign it again with: rye sign'
        : 'has conflicts. Resolve them, then sign it again with: rye sign';
    io.stderr.write(shown`rye: ${oneLine(name)} ${next}\n`);
    return outcome === 'merged' ? EXIT.ok : EXIT.failed;
  },
});

export const git = defineGroup({
  examples: ['rye git setup'],
  internal: [mergeDriver],
  commands: [setup],
});
