import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { parseDocument } from 'yaml';
import { RyeError } from '../core/errors.ts';
import { isRecord } from '../core/json.ts';
import { didYouMean } from '../core/text.ts';
import { placeInside, readTextInside } from '../disk/inside.ts';

/** The configuration in which the hooks of a project are. */
export const HOOKS_CONFIG = 'agent/hooks';

/** Returns the hooks file of a project; its text is undefined if it does not exist. */
export function readHooksFile(projectPath: string): {
  readonly path: string;
  readonly text: string | undefined;
} {
  const base = join(projectPath, '.ai', 'config', HOOKS_CONFIG);
  for (const extension of ['.yml', '.yaml']) placeInside(projectPath, `${base}${extension}`);
  const path = existsSync(`${base}.yml`) ? `${base}.yml` : `${base}.yaml`;
  return { path, text: readTextInside(projectPath, path) };
}

/** Returns the ids in the text of a hooks file; none if it cannot be parsed. */
export function hookIds(text: string): readonly string[] {
  const value: unknown = parseDocument(text).toJS();
  const hooks = isRecord(value) && Array.isArray(value['hooks']) ? value['hooks'] : [];
  return hooks.flatMap((hook: unknown) =>
    isRecord(hook) && typeof hook['id'] === 'string' ? [hook['id']] : [],
  );
}

/** Throws `item_not_found` if the project declares no hook with this id. */
export function assertHook(projectPath: string, id: string): void {
  const ids = hookIds(readHooksFile(projectPath).text ?? '');
  if (ids.includes(id)) return;
  throw new RyeError('item_not_found', `the project has no hook ${id}`, {
    hint: didYouMean(id, ids) ?? `Create it: rye new hook ${id}`,
  });
}
