import { formatLocation, messageOf, RyeError, type SourceLocation } from '../core/errors.ts';
import { isItemType, itemIdProblem } from '../core/ids.ts';
import type { JsonObject } from '../core/json.ts';
import { conflictLine, didYouMean } from '../core/text.ts';
import { doubledHooks, readHooks } from '../hooks/declaration.ts';
import { isPowerFile } from '../items/config.ts';
import { readConfigFile, readOverShipped, unknownIn } from '../items/config-fs.ts';
import { parseDirective } from '../items/directive.ts';
import type { Directive } from '../items/directive-ast.ts';
import { isNeighborId } from '../items/neighbor-rules-fs.ts';
import { loadSkill } from '../items/skill.ts';
import type { FoundFile, Spaces } from '../items/spaces-fs.ts';
import { validateItem } from '../items/validate.ts';
import { parseApprovalPolicy } from '../policy/approvals.ts';
import { parseLimits } from '../policy/limits.ts';
import { parseRiskTable } from '../policy/risk.ts';
import { parseCatalog } from '../providers/catalog.ts';
import { compileSchema } from '../tools/schema.ts';
import { faultError, readPolicyLayer } from '../trust/policy.ts';
import type { Verdict } from '../trust/signature.ts';
import type { Problem } from './api/items.ts';
import type { Feature } from './feature.ts';
import { shippedKinds } from './models.ts';
import { assertSettings } from './settings.ts';
import { isForeignSkill } from './skill-spaces.ts';

const PROVIDERS = 'agent/providers/';

/** Throws the mistakes of a configuration file with its own reader, as a run would find them. */
async function checkOwnReader(
  file: FoundFile,
  spaces: Spaces,
  features: readonly Feature[],
): Promise<void> {
  const { id, path } = file;
  if (id === 'trust') {
    const { value } = await readOverShipped(file, spaces);
    readPolicyLayer(value, path);
  } else if (id === 'agent/capability_risk') {
    const { value } = await readOverShipped(file, spaces);
    parseRiskTable(value, { path });
  } else if (id === 'agent/approvals') {
    const { value } = await readConfigFile(file);
    parseApprovalPolicy(value, file.space, { path });
  } else if (id === 'plugins') {
    const { readPluginsFile } = await import('./plugins.ts');
    readPluginsFile((await readConfigFile(file)).value, path);
  } else if (id.startsWith(PROVIDERS)) await checkProvider(file, spaces);
  for (const { files = {} } of features) await files[id]?.(file, spaces);
}

async function checkProvider(file: FoundFile, spaces: Spaces): Promise<void> {
  const own = file.id.slice(PROVIDERS.length);
  const { kind, models } = (await readOverShipped(file, spaces)).value;
  // a program may bring this kind along: only it can check the file, and a run without it fails
  if (isOtherKind(kind) && models !== undefined) return;
  const shipped = spaces
    .list('config', { space: 'system' })
    .filter(({ id }) => id.startsWith(PROVIDERS) && id !== file.id)
    .flatMap(({ id }) => spaces.find('config', id, { space: 'system' }) ?? []);
  const files = await Promise.all(
    [...shipped, file].map(async (each) => [
      each.id.slice(PROVIDERS.length),
      await readOverShipped(each, spaces),
    ]),
  );
  try {
    parseCatalog(Object.fromEntries(files), shippedKinds());
  } catch (error) {
    // other files may hold what this one refers to
    const message = error instanceof RyeError ? error.message : '';
    if (message.includes(file.path) || message.includes(`providers/${own}`)) throw error;
    if (!(error instanceof RyeError)) throw error;
  }
}

/** True for the name of a kind that is not shipped and is no misspelling of one that is. */
function isOtherKind(kind: unknown): boolean {
  const names = Object.keys(shippedKinds());
  return typeof kind === 'string' && !names.includes(kind) && didYouMean(kind, names) === undefined;
}

/**
 * Everything that is wrong with a file: its form first, then what policy and hooks would refuse. For signing, the mistakes
 * of a skill that loads in spite of them are warnings: most skills are written for other programs.
 */
export async function problemsOf(
  file: FoundFile,
  spaces: Spaces,
  features: readonly Feature[],
  use: 'validate' | 'sign' = 'validate',
): Promise<readonly Problem[]> {
  const { type, id, path, text } = file;
  const conflict = conflictLine(text);
  if (conflict !== undefined) return [conflictProblem(path, conflict)];
  if (!isItemType(type)) return await configProblems(file, spaces, features);
  const found = await validateItem({ type, id, path, text });
  // a skill for another program need not meet rules that only rye has
  const isLenient =
    type === 'skill' && (use === 'sign' || isForeignSkill(path)) && isLoadable(file);
  const problems: Problem[] = found.map(({ severity, code, message, location, hint }) => ({
    severity: isLenient ? ('warning' as const) : severity,
    code,
    message,
    path: location.path,
    line: location.line ?? null,
    column: location.column ?? null,
    ...(hint === undefined ? {} : { hint }),
  }));
  for (const { problems: look } of features) problems.push(...((await look?.[type]?.(file)) ?? []));
  const isSound = problems.every(({ severity }) => severity !== 'error');
  return type === 'directive' && isSound
    ? [...problems, ...(await directiveProblems(file, spaces))]
    : problems;
}

