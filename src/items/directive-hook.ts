import type { JsonObject, JsonValue } from '../core/json.ts';
import type { Problems } from './problem.ts';
import type { XmlElement } from './xml.ts';
import { childElements, textOf } from './xml.ts';
import { typedValue } from './xml-values.ts';

/** Attributes that name something: they stay text even when they look like a number or a truth value. */
const NAMES: ReadonlySet<string> = new Set([
  'id',
  'event',
  'path',
  'op',
  'primary',
  'item_type',
  'item_id',
  'position',
  'on_error',
  'control',
  'set_extends',
  'custom_type',
  'emit',
]);

const PRIMARIES: ReadonlySet<string> = new Set(['execute', 'fetch', 'sign']);
const SHORT_ACTIONS: ReadonlySet<string> = new Set(['set_extends', 'inject', 'control', 'emit']);
const ACTIONS: ReadonlySet<string> = new Set([...PRIMARIES, ...SHORT_ACTIONS, 'action', 'actions']);
const CONDITIONS: ReadonlySet<string> = new Set(['condition', 'any', 'all', 'not']);

/**
 * A `<hook>` element in the shape of the YAML form, with typed attributes: `wrap="false"` is false. What the members mean is
 * checked by the hooks room.
 */
export function readHook(element: XmlElement, problems: Problems): JsonObject {
  const members = new Map(typedAttributes(element));
  const conditions: JsonValue[] = [];
  const actions: JsonObject[] = [];
  for (const child of childElements(element)) {
    if (CONDITIONS.has(child.name)) conditions.push(readCondition(child));
    else if (ACTIONS.has(child.name)) actions.push(...readActions(child));
    else if (child.name === 'when') warnWhen(child, problems);
    else members.set(child.name, readMember(child));
  }
  const [condition] = conditions;
  if (condition !== undefined) {
    members.set('condition', conditions.length === 1 ? condition : { all: conditions });
  }
  const [action] = actions;
  if (actions.length === 1 && action !== undefined) members.set('action', action);
  if (actions.length > 1) members.set('actions', actions);
  return Object.fromEntries(members);
}

function readMember(element: XmlElement): JsonValue {
  if (element.name === 'capabilities') {
    return textOf(element).match(/[^\s,]+/g) ?? [];
  }
  return childElements(element).length === 0 ? typedValue(textOf(element)) : namedTexts(element);
}

function warnWhen({ location }: XmlElement, problems: Problems): void {
  problems.warn({
    code: 'hook_invalid',
    message: '<when> is never evaluated',
    location,
    hint: 'Write <condition path="…" op="…" value="…"/> instead.',
  });
}

function typedAttributes(element: XmlElement): [string, JsonValue][] {
  return [...element.attributes].map(([name, value]) => [
    name,
    NAMES.has(name) ? value.trim() : typedValue(value),
  ]);
}

function readCondition(element: XmlElement): JsonValue {
  const inner = childElements(element).map(readCondition);
  if (element.name === 'any' || element.name === 'all') return { [element.name]: inner };
  if (element.name === 'not')
    return { not: inner.length === 1 ? (inner[0] ?? {}) : { all: inner } };
  if (inner.length > 0) return inner.length === 1 ? (inner[0] ?? {}) : { all: inner };
  const members = new Map(typedAttributes(element));
  // A regex is text even when it looks like a number.
  const value = element.attributes.get('value');
  if (element.attributes.get('op') === 'regex' && value !== undefined) members.set('value', value);
  return Object.fromEntries(members);
}

function readActions(element: XmlElement): JsonObject[] {
  if (PRIMARIES.has(element.name)) return [readItemAction(element)];
  if (SHORT_ACTIONS.has(element.name)) return [readShortAction(element)];
  const nested = childElements(element).filter(({ name }) => ACTIONS.has(name));
  if (nested.length > 0) return nested.flatMap(readActions);
  return [withParams(element, Object.fromEntries(typedAttributes(element)))];
}

function readItemAction(element: XmlElement): JsonObject {
  return withParams(element, {
    primary: element.name,
    ...Object.fromEntries(typedAttributes(element)),
  });
}

function readShortAction(element: XmlElement): JsonObject {
  const { action, custom_type, ...rest } = Object.fromEntries(typedAttributes(element));
  const text = textOf(element);
  if (element.name === 'control') return { control: action ?? text, ...rest };
  if (element.name === 'emit') {
    return { emit: custom_type ?? text, data: namedTexts(element) };
  }
  return { [element.name]: text };
}

function withParams(element: XmlElement, members: JsonObject): JsonObject {
  const params = namedTexts(element);
  if (Object.keys(params).length > 0)
    return { ...members, ['emit' in members ? 'data' : 'params']: params };
  const text = textOf(element);
  // `<action inject="">text</action>` and the like: the text belongs to the one short form that is empty.
  const short = Object.entries(members).find(
    ([name, value]) => SHORT_ACTIONS.has(name) && value === '',
  );
  return short === undefined || text === '' ? members : { ...members, [short[0]]: text };
}

/** `<param name="k">v</param>` and `<k>v</k>` children as typed members. */
function namedTexts(element: XmlElement): JsonObject {
  return Object.fromEntries(
    childElements(element).map((child) => [
      child.attributes.get('name') ?? child.name,
      typedValue(textOf(child)),
    ]),
  );
}
