import { VERBS, type Verb } from '../core/capability.ts';
import type { SourceLocation } from '../core/errors.ts';
import { ITEM_TYPES, itemIdProblem } from '../core/ids.ts';
import { ISOLATION_RESULTS, ISOLATIONS } from '../core/isolation.ts';
import { compact, isJsonObject, type JsonObject, type JsonValue } from '../core/json.ts';
import type { ProcessBlock, ProcessCall, ProcessStep } from '../core/plan.ts';
import { didYouMean } from '../core/text.ts';
import { DirectiveDraft, malformed, noteOrigin, OPAQUE_ELEMENTS } from './directive-ast.ts';
import { coerce } from './inputs.ts';
import { findCalls, findHeadings, type Heading, type WrittenCall } from './markdown.ts';
import { negatedBlock, readBlock } from './process-blocks.ts';
import { Locator, originOf, Problems, problemOf, type SourceText } from './source.ts';
import { childElements, isTrue, parseXml, textOf, type XmlElement, type XmlNode } from './xml.ts';

/** Reads the `<step>` elements of `<process>` in order. An action outside a step becomes a separate step. */
export function readProcess(element: XmlElement, draft: DirectiveDraft): void {
  if (element.name === 'process') noteOrigin(draft, 'process', element.location);
  readNodes(childElements(element), draft, []);
}

function readNodes(
  children: readonly XmlElement[],
  draft: DirectiveDraft,
  within: readonly ProcessBlock[],
): void {
  for (const [at, child] of children.entries()) {
    if (BLOCKS.has(child.name)) readInside(child, draft, { within, before: children[at - 1] });
    else readStep(child, draft, within);
  }
}

const BLOCKS: ReadonlySet<string> = new Set(['foreach', 'if', 'else']);

interface Surroundings {
  readonly within: readonly ProcessBlock[];
  /** The element before it. */
  readonly before: XmlElement | undefined;
}

/** Reads the steps in `<foreach>`, `<if>` or `<else>`. */
function readInside(
  element: XmlElement,
  draft: DirectiveDraft,
  { within, before }: Surroundings,
): void {
  const [block] = readBlock(element, draft, before) ?? [];
  if (block === undefined) return;
  const count = draft.steps.length;
  const isIf = element.name === 'if';
  const children = childElements(element);
  const own = isIf ? children.filter(({ name }) => name !== 'else') : children;
  readNodes(own, draft, [...within, block]);
  if (draft.steps.length === count && !isIf) {
    malformed(draft, element, `<${element.name}> has no steps`);
  }
  const otherwise = isIf ? children.find(({ name }) => name === 'else') : undefined;
  if (otherwise === undefined || block.kind !== 'if') return;
  const negated = negatedBlock(block, draft.steps.length, originOf(otherwise.location));
  readNodes(childElements(otherwise), draft, [...within, negated]);
}

function readStep(child: XmlElement, draft: DirectiveDraft, within: readonly ProcessBlock[]): void {
  const isStep = child.name === 'step';
  const calls = isStep
    ? collectCalls(child.children, draft.problems)
    : collectCalls([child], draft.problems);
  if (!isStep && calls.length === 0) return;
  const name = (isStep ? child.attributes.get('name')?.trim() : undefined) ?? '';
  addStep(draft, child.location, {
    name: name === '' ? `step_${draft.steps.length + 1}` : name,
    description: isStep ? stepDescription(child) : '',
    calls: isStep
      ? calls.map((call) => labeled(isolated(call, child, draft.problems), child))
      : calls,
    ...(within.length === 0 ? {} : { within }),
  });
}

/** Gives the label of a step to a directive that it starts. */
function labeled(call: ProcessCall, step: XmlElement): ProcessCall {
  const label = step.attributes.get('label');
  const isChild = call.primary === 'execute' && call.item_type === 'directive';
  return label === undefined || !isChild ? call : { ...call, options: { label, ...call.options } };
}

/** Gives the isolation of a step to a directive that it starts. */
function isolated(call: ProcessCall, step: XmlElement, problems: Problems): ProcessCall {
  const isolation = step.attributes.get('isolation');
  if (isolation === undefined) return call;
  const result = step.attributes.get('isolation_result');
  const options = { ...compact({ isolation, isolation_result: result }), ...call.options };
  const problem = isolationProblem(call, options);
  if (problem === undefined) return { ...call, options };
  problems.error({ code: 'directive_malformed', message: problem, location: step.location });
  return call;
}

/** Returns why a call can't be isolated as its options ask; undefined if it can. */
function isolationProblem(
  { primary, item_type: type, item_id: id }: ProcessCall,
  { isolation, isolation_result: result }: JsonObject = {},
): string | undefined {
  if (isolation === undefined && result === undefined) return undefined;
  if (primary !== 'execute' || type !== 'directive') {
    return `only a directive can be isolated, not the ${type} ${id}`;
  }
  if (!ISOLATIONS.some((known) => known === isolation)) {
    return `unknown isolation ${JSON.stringify(isolation ?? '')}: the only one is ${ISOLATIONS.join()}`;
  }
  if (result === undefined || ISOLATION_RESULTS.some((known) => known === result)) return undefined;
  return `unknown isolation_result ${JSON.stringify(result)}: use ${ISOLATION_RESULTS.join(' or ')}`;
}