/** Nothing else is reported of a file that a merge left half done. */
function conflictProblem(path: string, line: number): Problem {
  return {
    severity: 'error',
    code: 'invalid_input',
    message: 'the file has a conflict marker of a merge',
    path,
    line,
    column: null,
    hint: 'Resolve the conflict, then sign the file again.',
  };
}

function isLoadable({ text, path }: FoundFile): boolean {
  return loadSkill(text, path).skill !== undefined;
}

async function directiveProblems(
  { text, path }: FoundFile,
  spaces: Spaces,
): Promise<readonly Problem[]> {
  const directive = parseDirective(text, path);
  const { hooks, problems: broken } = readHooks(directive.rawHooks, 1);
  const problems = [...broken, ...doubledHooks(hooks)].map((problem) => toProblem(problem, path));
  problems.push(...missingItems(directive, spaces));
  try {
    parseLimits(directive.rawLimits, 'the directive');
  } catch (error) {
    if (!(error instanceof RyeError)) throw error;
    problems.push(toProblem(error, path));
  }
  for (const { name, schema, schema_id: id } of directive.outputs) {
    const problem =
      id !== undefined && spaces.find('knowledge', id) === undefined
        ? `unknown knowledge entry ${id}`
        : schema && (await schemaProblem(name, schema));
    if (problem === undefined) continue;
    const line = Number(/:(\d+)$/.exec(directive.origins[`outputs.${name}`] ?? '')?.[1] ?? 1);
    const message = `the schema of the output "${name}" cannot be used: ${problem}`;
    const error = new RyeError('directive_malformed', message, { location: { path, line } });
    problems.push(toProblem(error, path));
  }
  return problems;
}

/** Warns of items that a run of the directive needs and no space has: they may be written later. */
function missingItems(
  { path, origins, extends: base, context }: Directive,
  spaces: Spaces,
): readonly Problem[] {
  const wanted = [
    ...(base === undefined
      ? []
      : [{ type: 'directive', id: base, origin: origins['extends'] } as const]),
    ...[...context.system, ...context.before, ...context.after]
      .filter(({ optional }) => optional !== true)
      .map(({ id, origin }) => ({ type: 'knowledge', id, origin }) as const),
  ];
  return wanted.flatMap(({ type, id, origin }): readonly Problem[] => {
    const isThere = itemIdProblem(id) === undefined && spaces.find(type, id) !== undefined;
    if (isThere || (type === 'knowledge' && isNeighborId(id))) return [];
    const message = `the directive needs the ${type} ${id}, which no space has`;
    const line = Number(/:(\d+)$/.exec(origin ?? '')?.[1] ?? 1);
    return [{ severity: 'warning', code: 'item_not_found', message, path, line, column: null }];
  });
}

/** Returns why a schema does not compile; undefined if it does. */
async function schemaProblem(name: string, schema: JsonObject): Promise<string | undefined> {
  try {
    await compileSchema({ type: 'object', properties: { [name]: schema } });
    return undefined;
  } catch (error) {
    return messageOf(error).replace('the input schema cannot be used: ', '');
  }
}

/** Returns the problems of a configuration file: its form, unknown settings, and what they may not be. */
async function configProblems(
  file: FoundFile,
  spaces: Spaces,
  features: readonly Feature[],
): Promise<readonly Problem[]> {
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
    await collect(async () => await checkOwnReader(file, spaces, features));
  });
  return problems;
}

/** Warns of configuration that is ignored, because what it sets has no effect yet. */
export function ignoredConfig(file: FoundFile, verdict: Verdict): readonly Problem[] {
  const { type, id, space, path } = file;
  if (type !== 'config' || space !== 'project' || verdict.ok || !isPowerFile(id)) return [];
  const problem = toProblem(faultError(file, verdict), path);
  return [{ ...problem, severity: 'warning', message: `${problem.message}, so it has no effect` }];
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
    hint: hint ?? 'Remove it. `rye config show --all` lists every setting.',
  };
}

/** An error as one line of a report; `path` is the file's, if the error names none. */
export function toProblem({ code, message, location, hint }: RyeError, path: string): Problem {
  const prefix = location ? `${formatLocation(location)}: ` : '';
  return {
    severity: 'error',
    code,
    message: message.startsWith(prefix) ? message.slice(prefix.length) : message,
    ...placeOf(location, path),
    ...(hint === undefined ? {} : { hint }),
  };
}

/** An origin of a setting has its line in its path, or names the setting alone. */
function placeOf(location: SourceLocation | undefined, path: string) {
  if (location === undefined || location.path.startsWith('config '))
    return { path, line: null, column: null };
  const { path: file, line = null, column = null } = location;
  const [, bare, ...numbers] = /^(.+?):(\d+)(?::(\d+))?$/.exec(file) ?? [];
  if (line !== null || bare === undefined) return { path: file, line, column };
  const [row = null, place = null] = numbers.map((text) => (text ? Number(text) : null));
  return { path: bare, line: row, column: place };
}
