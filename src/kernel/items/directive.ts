import { itemIdProblem } from '../core/ids.ts';
import { compact, type JsonValue } from '../core/json.ts';
import { type OutputDeclaration, VALUE_TYPES, type ValueType } from '../core/plan.ts';
import { didYouMean } from '../core/text.ts';
import {
  type Directive,
  DirectiveDraft,
  type InputDeclaration,
  malformed,
  noteOrigin,
  OPAQUE_ELEMENTS,
} from './directive-ast.ts';
import { readMetadata } from './directive-metadata.ts';
import {
  type FrontmatterDirective,
  readFrontmatterDirective,
  relocated,
} from './directive-yaml.ts';
import { coerce } from './inputs.ts';
import { findFence, linesBetween } from './markdown.ts';
import { mayHaveType, readSchemaElement, typeOfSchema } from './output-schema.ts';
import { readBodyProcess, readProcess } from './process.ts';
import { lostReferences } from './process-references.ts';
import {
  normalizeNewlines,
  originOf,
  Problems,
  rememberParsed,
  type SourceText,
} from './source.ts';
import { childElements, isTrue, parseXml, textOf, type XmlElement } from './xml.ts';

/**
 * Parses a directive file: a signature comment, free Markdown, the first `xml` fence with one `<directive>`, the body.
 * Throws the first error (`directive_malformed`, `xml_malformed`, `permission_malformed`, `unknown_limit`,
 * `invalid_limit`) with its location in the file. Unknown elements are only warnings.
 */
export const parseDirective = rememberParsed((text, path): Directive => {
  const { directive, problems } = readDirective(text, path);
  problems.throwIfAny();
  return directive;
});

/**
 * Parses like {@link parseDirective} but continues after errors, so that `rye validate` can report all of them. Throws
 * only if there is no directive element.
 */
export function readDirective(
  text: string,
  path: string,
): { readonly directive: Directive; readonly problems: Problems } {
  const normalized = normalizeNewlines(text);
  const lines = normalized.split('\n');
  const problems = new Problems();
  const fence = findFence(normalized, ['xml']);
  const front = normalized.includes('---') ? readFrontmatterDirective(normalized, path) : undefined;
  if (front) return readFront(front, path);
  if (fence === undefined) {
    problems.error({
      code: 'directive_malformed',
      message: 'neither front matter nor an ```xml fence with a <directive> element',
      location: { path, line: 1 },
      hint: 'Begin the file with YAML between two lines ---, or put a <directive> element between a line ```xml and a line ```.',
    });
    problems.throwIfAny();
  }
  const { content = '', line = 1, endLine = lines.length + 1, closed = true } = fence ?? {};
  if (!closed) {
    problems.error({
      code: 'directive_malformed',
      message: 'unclosed xml fence',
      location: { path, line, column: 1 },
      hint: 'Close it with a fence of the same character, at least as long as the opening one.',
    });
    problems.throwIfAny();
  }
  const root = parseXml({ path, text: content, line: line + 1, column: 1 }, OPAQUE_ELEMENTS);
  const draft = new DirectiveDraft(path, problems);
  readRoot(root, draft);
  readChildren(root, draft);
  const body = bodySource(lines, endLine, path);
  if (body.text !== '') noteOrigin(draft, 'body', { path, line: body.line });
  if (draft.steps.length === 0) readBodyProcess(body, draft);
  else reportLost(draft);
  return { directive: finish(draft, linesBetween(lines, 1, line), body.text), problems };
}

/** Reads the text that front matter means; each place is then one of the file. */
function readFront(
  { xml, locate, preamble }: FrontmatterDirective,
  path: string,
): ReturnType<typeof readDirective> {
  const { directive, problems } = readDirective(xml, path);
  const own = new Problems();
  own.addAll(relocated(problems.all, path, locate));
  const placed = relocated(directive, path, locate);
  return { directive: { ...placed, preamble }, problems: own };
}

/** Inputs that are inherited are known, and checked, once the chain is. */
function reportLost({ steps, outputs, inputs, origins, problems }: DirectiveDraft): void {
  const names = inputs.map(({ name }) => name);
  for (const lost of lostReferences({ steps, outputs, inputs: names, origins })) {
    problems.error({ code: 'directive_malformed', ...lost });
  }
}

function bodySource(lines: readonly string[], from: number, path: string): SourceText {
  const blank = lines.slice(from - 1).findIndex((line) => line.trim() !== '');
  const start = blank === -1 ? from : from + blank;
  return { path, text: linesBetween(lines, start, lines.length + 1), line: start, column: 1 };
}

