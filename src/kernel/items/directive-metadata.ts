import { itemIdProblem } from '../core/ids.ts';
import { compact, isJsonObject, type JsonObject, type JsonValue } from '../core/json.ts';
import { LIMIT_NAMES, LIMITS, type LimitName } from '../core/limits.ts';
import { didYouMean } from '../core/text.ts';
import { type DirectiveDraft, type ModelChoice, malformed, noteOrigin } from './directive-ast.ts';
import { readPermissions } from './directive-permissions.ts';
import { originOf, type Problems } from './source.ts';
import {
  childElements,
  elementToJson,
  exactValue,
  isTrue,
  textOf,
  typedValue,
  type XmlElement,
} from './xml.ts';

type Reader = (element: XmlElement, draft: DirectiveDraft) => void;

const READERS: Readonly<Record<string, Reader>> = {
  description: readText,
  category: readText,
  author: readText,
  continuation_directive: readText,
  model: readModel,
  model_class: readModel,
  limits: readLimits,
  permissions: readPermissions,
  hooks: readHooks,
  context: readContext,
  behavior: readBehavior,
};

/** Reads one child of `<metadata>` into the draft; an unknown one is a warning. */
export function readMetadata(element: XmlElement, draft: DirectiveDraft): void {
  const reader = Object.hasOwn(READERS, element.name) ? READERS[element.name] : undefined;
  if (reader !== undefined) reader(element, draft);
  else warnUnknown(draft, element, 'the directive', Object.keys(READERS));
}

function warnUnknown(
  draft: DirectiveDraft,
  element: XmlElement,
  where: string,
  known: readonly string[],
): void {
  draft.problems.warn({
    code: 'directive_malformed',
    message: `<${element.name}> is unknown in ${where} and is ignored`,
    location: element.location,
    hint: didYouMean(element.name, known),
  });
}

function readText(element: XmlElement, draft: DirectiveDraft): void {
  const text = textOf(element);
  if (draft.metadataText.has(element.name)) {
    malformed(draft, element, `duplicate <${element.name}>`);
    return;
  }
  const isId = element.name === 'continuation_directive' && text !== '';
  const problem = isId ? itemIdProblem(text) : undefined;
  if (problem !== undefined) {
    malformed(draft, element, `<${element.name}> "${text}" is not a directive id: ${problem}`);
    return;
  }
  draft.metadataText.set(element.name, text);
  noteOrigin(draft, element.name, element.location);
}

const THINKING: readonly string[] = ['off', 'minimal', 'low', 'medium', 'high'];
const MODEL_ATTRIBUTES = ['tier', 'id', 'provider', 'fallback', 'thinking'] as const;

function readModel(element: XmlElement, draft: DirectiveDraft): void {
  const choice: Record<string, string> = {};
  for (const [attribute, value] of element.attributes) {
    const name = attribute === 'fallback_id' ? 'fallback' : attribute;
    if (!MODEL_ATTRIBUTES.some((known) => known === name)) {
      draft.problems.warn({
        code: 'directive_malformed',
        message: `<${element.name}> has the unknown attribute "${attribute}", which is ignored`,
        location: element.location,
        hint: didYouMean(attribute, MODEL_ATTRIBUTES) ?? `It takes ${MODEL_ATTRIBUTES.join(', ')}.`,
      });
    } else if (value.trim() !== '') {
      choice[name] = value.trim();
      noteOrigin(draft, `model.${name}`, element.location);
    }
  }
  const { thinking } = choice;
  if (thinking !== undefined && !THINKING.includes(thinking)) {
    const message = `thinking="${thinking}" is not a thinking level`;
    malformed(draft, element, message, `Use one of ${THINKING.join(', ')}.`);
    return;
  }
  if (Object.keys(choice).length === 0) return;
  draft.model = { ...draft.model, ...(choice as ModelChoice) };
  noteOrigin(draft, 'model', element.location);
}

function readLimits(element: XmlElement, draft: DirectiveDraft): void {
  for (const [spelling, text] of element.attributes) {
    if (spelling === 'spend_currency' && text.trim().toUpperCase() === 'USD') continue;
    const name = limitName(spelling);
    if (name === undefined) {
      draft.problems.error({
        code: 'unknown_limit',
        message: `"${spelling}" is not a limit`,
        location: element.location,
        hint: [
          didYouMean(spelling, LIMIT_NAMES),
          `Limits are ${LIMIT_NAMES.join(', ')}, each also as max_….`,
        ]
          .filter(Boolean)
          .join(' '),
      });
    } else if (draft.limits.some((limit) => limit.name === name)) {
      draft.problems.error({
        code: 'invalid_limit',
        message: `the limit ${name} is declared twice`,
        location: element.location,
        hint: `Keep one of ${name} and max_${name}.`,
      });
    } else {
      addLimit(draft, element, name, text);
    }
  }
  for (const child of childElements(element)) {
    warnUnknown(draft, child, '<limits>, which takes attributes,', LIMIT_NAMES);
  }
}

