import type { JsonValue } from '../core/json.ts';
import { compact } from '../core/json.ts';
import type { OutputDeclaration, ValueType } from '../core/plan.ts';
import { VALUE_TYPES } from '../core/plan.ts';
import { didYouMean } from '../core/text.ts';
import { coerce } from './coerce.ts';
import type { InputDeclaration } from './directive-ast.ts';
import type { DirectiveDraft } from './directive-draft.ts';
import { noteOrigin } from './directive-draft.ts';
import { originOf } from './source-text.ts';
import type { XmlElement } from './xml.ts';
import { childElements, textOf } from './xml.ts';
import { isTrue } from './xml-values.ts';

/** Familiar names of other languages for the value types. */
const TYPE_ALIASES: Readonly<Record<string, ValueType>> = {
  str: 'string',
  text: 'string',
  path: 'string',
  int: 'integer',
  float: 'number',
  bool: 'boolean',
  list: 'array',
  dict: 'object',
  json: 'object',
};

const NAME = /^[A-Za-z_][\w-]*$/;

/** Reads `<inputs>` or `<outputs>`; other children than `<input>` or `<output>` are warnings. */
export function readDeclarations(element: XmlElement, draft: DirectiveDraft): void {
  const wanted = element.name === 'inputs' ? 'input' : 'output';
  for (const child of childElements(element)) {
    if (child.name !== wanted) {
      draft.problems.warn({
        code: 'directive_malformed',
        message: `<${child.name}> in <${element.name}> is ignored`,
        location: child.location,
        hint: `<${element.name}> holds <${wanted}> elements.`,
      });
    } else if (wanted === 'input') {
      readInput(child, draft);
    } else {
      readOutput(child, draft);
    }
  }
}

function readInput(element: XmlElement, draft: DirectiveDraft): void {
  const name = readName(element, draft, draft.inputs);
  if (name === undefined) return;
  const { attributes } = element;
  const list = attributes.get('enum') ?? attributes.get('values');
  const type = readType(element, draft, list === undefined ? 'string' : 'enum');
  const values = splitValues(list ?? '');
  if (type === 'enum' && values.length === 0) {
    fail(element, draft, `the enum input "${name}" has no values`, 'Add enum="a, b, c".');
  }
  const declaration: InputDeclaration = compact({
    name,
    type,
    required: isTrue(attributes.get('required')),
    default: readDefault(element, draft, { type, values }),
    values,
    secret: isTrue(attributes.get('secret')),
    description: textOf(element),
    origin: originOf(element.location),
  });
  draft.inputs.push(declaration);
  noteOrigin(draft, `inputs.${name}`, element.location);
}

function readOutput(element: XmlElement, draft: DirectiveDraft): void {
  const name = readName(element, draft, draft.outputs);
  if (name === undefined) return;
  const declaration: OutputDeclaration = compact({
    name,
    type: readType(element, draft, 'string'),
    required: isTrue(element.attributes.get('required')),
    description: textOf(element),
    from: element.attributes.get('from'),
  });
  draft.outputs.push(declaration);
  noteOrigin(draft, `outputs.${name}`, element.location);
}

function readName(
  element: XmlElement,
  draft: DirectiveDraft,
  others: readonly { readonly name: string }[],
): string | undefined {
  const name = (element.attributes.get('name') ?? '').trim();
  if (name === '') fail(element, draft, `<${element.name}> has no name`);
  else if (!NAME.test(name)) {
    fail(
      element,
      draft,
      `"${name}" is not a name`,
      'Names have letters, digits, _ and -, and start with a letter or _.',
    );
  } else if (others.some((other) => other.name === name)) {
    fail(element, draft, `the ${element.name} "${name}" is declared twice`);
  } else {
    return name;
  }
  return undefined;
}

function readType(element: XmlElement, draft: DirectiveDraft, fallback: ValueType): ValueType {
  const written = (element.attributes.get('type') ?? '').trim().toLowerCase();
  if (written === '') return fallback;
  const type = VALUE_TYPES.find((known) => known === written) ?? TYPE_ALIASES[written];
  if (type !== undefined) return type;
  const near = didYouMean(written, VALUE_TYPES);
  fail(
    element,
    draft,
    `type="${written}" is not a type`,
    near ?? `Types are ${VALUE_TYPES.join(', ')}.`,
  );
  return fallback;
}

function readDefault(
  element: XmlElement,
  draft: DirectiveDraft,
  { type, values }: { readonly type: ValueType; readonly values: readonly string[] },
): JsonValue | undefined {
  const text = element.attributes.get('default');
  if (text === undefined) return undefined;
  const result = coerce(text, type, values);
  if ('value' in result) return result.value;
  fail(element, draft, `the default "${text}" ${result.problem}`, `The declared type is ${type}.`);
  return undefined;
}

function splitValues(list: string): string[] {
  const separator = list.includes('|') ? '|' : ',';
  return list
    .split(separator)
    .map((value) => value.trim())
    .filter((value) => value !== '');
}

function fail(element: XmlElement, draft: DirectiveDraft, message: string, hint?: string): void {
  draft.problems.error({ code: 'directive_malformed', message, location: element.location, hint });
}
