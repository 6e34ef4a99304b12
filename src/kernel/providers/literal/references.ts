import { isRecord, type JsonObject, type JsonValue, toText } from '../../core/json.ts';
import { mapTexts, referencePattern } from '../../core/process-values.ts';

/** The result of a finished step. */
export interface StepResult {
  readonly text: string;
  /** The result as a value, where its text is JSON. A step of several calls, or in a `<foreach>`, has a list. */
  readonly data?: JsonValue;
  /** In a `<foreach>`: one result for each item, in their order; null for one that failed. */
  readonly results?: JsonValue;
  /** In a `<foreach>`: `index`, `item` and `message` of each item that failed. */
  readonly errors?: JsonValue;
}

/** The values that expressions can refer to. */
export interface Scope {
  readonly steps: Readonly<Record<string, StepResult>>;
  readonly inputs: JsonObject;
  /** Items and indexes of the `<foreach>` elements around, by name. */
  readonly locals: JsonObject;
  /** Values of the references of the plan, by reference as written. */
  readonly values: JsonObject;
}

/** A reference that has no value, and the names that exist at the place where it broke. */
export interface Unresolved {
  readonly expression: string;
  readonly available: readonly string[];
}

/** `${steps.…}` and `${inputs.…}`; anything else in braces is the text's own, such as `${HOME}` in a command. */
const REFERENCE = /\$\{\s*((?:steps|inputs)\.[^{}\s]+)\s*\}/g;

/** {@link REFERENCE}, the names of the items around, and before both the references that the plan has values for. */
function referencesOf({ locals, values }: Pick<Scope, 'locals' | 'values'>): RegExp {
  const planned = referencePattern(values);
  const names = Object.keys(locals);
  const dynamic =
    names.length === 0
      ? REFERENCE.source
      : String.raw`\$\{\s*((?:steps|inputs)\.[^{}\s]+|(?:${names.join('|')})(?:[.\[][^{}\s]*)?)\s*\}`;
  return new RegExp(planned === undefined ? dynamic : `${planned}|${dynamic}`, 'g');
}

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
  const pattern = referencesOf(scope);
  return mapTexts(value, (text) => resolveText(text, { scope, pattern, unresolved }));
}

interface Resolving {
  readonly scope: Scope;
  readonly pattern: RegExp;
  readonly unresolved: Unresolved[];
}

function resolveText(text: string, { scope, pattern, unresolved }: Resolving): JsonValue {
  const { values } = scope;
  if (Object.hasOwn(values, text)) return values[text] ?? null;
  const [whole] = [...text.matchAll(pattern)];
  if (whole?.[0] === text.trim() && whole[1] !== undefined) {
    const found = lookUp(whole[1], scope, unresolved);
    return found === undefined ? text : found;
  }
  return text.replaceAll(pattern, (match: string, path: string | undefined) => {
    const found = path === undefined ? values[match] : lookUp(path, scope, unresolved);
    return found === undefined ? match : toText(found);
  });
}

/** Returns the object whose members the paths of references and conditions begin with. */
export function contextOf({ steps, inputs, locals }: Scope): JsonObject {
  return { ...locals, steps: steps as unknown as JsonObject, inputs };
}

function lookUp(path: string, scope: Scope, unresolved: Unresolved[]): JsonValue | undefined {
  let at: unknown = contextOf(scope);
  for (const key of path.replaceAll(/\[(\d+)\]/g, '.$1').split('.')) {
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