function readRoot(root: XmlElement, draft: DirectiveDraft): void {
  const { problems } = draft;
  const fail = (message: string, hint?: string): void =>
    problems.error({ code: 'directive_malformed', message, location: root.location, hint });
  if (root.name !== 'directive') {
    fail(
      `the first xml fence contains <${root.name}> instead of <directive>`,
      'Put the directive into the first fence with the info string xml.',
    );
    problems.throwIfAny();
  }
  for (const [name, value] of root.attributes) {
    if (name === 'name') draft.name = value.trim();
    else if (name === 'version') draft.version = value.trim();
    else if (name === 'extends') draft.extends = value.trim();
    else
      fail(
        `<directive> has the unknown attribute "${name}"`,
        'It takes name, version and extends.',
      );
    noteOrigin(draft, name, root.location);
  }
  if (draft.name === '') fail('<directive> has no name', 'Add name="…", equal to the file name.');
  if (draft.extends !== undefined) {
    const problem = itemIdProblem(draft.extends);
    if (problem !== undefined) fail(`extends="${draft.extends}" is not a directive id: ${problem}`);
  }
}

const ACTIONS: ReadonlySet<string> = new Set(['execute', 'fetch', 'sign']);

function readChildren(root: XmlElement, draft: DirectiveDraft): void {
  for (const child of childElements(root)) {
    if (child.name === 'inputs' || child.name === 'outputs') readDeclarations(child, draft);
    else if (child.name === 'process') readProcess(child, draft);
    else if (!ACTIONS.has(child.name) && !OPAQUE_ELEMENTS.has(child.name)) {
      const members = child.name === 'metadata' ? childElements(child) : [child];
      for (const member of members) readMetadata(member, draft);
    }
  }
  // Actions outside a process are the short form of a process without named steps.
  const loose = childElements(root).filter(({ name }) => ACTIONS.has(name));
  if (draft.steps.length === 0 && loose.length > 0)
    readProcess({ ...root, children: loose }, draft);
}

function finish(draft: DirectiveDraft, preamble: string, body: string): Directive {
  const { problems, permissions, hooks, version, limits, metadataText, ...rest } = draft;
  return compact({
    ...rest,
    version: version === '' ? '0.0.0' : version,
    description: metadataText.get('description') ?? '',
    category: metadataText.get('category'),
    author: metadataText.get('author') ?? '',
    continuationDirective: metadataText.get('continuation_directive') || undefined,
    rawLimits: limits,
    rawHooks: hooks,
    permissions: { ...permissions, xml: permissions.xml.join('\n') },
    body,
    preamble,
    warnings: problems.warnings,
  });
}

/** Names of the value types in other languages. */
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

/** Reads `<inputs>` or `<outputs>`; warns about children other than `<input>` and `<output>`. */
function readDeclarations(element: XmlElement, draft: DirectiveDraft): void {
  const tag = element.name === 'inputs' ? 'input' : 'output';
  for (const child of childElements(element)) {
    if (child.name !== tag) {
      draft.problems.warn({
        code: 'directive_malformed',
        message: `<${child.name}> in <${element.name}> is ignored`,
        location: child.location,
        hint: `Use <${tag}> elements.`,
      });
    } else if (tag === 'input') {
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
    malformed(draft, element, `the enum input "${name}" has no values`, 'Add enum="a, b, c".');
  }
  const declaration: InputDeclaration = compact({
    name,
    type,
    required: isTrue(attributes.get('required')),
    default: readDefault(element, draft, type, values),
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
  const written = readSchemaElement(element, draft);
  const { schema } = written;
  const type = readType(element, draft, schema ? typeOfSchema(schema) : 'string');
  if (schema && element.attributes.has('type') && !mayHaveType(schema, type)) {
    const message = `the output "${name}" has the type ${type}, and its schema another one`;
    malformed(draft, element, message, 'Omit type="…": the schema decides.');
  }
  const declaration: OutputDeclaration = compact({
    name,
    type,
    required: isTrue(element.attributes.get('required')),
    description: textOf(element),
    from: element.attributes.get('from'),
    ...written,
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
  if (name === '') malformed(draft, element, `<${element.name}> has no name`);
  else if (!NAME.test(name)) {
    malformed(
      draft,
      element,
      `"${name}" is not a name`,
      'Names have letters, digits, _ and -, and start with a letter or _.',
    );
  } else if (others.some((other) => other.name === name)) {
    malformed(draft, element, `the ${element.name} "${name}" is declared twice`);
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
  const suggestion = didYouMean(written, VALUE_TYPES);
  malformed(
    draft,
    element,
    `unknown type "${written}"`,
    suggestion ?? `Types are ${VALUE_TYPES.join(', ')}.`,
  );
  return fallback;
}

function readDefault(
  element: XmlElement,
  draft: DirectiveDraft,
  type: ValueType,
  values: readonly string[],
): JsonValue | undefined {
  const text = element.attributes.get('default');
  if (text === undefined) return undefined;
  const result = coerce(text, type, values);
  if ('value' in result) return result.value;
  malformed(
    draft,
    element,
    `the default "${text}" ${result.problem}`,
    `The declared type is ${type}.`,
  );
  return undefined;
}

function splitValues(list: string): string[] {
  const separator = list.includes('|') ? '|' : ',';
  return list
    .split(separator)
    .map((value) => value.trim())
    .filter((value) => value !== '');
}