function stepDescription(step: XmlElement): string {
  const [described] = childElements(step, 'description');
  return step.attributes.get('description') ?? textOf(described ?? step);
}

function addStep(
  draft: DirectiveDraft,
  location: SourceLocation,
  step: Omit<ProcessStep, 'origin'>,
): void {
  if (draft.steps.some(({ name }) => name === step.name)) {
    draft.problems.error({
      code: 'directive_malformed',
      message: `duplicate step "${step.name}"`,
      location,
      hint: 'Give each step a unique name; results are available as ${steps.<name>.…}.',
    });
    return;
  }
  draft.steps.push({ ...step, origin: originOf(location) });
}

/** Returns the action elements and the calls in code spans below `nodes`, in document order. */
function collectCalls(nodes: readonly XmlNode[], problems: Problems): ProcessCall[] {
  return nodes.flatMap((node) => {
    if (node.kind === 'text') {
      return node.verbatim ? [] : callsInText(node.text, node.location, problems);
    }
    const primary = VERBS.find((verb) => verb === node.name);
    if (primary !== undefined) return readAction(node, primary, problems) ?? [];
    return OPAQUE_ELEMENTS.has(node.name) ? [] : collectCalls(node.children, problems);
  });
}

function callsInText(text: string, location: SourceLocation, problems: Problems): ProcessCall[] {
  const { calls, unreadable } = findCalls(text);
  for (const { message } of unreadable) warnUnreadable(problems, message, location);
  return calls.flatMap(({ primary, args }) => toCall(primary, args, location, problems) ?? []);
}

function warnUnreadable(problems: Problems, message: string, location: SourceLocation): void {
  problems.warn({
    code: 'directive_malformed',
    message: `unreadable call in code: ${message}`,
    location,
    hint: 'Write `rye_execute(item_type="tool", item_id="…", parameters={…})` with JSON values.',
  });
}

function readAction(
  element: XmlElement,
  primary: Verb,
  problems: Problems,
): ProcessCall | undefined {
  const { item_type, item_id, async, isolation, isolation_result, ...others } = Object.fromEntries(
    element.attributes,
  );
  const params = new Map<string, JsonValue>(Object.entries(others));
  for (const child of childElements(element)) {
    if (child.name === 'params' || child.name === 'parameters') {
      for (const inner of childElements(child)) readParam(inner, params, problems);
    } else {
      readParam(child, params, problems);
    }
  }
  const args = compact({
    item_type,
    item_id,
    // an option of the call, not a parameter of the item
    async: async === undefined ? undefined : isTrue(async),
    isolation,
    isolation_result,
    parameters: Object.fromEntries(params),
  });
  return toCall(primary, args, element.location, problems);
}

function readParam(element: XmlElement, params: Map<string, JsonValue>, problems: Problems): void {
  const name = element.attributes.get('name') ?? (element.name === 'param' ? '' : element.name);
  const written = element.attributes.get('type') ?? 'string';
  const type = (['string', 'integer', 'number', 'boolean', 'array', 'object'] as const).find(
    (known) => known === written,
  );
  const text = element.attributes.get('value') ?? textOf(element);
  // A reference takes the type of its target.
  const value = /^(?:\{input:[^}]*\}|\$\{[^}]*\})$/.test(text)
    ? { value: text }
    : coerce(text, type ?? 'string');
  if (name === '' || type === undefined || 'problem' in value) {
    const why =
      name === ''
        ? 'has no name'
        : 'problem' in value
          ? value.problem
          : `has the unknown type "${written}"`;
    problems.error({
      code: 'directive_malformed',
      message: `the param ${JSON.stringify(name === '' ? text : name)} ${why}`,
      location: element.location,
    });
    return;
  }
  params.set(name, value.value);
}

/** Reads a call; reports why it can't be one. */
function toCall(
  primary: Verb,
  args: JsonObject,
  location: SourceLocation,
  problems: Problems,
): ProcessCall | undefined {
  const call = callOf(primary, args, location, problems);
  const message = call && isolationProblem(call, call.options);
  if (message === undefined) return call;
  problems.error({ code: 'directive_malformed', message, location });
  return undefined;
}

