import { formatLocation, RyeError } from '../core/errors.ts';
import { isItemType } from '../core/ids.ts';
import { readHooks } from '../hooks/declaration.ts';
import { readConfigFile, unknownIn } from '../items/config-fs.ts';
import { parseDirective } from '../items/directive.ts';
import { loadSkill } from '../items/skill.ts';
import type { FoundFile, Spaces } from '../items/spaces-fs.ts';
import { validateItem } from '../items/validate.ts';
import { parseLimits } from '../policy/limits.ts';
import type { Problem } from './api/items.ts';
import { assertSettings } from './settings.ts';
import { isForeignSkill } from './skills.ts';

/** Everything that is wrong with a file: its form first, then what policy and hooks would refuse. */
export async function problemsOf(file: FoundFile, spaces: Spaces): Promise<readonly Problem[]> {
  const { type, id, path, text } = file;
  if (!isItemType(type)) return await configProblems(file, spaces);
  const found = await validateItem({ type, id, path, text });
  // a skill for another program need not meet rules that only rye has
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

/** Returns the problems of a configuration file: its form, unknown settings, and what they may not be. */
async function configProblems(file: FoundFile, spaces: Spaces): Promise<readonly Problem[]> {
  const { id, path, space } = file;
  const problems: Problem[] = [];
  const collect = async (check: () => unknown): Promise<void> => {
    try {
      await check();
    } catch (error) {
      if (!(error instanceof RyeError)) throw error;
      problems.push(toProblem(error, path));
    }
  };
  await collect(async () => {
    const config = await readConfigFile(file);
    for (const { path: setting, origin, hint } of await unknownIn(file, spaces))
      problems.push(unknownProblem({ setting, origin, hint, path }));
    await collect(() => assertSettings(id, config, space === 'user' ? 'user' : 'project'));
  });
  return problems;
}

function unknownProblem({
  setting,
  origin,
  hint,
  path,
}: {
  readonly setting: string;
  readonly origin: string;
  readonly hint: string | undefined;
  readonly path: string;
}): Problem {
  const line = Number(/:(\d+)(?::\d+)?$/.exec(origin)?.[1] ?? Number.NaN);
  return {
    severity: 'error',
    code: 'config_invalid',
    message: `unknown setting ${setting}`,
    path,
    line: Number.isNaN(line) ? null : line,
    column: null,
    hint: hint ?? 'Remove it. `rye config show` lists every setting.',
  };
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
