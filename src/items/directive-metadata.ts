import { itemIdProblem } from '../core/ids.ts';
import { compact, isJsonObject } from '../core/json.ts';
import type { LimitName } from '../core/limits.ts';
import { LIMIT_NAMES } from '../core/limits.ts';
import { didYouMean } from '../core/text.ts';
import type { ModelChoice } from './directive-ast.ts';
import type { DirectiveDraft } from './directive-draft.ts';
import { noteOrigin } from './directive-draft.ts';
import { readHook } from './directive-hook.ts';
import { readPermissions } from './directive-permissions.ts';
import { originOf } from './source-text.ts';
import type { XmlElement } from './xml.ts';
import { childElements, textOf } from './xml.ts';
import { elementToJson } from './xml-values.ts';

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
  if (reader !== undefined) {
    reader(element, draft);
    return;
  }
  warnUnknown(element, 'the directive', { draft, known: Object.keys(READERS) });
}

function warnUnknown(
  element: XmlElement,
  where: string,
  { draft, known }: { readonly draft: DirectiveDraft; readonly known: readonly string[] },
): void {
  draft.problems.warn({
    code: 'directive_malformed',
    message: `<${element.name}> is not known in ${where} and is ignored`,
    location: element.location,
    hint: didYouMean(element.name, known),
  });
}

function readText(element: XmlElement, draft: DirectiveDraft): void {
  const text = textOf(element);
  if (draft.metadataText.has(element.name)) {
    draft.problems.error({
      code: 'directive_malformed',
      message: `<${element.name}> stands twice`,
      location: element.location,
    });
    return;
  }
  if (element.name === 'continuation_directive' && text !== '') {
    const problem = itemIdProblem(text);
    if (problem !== undefined) {
      draft.problems.error({
        code: 'directive_malformed',
        message: `<continuation_directive> "${text}" is not a directive id: ${problem}`,
        location: element.location,
      });
      return;
    }
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
    draft.problems.error({
      code: 'directive_malformed',
      message: `thinking="${thinking}" is not a thinking level`,
      location: element.location,
      hint: `Use one of ${THINKING.join(', ')}.`,
    });
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
        hint: compactHint(
          didYouMean(spelling, LIMIT_NAMES),
          `Limits are ${LIMIT_NAMES.join(', ')}, each also as max_….`,
        ),
      });
    } else if (draft.limits.some((limit) => limit.name === name)) {
      draft.problems.error({
        code: 'invalid_limit',
        message: `the limit ${name} is declared twice`,
        location: element.location,
        hint: `Keep one of ${name} and max_${name}.`,
      });
    } else {
      addLimit(element, draft, { name, text });
    }
  }
  for (const child of childElements(element)) {
    warnUnknown(child, '<limits>, which takes attributes,', { draft, known: LIMIT_NAMES });
  }
}

/** Plain decimal: what Number() reads beside it, such as 0x10 and 1e3, is more often a slip than meant. */
const NUMERAL = /^\d{1,15}(?:\.\d{1,9})?$/;

function addLimit(
  element: XmlElement,
  draft: DirectiveDraft,
  { name, text }: { readonly name: LimitName; readonly text: string },
): void {
  const value = NUMERAL.test(text.trim()) ? Number(text) : Number.NaN;
  const whole = name !== 'spend' && name !== 'duration_seconds';
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

function compactHint(...parts: readonly (string | undefined)[]): string {
  return parts.filter((part) => part !== undefined).join(' ');
}

function readHooks(element: XmlElement, draft: DirectiveDraft): void {
  for (const child of childElements(element)) {
    if (child.name !== 'hook') {
      warnUnknown(child, '<hooks>', { draft, known: ['hook'] });
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
      warnUnknown(child, '<context>', { draft, known: [...POSITIONS, 'suppress'] });
    } else if (text === '') {
      draft.problems.error({
        code: 'directive_malformed',
        message: `<${child.name}> in <context> is empty`,
        location: child.location,
        hint: 'It holds the id of a knowledge entry.',
      });
    } else if (position === undefined) {
      draft.context.suppress.push(text);
      noteOrigin(draft, `context.suppress.${text}`, child.location);
    } else {
      addContextRef(child, draft, { position, id: text });
    }
  }
}

function addContextRef(
  element: XmlElement,
  draft: DirectiveDraft,
  { position, id }: { readonly position: (typeof POSITIONS)[number]; readonly id: string },
): void {
  const problem = itemIdProblem(id);
  if (problem !== undefined) {
    draft.problems.error({
      code: 'directive_malformed',
      message: `<${position}> "${id}" is not a knowledge id: ${problem}`,
      location: element.location,
    });
    return;
  }
  draft.context[position].push({ id, origin: originOf(element.location) });
}

function readBehavior(element: XmlElement, draft: DirectiveDraft): void {
  const value = elementToJson(element);
  if (!isJsonObject(value)) {
    if (value === '') return;
    draft.problems.error({
      code: 'directive_malformed',
      message: '<behavior> holds text where settings belong',
      location: element.location,
      hint: 'Write attributes or child elements, such as <behavior nudge="false"/>.',
    });
    return;
  }
  draft.behavior = compact({ ...draft.behavior, ...value });
  for (const name of Object.keys(value)) noteOrigin(draft, `behavior.${name}`, element.location);
}
