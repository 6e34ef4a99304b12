import { isDeepStrictEqual } from 'node:util';
import { stringify } from 'yaml';
import { RyeError } from '../core/errors.ts';
import { compact, isJsonObject, type JsonObject, type JsonValue } from '../core/json.ts';
import type { ProcessBlock, ProcessCall, ProcessStep } from '../core/plan.ts';
import { isSignatureLine } from '../trust/signature-line.ts';
import { parseDirective } from './directive.ts';
import type { ContextRef, Directive } from './directive-ast.ts';
import { derivedId, readFrontmatterDirective, UNKNOWN_AUTHOR } from './directive-yaml.ts';
import { normalizeNewlines } from './source.ts';

/** The notation of a directive's metadata: an `xml` fence or front matter. */
type DirectiveNotation = 'xml' | 'yaml';

/**
 * Returns a directive in the other notation, without a signature; the same text if it has that notation. Throws `directive_malformed`
 * for a directive that the notation cannot express: nothing is lost on the way.
 */
export function convertDirective(text: string, path: string, as: DirectiveNotation): string {
  const plain = withoutSignature(normalizeNewlines(text));
  const before = parseDirective(plain, path);
  const front = readFrontmatterDirective(plain, path);
  if ((front !== undefined) === (as === 'yaml')) return text;
  const converted = front ? withPreamble(before.preamble, indented(front.xml)) : yamlOf(before);
  const after = parseDirective(converted, path);
  const lost = Object.keys(meaning(before)).find(
    (name) => !isDeepStrictEqual(meaning(before)[name], meaning(after)[name]),
  );
  if (lost === undefined) return converted;
  throw new RyeError(
    'directive_malformed',
    `${lost} of this directive cannot be written as ${as}`,
    {
      location: { path },
      hint: 'Keep its notation, or simplify that part first.',
    },
  );
}

function withoutSignature(text: string): string {
  const end = text.indexOf('\n');
  return isSignatureLine(text.slice(0, end)) ? text.slice(end + 1) : text;
}

/** The members of a directive that mean something, without the places in its file. */
function meaning(directive: Directive): Readonly<Record<string, unknown>> {
  const { path, origins: _o, warnings: _w, permissions, rawLimits, category, ...rest } = directive;
  const derived = derivedId(path);
  return withoutOrigins({
    ...rest,
    category: category ?? derived.category,
    permissions: {
      capabilities: sorted(permissions.capabilities),
      optional: sorted(permissions.optional),
      asks: sorted(permissions.asks),
      acknowledgements: permissions.acknowledgements,
      ceiling: permissions.ceiling,
    },
    limits: sorted(rawLimits.map(({ name, value }) => [name, value])),
  }) as Readonly<Record<string, unknown>>;
}

/** Sorts what has no order. */
function sorted<T>(all: readonly T[]): readonly T[] {
  return all.toSorted((one, other) => (JSON.stringify(one) < JSON.stringify(other) ? -1 : 1));
}

function withoutOrigins(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutOrigins);
  if (typeof value !== 'object' || value === null) return value;
  const members = Object.entries(value).filter(([name]) => name !== 'origin');
  return Object.fromEntries(members.map(([name, one]) => [name, withoutOrigins(one)]));
}

function withPreamble(preamble: string, xml: string): string {
  return preamble === '' ? xml : `${preamble}\n\n${xml}`;
}

/** Indents the elements; each line has one. */
function indented(xml: string): string {
  const [fence = '', ...lines] = xml.split('\n');
  const end = lines.indexOf('```');
  let depth = 0;
  const elements = lines.slice(0, end).map((line) => {
    if (line.startsWith('</')) depth -= 1;
    const shown = `${'  '.repeat(Math.max(0, depth))}${line}`;
    const isOpening = /^<\w/.test(line) && !line.endsWith('/>') && !line.includes('</');
    if (isOpening) depth += 1;
    return shown;
  });
  return [fence, ...elements, ...lines.slice(end)].join('\n');
}

