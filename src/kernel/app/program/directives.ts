import { isDeepStrictEqual } from 'node:util';
import { formatLocation, RyeError } from '../../core/errors.ts';
import { isRecord, type JsonValue, parseJson } from '../../core/json.ts';
import { parseDistinctHooks } from '../../hooks/declaration.ts';
import { assertIdentity } from '../../items/binding.ts';
import { parseDirective } from '../../items/directive.ts';
import type { Directive } from '../../items/directive-ast.ts';
import { unknownBehavior } from '../../loop/behavior.ts';
import type { LoadedItem } from '../../threads/ports.ts';
import { sha256Hex } from '../../trust/keys.ts';
import type { DefinedDirective, DirectiveHook } from '../api/directives.ts';
import { type DirectiveSource, directiveSource } from './define-directive.ts';

const DIRECTIVE_LAYER = 1;

/**
 * Returns a directive of the program as an item. No key signed it, so its integrity is `unverified`. Throws what the
 * parser refuses in a file, with the member in place of the line.
 */
export function loadDefined(directive: DefinedDirective): LoadedItem {
  const source = directiveSource(directive);
  const { id, text } = directive;
  const path = `program:${id}`;
  try {
    const parsed = parseDirective(text, path);
    assertIdentity({ type: 'directive', id, path }, parsed);
    assertFaithful(id, source, parsed);
    parseDistinctHooks(parsed.rawHooks, DIRECTIVE_LAYER);
  } catch (error) {
    throw error instanceof RyeError ? naming(error, id, source) : error;
  }
  const sha256 = sha256Hex(text);
  return { type: 'directive', id, space: 'project', path, text, sha256, integrity: 'unverified' };
}

function naming(error: RyeError, id: string, { members }: DirectiveSource): RyeError {
  const { code, message, location, hint } = error;
  if (location?.line === undefined) return error;
  const prefix = `${formatLocation(location)}: `;
  const problem = message.startsWith(prefix) ? message.slice(prefix.length) : message;
  const member = members[location.line - 1] ?? 'instructions';
  return new RyeError(code, `the directive ${id}: ${member}: ${problem}`, { hint, cause: error });
}

/** Refuses values that a directive file can't express, which the parser would read as something else. */
function assertFaithful(id: string, { declaration }: DirectiveSource, parsed: Directive): void {
  const { behavior = {}, inputs = {}, hooks = [] } = declaration;
  const [misspelled] = unknownBehavior(behavior);
  if (misspelled !== undefined) throw new RyeError('usage', `the directive ${id}: ${misspelled}`);
  for (const [name, value] of Object.entries(behavior)) {
    if (value !== undefined && !isDeepStrictEqual(parsed.behavior[name], value)) {
      throw unwritable(id, `behavior.${name}`);
    }
  }
  for (const { name, values } of parsed.inputs) {
    const declared = Object.hasOwn(inputs, name) ? inputs[name] : undefined;
    const listed = isRecord(declared) && Array.isArray(declared['enum']) ? declared['enum'] : [];
    if (!isDeepStrictEqual(values, listed)) throw unwritable(id, `inputs.${name}.enum`);
  }
  const changed = hooks.findIndex(
    (hook, index) => !isDeepStrictEqual(parsed.rawHooks[index]?.value, writtenHook(hook)),
  );
  if (changed !== -1) throw unwritable(id, `hooks[${changed}]`);
}

/** The hook as a file would give it: one action is `action`, and empty parameters are absent. */
function writtenHook({ action, actions = [], ...hook }: DirectiveHook): JsonValue | undefined {
  const all = [...(action ? [action] : []), ...actions].map((one) =>
    'inject' in one
      ? { ...one, inject: one.inject.trim() }
      : { ...one, ...emptied(one, 'params'), ...emptied(one, 'data') },
  );
  const steps = all.length > 1 ? { actions: all } : { action: all[0] };
  return parseJson(JSON.stringify({ ...hook, ...steps }));
}

function emptied(action: object, name: string): object {
  const given: unknown = Reflect.get(action, name);
  return isRecord(given) && Object.keys(given).length === 0 ? { [name]: undefined } : {};
}

function unwritable(id: string, member: string): RyeError {
  return new RyeError('usage', `the directive ${id}: ${member} has a value that a file can't have`);
}
