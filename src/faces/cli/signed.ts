import type { Problem, SignOutcome, VerifyOutcome } from '../../kernel/app/api/items.ts';
import type { Rye } from '../../kernel/app/api/rye.ts';
import { EXIT, type ExitCode, formatLocation } from '../../kernel/core/errors.ts';
import type { SignableType } from '../../kernel/core/ids.ts';
import { compact } from '../../kernel/core/json.ts';
import type { Io } from '../ui/io.ts';
import { joined, oneLine, type Shown, shown } from '../ui/visible.ts';
import type { CiCase } from './ci-report.ts';
import type { Context } from './command.ts';
import { count, displayPath, printDocument, printLine, relativePath } from './output.ts';

/** Formats `file:line:col: code: message`, as compilers do. The hint follows, indented. */
export function formatProblem(problem: Problem, io: Io): Shown {
  const { line, column, hint, severity } = problem;
  const location = formatLocation({
    path: relativePath(problem.path, io),
    ...compact({ line: line ?? undefined, column: column ?? undefined }),
  });
  const mark = severity === 'warning' ? 'warning: ' : '';
  const first = oneLine(`${location}: ${mark}${problem.code}: ${problem.message}`);
  if (hint === undefined) return first;
  const rest = hint.split('\n').map((hintLine) => {
    const indent = /^ */.exec(hintLine)?.[0] ?? '';
    return oneLine(`  ${indent}${hintLine}`);
  });
  return joined([first, ...rest], '\n');
}

/** Prints the outcome of signing; returns the exit status. */
export function printSigned({ io, global }: Context, items: readonly SignOutcome[]): ExitCode {
  const failed = items.filter(({ status }) => status === 'failed').length;
  const success = failed === 0;
  if (global.json) {
    const message = `cannot sign ${count(failed, 'item')}`;
    const error = success ? undefined : { code: 'invalid_input', message };
    printDocument(io, compact({ success, error, items, total: items.length }));
  } else for (const item of items) printOutcome(item, io);
  return success ? EXIT.ok : EXIT.usage;
}

/** Prints one line for a file, and its problems to stderr. */
export function printOutcome({ status, path, problems }: SignOutcome, io: Io): void {
  printLine(io, shown`${oneLine(status.replaceAll('_', ' '))} ${displayPath(path, io)}`);
  for (const problem of problems) io.stderr.write(shown`${formatProblem(problem, io)}\n`);
}

/** Returns what is signed for an item: a hook is an entry of the hooks file. Throws `item_not_found`. */
export async function signable(
  { projectPath }: Pick<Rye, 'projectPath'>,
  type: SignableType | 'hook',
  pattern: string,
): Promise<{ readonly type: SignableType; readonly pattern: string }> {
  if (type !== 'hook') return { type, pattern };
  const { assertHook, HOOKS_CONFIG } = await import('../../kernel/app/hooks-file.ts');
  assertHook(projectPath, pattern);
  return { type: 'config', pattern: HOOKS_CONFIG };
}

/** Returns the cases of a validation: one for each error, or one that all is well. */
export function casesOfProblems({
  problems,
  checked,
}: {
  readonly problems: readonly Problem[];
  readonly checked: number;
}): readonly CiCase[] {
  const errors = problems.filter(({ severity }) => severity === 'error');
  if (errors.length === 0) return [{ name: `${count(checked, 'item')} checked` }];
  return errors.map(({ code, message, path, line }) => ({
    name: path,
    failure: { code, message, path, line: line ?? undefined },
  }));
}

/** Returns a case for each verified file. */
export function casesOfFiles(items: readonly VerifyOutcome[]): readonly CiCase[] {
  return items.map(({ type, id, space, path, error }) => ({
    name: `${type} ${id}`,
    isShipped: space === 'system',
    ...(error && { failure: { code: error.code, message: error.message, path } }),
  }));
}
