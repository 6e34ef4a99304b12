import {
  capabilityProblem,
  RISKS,
  type Risk,
  toolProblem,
  VERBS,
  type Verb,
} from '../core/capability.ts';
import { ITEM_TYPES } from '../core/ids.ts';
import { compact } from '../core/json.ts';
import { didYouMean } from '../core/text.ts';
import { type DirectiveDraft, noteOrigin } from './directive-ast.ts';
import { originOf } from './source.ts';
import { childElements, isTrue, textOf, type XmlElement } from './xml.ts';

const TAGS = [...VERBS, 'acknowledge'] as const;

/**
 * Reads `<permissions>` into capability patterns. Forms: the text `*`; `<verb>*</verb>`; `<verb>type.pattern</verb>`;
 * `<verb><type>pattern</type></verb>`. All can be repeated and mixed, also `*` with `<acknowledge>`. Slashes in patterns
 * become dots. `optional="true"` lets the directive run without the item, `ask="true"` lets a person decide about each
 * call. Anything else is a `permission_malformed` error: an unclear permission grants nothing.
 */
export function readPermissions(element: XmlElement, draft: DirectiveDraft): void {
  const { permissions } = draft;
  if (permissions.xml.length === 0) permissions.origin = originOf(element.location);
  permissions.xml.push(element.raw);
  if (isTrue(element.attributes.get('ceiling'))) permissions.ceiling = true;
  for (const name of element.attributes.keys()) {
    if (name !== 'ceiling')
      refuse(draft, element, `<permissions> has the unknown attribute "${name}"`);
  }
  const text = textOf(element);
  if (text === '*') grant(draft, element, 'rye.*');
  else if (text !== '') {
    refuse(
      draft,
      element,
      `unexpected text "${text}" in <permissions>`,
      'Write only * or permission elements.',
    );
  }
  for (const child of childElements(element)) readGrant(child, draft);
  noteOrigin(draft, 'capabilities', element.location);
}

function readGrant(element: XmlElement, draft: DirectiveDraft): void {
  if (element.name === 'acknowledge') {
    readAcknowledgement(element, draft);
    return;
  }
  const verb = VERBS.find((name) => name === element.name);
  if (verb === undefined) {
    const suggestion = didYouMean(element.name, TAGS);
    refuse(
      draft,
      element,
      `<${element.name}> is unknown inside <permissions>`,
      suggestion ?? `Valid elements are ${TAGS.join(', ')}; searching and loading are both fetch.`,
    );
    return;
  }
  const text = textOf(element);
  const children = childElements(element);
  if (text === '' && children.length === 0) {
    refuse(draft, element, `<${verb}> is empty`, 'Write * or name an item type inside it.');
  }
  // beside typed entries, the text of an asking element is its reason
  const isReason = children.length > 0 && askOf(element) !== undefined;
  if (text !== '' && !isReason) grant(draft, element, `rye.${verb}.${pattern(text)}`);
  const ask = isReason ? askOf(element, text) : undefined;
  for (const child of children) readTypedGrant(child, verb, draft, ask);
}

/** Returns why an entry asks; undefined if it does not. `ask` is `true` or the reason itself. */
function askOf({ attributes }: XmlElement, text = ''): string | undefined {
  const ask = attributes.get('ask')?.trim();
  if (ask === undefined || ask === 'false') return undefined;
  const reason = attributes.get('reason')?.trim() ?? text;
  return reason === '' && ask !== 'true' ? ask : reason;
}

function readTypedGrant(
  element: XmlElement,
  verb: Verb,
  draft: DirectiveDraft,
  around?: string,
): void {
  if (!ITEM_TYPES.some((type) => type === element.name)) {
    refuse(
      draft,
      element,
      `<${element.name}> inside <${verb}> is not an item type`,
      didYouMean(element.name, ITEM_TYPES) ?? `Item types are ${ITEM_TYPES.join(', ')}.`,
    );
    return;
  }
  const text = textOf(element);
  if (text === '') {
    refuse(
      draft,
      element,
      `<${element.name}> inside <${verb}> is empty`,
      'Write an id or a pattern such as rye/file-system/*.',
    );
    return;
  }
  warnForeign(draft, element);
  grant(draft, element, `rye.${verb}.${element.name}.${pattern(text)}`, around);
}

/** Warns of elements and attributes that a grant does not have: they are no part of it. */
function warnForeign(
  { problems }: DirectiveDraft,
  element: XmlElement,
  known: readonly string[] = ['optional', 'ask', 'reason'],
): void {
  const warn = (what: string, hint: string, { location }: XmlElement): void =>
    problems.warn({
      code: 'permission_malformed',
      message: `${what} has no effect: it grants nothing and is ignored`,
      location,
      hint,
    });
  for (const child of childElements(element)) {
    const hint = `Remove <${child.name}>, or move it to where it belongs.`;
    warn(`<${child.name}> inside <${element.name}>`, hint, child);
  }
  for (const name of element.attributes.keys()) {
    if (known.includes(name)) continue;
    const hint = didYouMean(name, known) ?? `Valid attributes are ${known.join(', ')}.`;
    warn(`the attribute "${name}" of <${element.name}>`, hint, element);
  }
}

function pattern(text: string): string {
  return text.replaceAll('/', '.');
}

/** Grants a capability; `around` is the reason of the element around this one, if that asks. */
function grant(
  draft: DirectiveDraft,
  element: XmlElement,
  capability: string,
  around?: string,
): void {
  const problem = capabilityProblem(capability);
  if (problem !== undefined) {
    refuse(draft, element, `"${capability}" is not a capability: ${problem}`);
    return;
  }
  const { capabilities, optional } = draft.permissions;
  // an entry that requires it counts, also beside an optional one
  if (!isTrue(element.attributes.get('optional'))) {
    draft.permissions.optional = optional.filter((one) => one !== capability);
  } else if (!capabilities.includes(capability)) optional.push(capability);
  if (!capabilities.includes(capability)) capabilities.push(capability);
  const reason = askOf(element) ?? around;
  if (reason !== undefined) {
    draft.permissions.asks.push({ capability, source: `directive ${capability}`, reason });
  }
  noteOrigin(draft, `capabilities.${capability}`, element.location);
}

function readAcknowledgement(element: XmlElement, draft: DirectiveDraft): void {
  const requested = element.attributes.get('risk') ?? '';
  const risk: Risk | undefined = RISKS.find((name) => name === requested);
  if (risk === undefined) {
    const message =
      requested === '' ? '<acknowledge> has no risk' : `risk="${requested}" is not a risk`;
    refuse(
      draft,
      element,
      message,
      didYouMean(requested, RISKS) ?? `Risks are ${RISKS.join(', ')}.`,
    );
    return;
  }
  warnForeign(draft, element, ['risk', 'tool']);
  const tool = element.attributes.get('tool');
  const problem = tool === undefined ? undefined : toolProblem(tool);
  if (problem !== undefined) {
    refuse(draft, element, `tool="${tool}" is no tool and no pattern of tools: ${problem}`);
    return;
  }
  const reason = textOf(element);
  const origin = originOf(element.location);
  draft.permissions.acknowledgements.push(compact({ risk, tool, reason, origin }));
}

function refuse(draft: DirectiveDraft, element: XmlElement, message: string, hint?: string): void {
  draft.problems.error({ code: 'permission_malformed', message, location: element.location, hint });
}