function yamlOf(directive: Directive): string {
  const { body, preamble, steps, description } = directive;
  const comments =
    preamble === '' ? '' : `${preamble.replaceAll(/^/gm, '# ').replaceAll(/ +$/gm, '')}\n`;
  const members = stringify(membersOf(directive), { lineWidth: 0 });
  // without steps the body is the work; with them, a body that is missing is the description
  const text = steps.length > 0 && body === description ? '' : body;
  return `---\n${comments}${members}---\n${text === '' ? '' : `\n${text}\n`}`;
}

function membersOf(directive: Directive): JsonObject {
  const { path, name, category, version, author, model, context, behavior } = directive;
  const derived = derivedId(path);
  const limits = Object.fromEntries(directive.rawLimits.map((limit) => [limit.name, limit.value]));
  const { spend, turns, ...others } = limits;
  return compact({
    name: name === derived.name ? undefined : name,
    category: category === undefined || category === derived.category ? undefined : category,
    description: directive.description,
    version: version === '1.0.0' ? undefined : version,
    author: author === UNKNOWN_AUTHOR ? undefined : author,
    extends: directive.extends,
    continuation_directive: directive.continuationDirective,
    model: model && { ...model },
    ...grantsOf(directive.permissions),
    spend,
    turns,
    limits: filled(others),
    inputs: filled(Object.fromEntries(directive.inputs.map(inputOf))),
    outputs: filled(Object.fromEntries(directive.outputs.map(outputOf))),
    context: filled(
      compact({
        system: refs(context.system),
        before: refs(context.before),
        after: refs(context.after),
        suppress: context.suppress.length === 0 ? undefined : [...context.suppress],
      }),
    ),
    behavior: filled(behavior),
    hooks:
      directive.rawHooks.length === 0 ? undefined : directive.rawHooks.map(({ value }) => value),
    steps: directive.steps.length === 0 ? undefined : partsOf(directive.steps, 0),
  });
}

function filled(value: JsonObject): JsonObject | undefined {
  return Object.keys(value).length === 0 ? undefined : value;
}

function refs(all: readonly ContextRef[]): JsonValue[] | undefined {
  if (all.length === 0) return undefined;
  return all.map(({ id, optional }) => (optional ? { id, optional } : id));
}

function inputOf(input: Directive['inputs'][number]): readonly [string, JsonObject] {
  const { name, type, required, default: fallback, values, secret, description } = input;
  const isEnum = type === 'enum';
  return [
    name,
    compact({
      type: isEnum || type === 'string' ? undefined : type,
      enum: isEnum ? [...values] : undefined,
      required: required || undefined,
      default: fallback,
      secret: secret || undefined,
      description: description === '' ? undefined : description,
    }),
  ];
}

function outputOf(output: Directive['outputs'][number]): readonly [string, JsonObject] {
  const { name, type, required, description, from, schema } = output;
  return [
    name,
    compact({
      type: type === 'string' && schema === undefined ? undefined : type,
      required: required || undefined,
      description: description === '' ? undefined : description,
      from,
      schema,
    }),
  ];
}

const GRANT = /^rye\.(execute|fetch|sign)\.(tool|directive|knowledge|rule|skill)\.(.+)$/;

type Permissions = Directive['permissions'];
type Verbs = Record<string, '*' | Record<string, JsonValue[]>>;

/** Tools alone are `tools`; other grants are `permissions`. */
function grantsOf(permissions: Permissions): JsonObject {
  const { capabilities, acknowledgements, ceiling } = permissions;
  const isAll = capabilities.length === 1 && capabilities[0] === 'rye.*';
  if (isAll && acknowledgements.length === 0) return { permissions: '*' };
  const { execute, ...others } = verbsOf(permissions);
  const { tool, ...rest } = typeof execute === 'object' ? execute : {};
  const written = compact({
    ceiling: ceiling || undefined,
    execute: typeof execute === 'object' ? filled(rest) : execute,
    ...others,
    acknowledge:
      acknowledgements.length === 0
        ? undefined
        : acknowledgements.map(({ risk, tool: one, reason }) =>
            compact({ risk, tool: one, reason }),
          ),
  });
  return compact({ tools: tool?.map(asTool), permissions: filled(written) });
}

