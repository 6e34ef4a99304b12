import { formatLocation, RyeError } from '../core/errors.ts';
import { isItemType } from '../core/ids.ts';
import { readHooks } from '../hooks/declaration.ts';
import { readConfigFile } from '../items/config-fs.ts';
import { parseDirective } from '../items/directive.ts';
import { loadSkill } from '../items/skill.ts';
import type { FoundFile } from '../items/spaces-fs.ts';
import { validateItem } from '../items/validate.ts';
import { parseLimits } from '../policy/limits.ts';
import type { Problem } from './rye.ts';
import { isForeignSkill } from './skills.ts';

/** Everything that is wrong with a file: its form first, then what policy and hooks would refuse. */
export async function problemsOf(file: FoundFile): Promise<readonly Problem[]> {
  const { type, id, path, text } = file;
  if (!isItemType(type)) return await configProblems(file);
  const found = await validateItem({ type, id, path, text });
  // whoever wrote a skill for another program is not held to what only rye refuses
  const isLenient = type === 'skill' && isForeignSkill(path) && isLoadable(file);
  const problems = found.map(({ severity, code, message, location, hint }) => ({
    severity: isLenient ? ('warning' as const) : severity,
    code,
    message,
    path: location.path,
    line: location.line ?? null,
    column: location.column ?? null,
    ...(hint === undefined ? {} : { hint }),
  }));
  const isSound = problems.every(({ severity }) => severity !== 'error');
  return type === 'directive' && isSound ? [...problems, ...directiveProblems(file)] : problems;
}

function isLoadable({ text, path }: FoundFile): boolean {
  return loadSkill(text, path).skill !== undefined;
}

function directiveProblems({ text, path }: FoundFile): readonly Problem[] {
  const directive = parseDirective(text, path);
  const problems = readHooks(directive.rawHooks, 1).problems.map((problem) =>
    toProblem(problem, path),
  );
  try {
    parseLimits(directive.rawLimits, 'the directive');
  } catch (error) {
    if (!(error instanceof RyeError)) throw error;
    problems.push(toProblem(error, path));
  }
  return problems;
}

async function configProblems(file: FoundFile): Promise<readonly Problem[]> {
  try {
    await readConfigFile(file);
    return [];
  } catch (error) {
    if (!(error instanceof RyeError)) throw error;
    return [toProblem(error, file.path)];
  }
}

/** An error as one line of a report; `path` is the file's, if the error names none. */
export function toProblem({ code, message, location, hint }: RyeError, path: string): Problem {
  const prefix = location ? `${formatLocation(location)}: ` : '';
  return {
    severity: 'error',
    code,
    message: message.startsWith(prefix) ? message.slice(prefix.length) : message,
    path: location?.path ?? path,
    line: location?.line ?? null,
    column: location?.column ?? null,
    ...(hint === undefined ? {} : { hint }),
  };
}