/** A plain decimal. Other forms that Number() accepts, such as 0x10 and 1e3, are usually mistakes. */
const NUMERAL = /^\d{1,15}(?:\.\d{1,9})?$/;

function addLimit(draft: DirectiveDraft, element: XmlElement, name: LimitName, text: string): void {
  const value = NUMERAL.test(text.trim()) ? Number(text) : Number.NaN;
  const whole = LIMITS[name].isWhole;
  if (!Number.isFinite(value) || value < 0 || (whole && !Number.isInteger(value))) {
    draft.problems.error({
      code: 'invalid_limit',
      message: `the limit ${name}="${text}" is not a non-negative ${whole ? 'whole ' : ''}number`,
      location: element.location,
      hint: name === 'spend' ? 'spend is in USD, such as 0.50.' : undefined,
    });
    return;
  }
  draft.limits.push({ name, value, location: element.location });
  noteOrigin(draft, `limits.${name}`, element.location);
}

function limitName(spelling: string): LimitName | undefined {
  const bare = spelling.startsWith('max_') ? spelling.slice(4) : spelling;
  return LIMIT_NAMES.find((name) => name === bare);
}

function readHooks(element: XmlElement, draft: DirectiveDraft): void {
  for (const child of childElements(element)) {
    if (child.name !== 'hook') {
      warnUnknown(draft, child, '<hooks>', ['hook']);
      continue;
    }
    const value = readHook(child, draft.problems);
    draft.hooks.push({ value, origin: originOf(child.location) });
    if (typeof value['id'] === 'string') noteOrigin(draft, `hooks.${value['id']}`, child.location);
  }
}

const POSITIONS = ['system', 'before', 'after'] as const;

function readContext(element: XmlElement, draft: DirectiveDraft): void {
  for (const child of childElements(element)) {
    const position = POSITIONS.find((name) => name === child.name);
    const text = textOf(child);
    if (position === undefined && child.name !== 'suppress') {
      warnUnknown(draft, child, '<context>', [...POSITIONS, 'suppress']);
    } else if (text === '') {
      const message = `<${child.name}> in <context> is empty`;
      malformed(draft, child, message, 'It holds the id of a knowledge entry.');
    } else if (position === undefined) {
      draft.context.suppress.push(text);
      noteOrigin(draft, `context.suppress.${text}`, child.location);
    } else {
      const problem = itemIdProblem(text);
      if (problem === undefined) {
        const optional = isTrue(child.attributes.get('optional'));
        draft.context[position].push({
          id: text,
          origin: originOf(child.location),
          ...(optional ? { optional } : {}),
        });
      } else malformed(draft, child, `<${position}> "${text}" is not a knowledge id: ${problem}`);
    }
  }
}

function readBehavior(element: XmlElement, draft: DirectiveDraft): void {
  const value = elementToJson(element);
  if (!isJsonObject(value)) {
    if (value === '') return;
    malformed(
      draft,
      element,
      '<behavior> contains text instead of settings',
      'Write attributes or child elements, such as <behavior nudge="false"/>.',
    );
    return;
  }
  draft.behavior = compact({ ...draft.behavior, ...value });
  for (const name of Object.keys(value)) noteOrigin(draft, `behavior.${name}`, element.location);
}

/** Attributes that are names: they stay text even if they look like a number or a boolean. */
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
 * Converts a `<hook>` element to the shape of the YAML form with typed attributes: `wrap="false"` is false. The hooks room
 * validates the members.
 */
function readHook(element: XmlElement, problems: Problems): JsonObject {
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
  if (element.name === 'capabilities') return textOf(element).match(/[^\s,]+/g) ?? [];
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
  // A regex is text even if it looks like a number.
  const value = element.attributes.get('value');
  if (element.attributes.get('op') === 'regex' && value !== undefined) members.set('value', value);
  return Object.fromEntries(members);
}

function readActions(element: XmlElement): JsonObject[] {
  const attributes = Object.fromEntries(typedAttributes(element));
  if (PRIMARIES.has(element.name)) {
    return [withParams(element, { primary: element.name, ...attributes })];
  }
  if (SHORT_ACTIONS.has(element.name)) return [readShortAction(element)];
  const nested = childElements(element).filter(({ name }) => ACTIONS.has(name));
  if (nested.length > 0) return nested.flatMap(readActions);
  return [withParams(element, attributes)];
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

/** Converts `<param name="k">v</param>` and `<k>v</k>` children to typed members. */
function namedTexts(element: XmlElement): JsonObject {
  return Object.fromEntries(
    childElements(element).map((child) => [
      child.attributes.get('name') ?? child.name,
      exactValue(textOf(child)),
    ]),
  );
}
