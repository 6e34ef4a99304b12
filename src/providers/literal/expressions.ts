import { isRecord, type JsonObject, type JsonValue, toText } from '../../core/json.ts';

/** What a finished step left behind. */
export interface StepResult {
  readonly text: string;
  /** The result as a value, where its text is JSON. A step of several calls has a list. */
  readonly data?: JsonValue;
}

/** What expressions can refer to. */
export interface Scope {
  readonly steps: Readonly<Record<string, StepResult>>;
  readonly inputs: JsonObject;
}

/** A reference that has no value, and the names that stand where it broke. */
export interface Unresolved {
  readonly expression: string;
  readonly available: readonly string[];
}

/** `${steps.…}` and `${inputs.…}`; anything else in braces is the text's own, such as `${HOME}` in a command. */
const REFERENCE = /\$\{\s*((?:steps|inputs)\.[^{}\s]+)\s*\}/g;

/** Names of the steps that the strings inside `value` refer to. */
export function referencedSteps(value: JsonValue): readonly string[] {
  return stringsOf(value).flatMap((text) =>
    [...text.matchAll(REFERENCE)].flatMap(([, path = '']) => {
      const [root, name] = path.split('.');
      return root === 'steps' && name !== undefined ? [name] : [];
    }),
  );
}

function stringsOf(value: JsonValue | undefined): readonly string[] {
  if (typeof value === 'string') return [value];
  if (Array.isArray(value)) return value.flatMap(stringsOf);
  return isRecord(value) ? Object.values(value).flatMap(stringsOf) : [];
}

/**
 * Replaces the references inside `value`, everywhere, once: what a reference brings in is not looked at again. A
 * string that is one reference keeps the type of its value. References without a value are added to `unresolved`
 * and stay as they are.
 */
export function resolve(value: JsonValue, scope: Scope, unresolved: Unresolved[]): JsonValue {
  if (typeof value === 'string') return resolveText(value, scope, unresolved);
  if (Array.isArray(value)) return value.map((item: JsonValue) => resolve(item, scope, unresolved));
  if (!isRecord(value)) return value;
  const entries = Object.entries(value).map(([key, member]) => [
    key,
    member === undefined ? undefined : resolve(member, scope, unresolved),
  ]);
  return Object.fromEntries(entries) as JsonObject;
}

function resolveText(text: string, scope: Scope, unresolved: Unresolved[]): JsonValue {
  const [whole] = [...text.matchAll(REFERENCE)];
  if (whole?.[0] === text.trim() && whole[1] !== undefined) {
    const found = lookUp(whole[1], scope, unresolved);
    return found === undefined ? text : found;
  }
  return text.replaceAll(REFERENCE, (match: string, path: string) => {
    const found = lookUp(path, scope, unresolved);
    return found === undefined ? match : toText(found);
  });
}

function lookUp(path: string, scope: Scope, unresolved: Unresolved[]): JsonValue | undefined {
  let at: unknown = scope;
  for (const key of path.split('.')) {
    const container: unknown = at;
    at = isContainer(container) && Object.hasOwn(container, key) ? container[key] : undefined;
    if (at === undefined) {
      unresolved.push({
        expression: `\${${path}}`,
        available: isContainer(container) ? Object.keys(container).slice(0, 12) : [],
      });
      return undefined;
    }
  }
  return at as JsonValue;
}

function isContainer(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}