function callOf(
  primary: Verb,
  args: JsonObject,
  location: SourceLocation,
  problems: Problems,
): ProcessCall | undefined {
  const { item_type: writtenType, item_id: writtenId, parameters, params, ...options } = args;
  const fail = (message: string, hint?: string): undefined => {
    problems.error({ code: 'directive_malformed', message, location, hint });
    return undefined;
  };
  const itemType = ITEM_TYPES.find((type) => type === writtenType);
  if (itemType === undefined) {
    return typeof writtenType === 'string'
      ? fail(
          `${primary} names the unknown item type "${writtenType}"`,
          didYouMean(writtenType, ITEM_TYPES),
        )
      : fail(`${primary} has no item_type`, `Item types are ${ITEM_TYPES.join(', ')}.`);
  }
  const id = typeof writtenId === 'string' ? writtenId.trim() : '';
  // A fetch without an id is a query.
  if (id === '' && primary !== 'fetch') return fail(`${primary} has no item_id`);
  const problem = id === '' || id.includes('{') ? undefined : itemIdProblem(id);
  if (problem !== undefined)
    return fail(`${primary} names "${id}", which is not an item id: ${problem}`);
  const values = parameters ?? params ?? {};
  if (!isJsonObject(values)) return fail(`the parameters of ${primary} ${id} are not an object`);
  const merged = primary === 'execute' ? values : { ...options, ...values };
  const rest = primary === 'execute' && Object.keys(options).length > 0 ? { options } : {};
  return { primary, item_type: itemType, item_id: id, params: merged, ...rest };
}

/**
 * Finds the steps in a directive's body: a `<process>` element, else headings with calls in code below them, else
 * calls in code alone. The body is prose for the model, so an unreadable call is only a warning.
 */
export function readBodyProcess(body: SourceText, draft: DirectiveDraft): void {
  const problems = new Problems();
  const lenient = Object.assign(new DirectiveDraft(draft.path, problems), draft, { problems });
  const element = findProcess(body);
  if (element === undefined || !readProcessElement(element, lenient))
    readWrittenSteps(body, lenient);
  draft.problems.addAll(problems.all.map((problem) => ({ ...problem, severity: 'warning' })));
}

/** Returns the text from the first line that starts with `<process` to the next `</process>`. */
function findProcess(body: SourceText): SourceText | undefined {
  const found = /^[ \t]*<process[\s>]/m.exec(body.text);
  const end = found === null ? -1 : body.text.indexOf('</process>', found.index);
  if (found === null || end === -1) return undefined;
  const { line, column } = new Locator(body).at(found.index);
  const text = body.text.slice(found.index, end + '</process>'.length);
  return { path: body.path, text, line, column };
}

function readProcessElement(source: SourceText, draft: DirectiveDraft): boolean {
  const { path, line, column } = source;
  try {
    readProcess(parseXml(source, OPAQUE_ELEMENTS), draft);
    return true;
  } catch (error) {
    const fallback = { code: 'xml_malformed', location: { path, line, column } } as const;
    const { message, location } = problemOf(error, fallback);
    const explained = `the <process> in the body is treated as prose: ${message}`;
    draft.problems.warn({ code: 'xml_malformed', message: explained, location });
    return false;
  }
}

function readWrittenSteps(body: SourceText, draft: DirectiveDraft): void {
  const { calls, unreadable } = findCalls(body.text);
  if (calls.length + unreadable.length === 0) return;
  const locator = new Locator(body);
  for (const { offset, message } of unreadable) {
    warnUnreadable(draft.problems, message, locator.at(offset));
  }
  const headings = findHeadings(body.text);
  for (const { index, calls: written } of groupByHeading(calls, headings, locator)) {
    const stepCalls = written.flatMap(
      ({ primary, args, offset }) =>
        toCall(primary, args, locator.at(offset), draft.problems) ?? [],
    );
    const [first] = written;
    if (stepCalls.length === 0 || first === undefined) continue;
    const heading = headings[index];
    const line =
      heading === undefined ? locator.at(first.offset).line : body.line + heading.line - 1;
    addStep(
      draft,
      { path: body.path, line },
      {
        name: freeName(slug(heading?.text ?? ''), draft),
        description: heading?.text ?? '',
        calls: stepCalls,
      },
    );
  }
}

/** Groups calls below the same heading into one step. Each call above all headings is a separate step with index -1. */
function groupByHeading(
  calls: readonly WrittenCall[],
  headings: readonly Heading[],
  locator: Locator,
): { readonly index: number; readonly calls: WrittenCall[] }[] {
  const groups: { index: number; calls: WrittenCall[] }[] = [];
  const first = locator.at(0).line;
  for (const call of calls) {
    const line = locator.at(call.offset).line - first + 1;
    const index = headings.findLastIndex((heading) => heading.line < line);
    const last = groups.at(-1);
    if (last !== undefined && index !== -1 && last.index === index) last.calls.push(call);
    else groups.push({ index, calls: [call] });
  }
  return groups;
}

/** Derives a step name from a heading: `Step 2: Write the file` becomes `write_the_file`. */
function slug(title: string): string {
  return title
    .replace(/^\s*(?:step\s*)?\d+\s*[:.)\-–—]*\s*/i, '')
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '_')
    .replaceAll(/^_+|_+$/g, '');
}

function freeName(title: string, draft: DirectiveDraft): string {
  const base = title === '' ? `step_${draft.steps.length + 1}` : title;
  const taken = new Set(draft.steps.map(({ name }) => name));
  let name = base;
  for (let count = 2; taken.has(name); count += 1) name = `${base}_${count}`;
  return name;
}
