import type { Problem } from '../../app/api/items.ts';
import { EXIT, type ExitCode, formatLocation, RyeError } from '../../core/errors.ts';
import { compact } from '../../core/json.ts';
import type { Invocation } from '../invocation.ts';
import type { Io } from '../io.ts';
import { parseItemType } from '../item-arguments.ts';
import { count, displayPath, printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';
import { oneLine } from '../terminal-text.ts';

/** `rye validate [<type> <id|glob>]`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const [typeText, pattern] = invocation.args;
  const type = typeText === undefined ? undefined : parseItemType(typeText);
  if (type !== undefined && pattern === undefined) {
    throw new RyeError('usage', `rye validate ${type} needs an id or a glob`, {
      hint: `For all of them: rye validate ${type} '**'.`,
    });
  }
  const { problems, checked } = await withRye(invocation, io, (rye) =>
    rye.items.validate(type === undefined || pattern === undefined ? undefined : { type, pattern }),
  );
  const errors = problems.filter(({ severity }) => severity === 'error');
  const summary = `${count(checked, 'item')} checked, ${count(errors.length, 'error')}, ${count(problems.length - errors.length, 'warning')}`;
  if (invocation.global.json) {
    const error = { code: 'invalid_input', message: summary };
    printDocument(io, {
      success: errors.length === 0,
      ...(errors.length === 0 ? {} : { error }),
      problems,
      total: problems.length,
      checked,
    });
  } else {
    for (const problem of problems) printLine(io, formatProblem(problem, io));
    if (!invocation.global.quiet) io.stderr.write(`${summary}\n`);
  }
  return errors.length === 0 ? EXIT.ok : EXIT.usage;
}

/** `file:line:col: code: message`, as compilers print it; warnings say so. The hint of an error follows, indented, ready to paste. */
export function formatProblem(problem: Problem, io: Io): string {
  const { line, column, hint, severity } = problem;
  const location = formatLocation({
    path: displayPath(problem.path, io),
    ...compact({ line: line ?? undefined, column: column ?? undefined }),
  });
  const mark = severity === 'warning' ? 'warning: ' : '';
  const first = `${location}: ${mark}${problem.code}: ${oneLine(problem.message)}`;
  if (hint === undefined || severity === 'warning') return first;
  const rest = hint.split('\n').map((text) => {
    const indent = /^ */.exec(text)?.[0] ?? '';
    return `  ${indent}${oneLine(text)}`;
  });
  return [first, ...rest].join('\n');
}