/** The grants by verb and type. A grant that has no such form is missing, which {@link convertDirective} finds. */
function verbsOf(permissions: Permissions): Verbs {
  const verbs: Verbs = {};
  for (const capability of permissions.capabilities) {
    const whole = /^rye\.(execute|fetch|sign)\.\*$/.exec(capability)?.[1];
    if (whole !== undefined) verbs[whole] = '*';
    const [, verb, type = '', pattern = ''] = GRANT.exec(capability) ?? [];
    const grants = verb === undefined ? '*' : (verbs[verb] ?? {});
    if (verb === undefined || grants === '*') continue;
    const grant = grantOf(permissions, capability, pattern.replaceAll('.', '/'));
    verbs[verb] = { ...grants, [type]: [...(grants[type] ?? []), grant] };
  }
  return verbs;
}

/** An ID, or an object if the grant asks or may be missing. */
function grantOf({ asks, optional }: Permissions, capability: string, id: string): JsonValue {
  const ask = asks.find((one) => one.capability === capability);
  const isOptional = optional.includes(capability) || undefined;
  const reason = ask && (ask.reason === '' ? true : ask.reason);
  return reason === undefined && isOptional === undefined
    ? id
    : compact({ id, ask: reason, optional: isOptional });
}

/** In `tools`, a grant with more than its ID names it `tool`. */
function asTool(grant: JsonValue): JsonValue {
  if (!isJsonObject(grant)) return grant;
  const { id, ...rest } = grant;
  return compact({ tool: id, ...rest });
}

/** Rebuilds the blocks around steps from depth on. */
function partsOf(steps: readonly ProcessStep[], depth: number): JsonValue[] {
  const parts: JsonObject[] = [];
  let before: ProcessBlock | undefined;
  for (const { block, steps: own } of runsOf(steps, depth)) {
    const inner = block ? partsOf(own, depth + 1) : [];
    if (block === undefined) parts.push(...own.map(stepOf));
    else if (isElseOf(block, before)) parts.push({ ...parts.pop(), else: inner });
    else parts.push(blockOf(block, inner));
    before = block;
  }
  return parts;
}

/** Joins the steps that follow each other in one block. */
function runsOf(steps: readonly ProcessStep[], depth: number) {
  const found: { readonly block: ProcessBlock | undefined; readonly steps: ProcessStep[] }[] = [];
  for (const step of steps) {
    const block = step.within?.[depth];
    const last = found.at(-1);
    if (block && last?.block?.id === block.id) last.steps.push(step);
    else found.push({ block, steps: [step] });
  }
  return found;
}

function isElseOf(block: ProcessBlock, before: ProcessBlock | undefined): boolean {
  if (block.kind !== 'if' || before?.kind !== 'if') return false;
  return isDeepStrictEqual(block.condition, { not: before.condition });
}

function blockOf(block: ProcessBlock, steps: JsonValue[]): JsonObject {
  if (block.kind === 'if') return { if: block.text, steps };
  const { item, in: list, parallel, on_error: onError } = block;
  const foreach = compact({
    item,
    in: list,
    parallel: parallel === 1 ? undefined : parallel,
    on_error: onError === 'fail' ? undefined : onError,
  });
  return { foreach, steps };
}

function stepOf({ name, description, calls }: ProcessStep): JsonObject {
  const head = compact({ name, description: description === '' ? undefined : description });
  const [call] = calls;
  const isPlain = calls.length === 1 && call?.primary === 'execute';
  if (!call || !isPlain || !['tool', 'directive'].includes(call.item_type))
    return { ...head, calls: calls.map(callOf) };
  const { label, isolation, isolation_result: result, ...options } = call.options ?? {};
  return compact({
    ...head,
    label,
    isolation,
    isolation_result: result,
    [call.item_type]: call.item_id,
    with: filled(call.params),
    ...options,
  });
}

function callOf({ primary, item_type, item_id, params, options }: ProcessCall): JsonObject {
  return compact({ primary, item_type, item_id, params: filled(params), ...options });
}
