import { basename, dirname } from 'node:path';
import { RyeError, type SourceLocation } from '../core/errors.ts';
import { compact, isJsonObject, type JsonObject, type JsonValue } from '../core/json.ts';
import { didYouMean } from '../core/text.ts';
import { DirectiveWriter } from './directive-writer.ts';
import { findFence } from './markdown.ts';
import { type Frontmatter, splitFrontmatter, type YamlMapping } from './metadata.ts';

/** A directive without XML, as the text with an `xml` fence that means the same. */
export interface FrontmatterDirective {
  readonly xml: string;
  /** The comments at the beginning of the front matter, without their signs. */
  readonly preamble: string;
  /** Returns the place in the file that a line of `xml` comes from. */
  readonly locate: (line: number) => SourceLocation;
}

/** The author of a directive whose front matter names none. */
export const UNKNOWN_AUTHOR = 'unknown';

/** Members of the front matter. */
const MEMBERS = [
  'name',
  'category',
  'description',
  'version',
  'author',
  'extends',
  'continuation_directive',
  'model',
  'tools',
  'permissions',
  'spend',
  'turns',
  'limits',
  'inputs',
  'outputs',
  'context',
  'behavior',
  'hooks',
  'steps',
] as const;

/**
 * Reads a directive whose metadata is YAML between `---` lines. Undefined for a file that does not begin with it, and for one with an
 * `xml` fence whose front matter is not that of a directive. Throws `directive_malformed` with the place in the file.
 */
export function readFrontmatterDirective(
  text: string,
  path: string,
): FrontmatterDirective | undefined {
  const found = frontmatterOf(text, path);
  if (!found) return undefined;
  const { mapping, body } = found;
  const unknown = Object.keys(mapping.value).find(
    (name) => !MEMBERS.some((known) => known === name),
  );
  if (unknown !== undefined) {
    const hint = didYouMean(unknown, MEMBERS) ?? `Members are ${MEMBERS.join(', ')}.`;
    throw malformed(`unknown member "${unknown}"`, hint, mapping.locate(unknown));
  }
  const declaration = declarationOf(mapping.value, path, body);
  try {
    const writer = new DirectiveWriter(declaration, jsonSchema);
    const xml = writer.text();
    const { members } = writer;
    const bodyLine = text.split('\n').findLastIndex((line) => /^---[ \t]*$/.test(line)) + 2;
    const [, comments = ''] = /(?:^|\n)---[ \t]*\n((?:#[^\n]*\n)*)/.exec(text) ?? [];
    return {
      xml,
      preamble: comments.replaceAll(/^# ?/gm, '').trim(),
      locate: (line) => {
        const member = members[line - 1];
        // the body follows the fence and a blank line
        if (member === undefined) return { path, line: bodyLine + line - members.length - 2 };
        return placeOf(mapping, member);
      },
    };
  } catch (error) {
    if (!(error instanceof RyeError) || error.location !== undefined) throw error;
    const [, member = '', problem = error.message] =
      /^the directive [^:]*: (\S+) ([^]*)$/.exec(error.message) ?? [];
    const shown = shownName(mapping, member);
    throw malformed(`${shown} ${problem}`.trim(), error.hint, placeOf(mapping, member));
  }
}

function malformed(message: string, hint: string | undefined, location: SourceLocation): RyeError {
  return new RyeError('directive_malformed', message, { location, hint });
}

/** An example in the instructions may be an `xml` fence too: then the members of the front matter decide. */
function frontmatterOf(text: string, path: string): Frontmatter | undefined {
  if (findFence(text, ['xml']) === undefined)
    return splitFrontmatter(text, path, 'directive_malformed');
  try {
    const found = splitFrontmatter(text, path, 'directive_malformed');
    const names = Object.keys(found?.mapping.value ?? {});
    const isOwn = names.every((name) => MEMBERS.some((known) => known === name));
    return isOwn && names.includes('description') ? found : undefined;
  } catch {
    return undefined; // the fence has the directive
  }
}

function jsonSchema(schema: unknown, where: string): JsonObject {
  if (isJsonObject(schema)) return schema;
  throw new RyeError('usage', `${where} is not a JSON Schema`);
}

/** Returns the members as `defineDirective()` names them. */
function declarationOf(value: JsonObject, path: string, body: string): JsonObject {
  const {
    name,
    category,
    continuation_directive: next,
    tools,
    permissions,
    spend,
    turns,
    limits,
    inputs,
    outputs,
    steps,
    ...same
  } = value;
  const given = { ...(isJsonObject(limits) ? limits : {}), ...compact({ spend, turns }) };
  const hasLimits = Object.keys(given).length > 0;
  return compact({
    ...same,
    author: same['author'] ?? UNKNOWN_AUTHOR,
    version: typeof same['version'] === 'number' ? String(same['version']) : same['version'],
    id: idOf(path, name, category),
    continuationDirective: next,
    permissions: tools === undefined ? permissions : withTools(permissions, tools),
    limits: isJsonObject(limits ?? {}) ? (hasLimits ? given : undefined) : limits,
    inputs: declarations(inputs),
    outputs: declarations(outputs),
    process: steps === undefined ? undefined : partsOf(steps),
    // steps need no text for a model
    instructions: body === '' && steps !== undefined ? (same['description'] ?? '') : body,
  });
}

/** Returns the name and the category that the path of a directive implies. */
export function derivedId(path: string): { readonly name: string; readonly category: string } {
  const [, id = basename(path).replace(/\.md$/, '')] =
    /(?:^|\/)\.ai\/directives\/(.+)\.md$/.exec(path.replaceAll('\\', '/')) ?? [];
  const folder = dirname(id);
  return { name: basename(id), category: folder === '.' ? '' : folder };
}

/** A name and a category that the file declares itself count; they are checked against its place, as in XML. */
function idOf(path: string, name: JsonValue | undefined, category: JsonValue | undefined): string {
  const derived = derivedId(path);
  const own = typeof name === 'string' ? name : derived.name;
  const place = typeof category === 'string' ? category : derived.category;
  return place === '' ? own : `${place}/${own}`;
}

function withTools(permissions: JsonValue | undefined, tools: JsonValue): JsonValue {
  if (permissions !== undefined && !isJsonObject(permissions)) return permissions;
  const { execute, ...others } = permissions ?? {};
  if (execute !== undefined && !isJsonObject(execute)) return { execute, ...others };
  return { execute: { ...execute, tool: grantsOf(tools) }, ...others };
}

/** A tool is an ID, or `{tool: ID, ask: REASON}`. */
function grantsOf(tools: JsonValue): JsonValue {
  if (!Array.isArray(tools)) return tools;
  return tools.map((one) => {
    if (!isJsonObject(one)) return one;
    const { tool, ...rest } = one;
    return compact({ id: tool, ...rest });
  });
}

/** A type alone is a declaration: `who: string`. */
function declarations(value: JsonValue | undefined): JsonValue | undefined {
  if (value === undefined || !isJsonObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, one = null]) => [
      name,
      typeof one === 'string' ? { type: one } : (one ?? {}),
    ]),
  );
}

const TARGETS = ['tool', 'directive', 'knowledge'] as const;

/** The steps as a process: `tool: ID` with `with:` is a call, `steps` of `foreach` and `if` are their parts. */
function partsOf(steps: JsonValue): JsonValue {
  if (!Array.isArray(steps)) return steps;
  return steps.map((step) => {
    if (!isJsonObject(step)) return step;
    const { foreach, if: condition, steps: inner, else: otherwise, ...rest } = step;
    if (isJsonObject(foreach)) {
      return { foreach: compact({ ...foreach, process: partsOf(inner ?? null) }), ...rest };
    }
    if (condition !== undefined) {
      const parts = { condition, process: partsOf(inner ?? null) };
      const block = otherwise === undefined ? parts : { ...parts, else: partsOf(otherwise) };
      return { if: block, ...rest };
    }
    const target = TARGETS.find((type) => rest[type] !== undefined);
    if (target === undefined) return compact({ ...step, calls: callsOf(rest['calls']) });
    const { with: params, async: isAsync, [target]: id, ...own } = rest;
    return { ...own, calls: [callOf(target, compact({ id, params, async: isAsync }))] };
  });
}

function callsOf(calls: JsonValue | undefined): JsonValue | undefined {
  if (!Array.isArray(calls)) return calls;
  return calls.map((call) => {
    const target = isJsonObject(call) && TARGETS.find((type) => call[type] !== undefined);
    if (!target || !isJsonObject(call)) return call;
    const { with: params, [target]: id, ...own } = call;
    return callOf(target, compact({ ...own, id, params }));
  });
}

function callOf(type: (typeof TARGETS)[number], { id, params, ...own }: JsonObject): JsonObject {
  const primary = type === 'knowledge' ? 'fetch' : 'execute';
  return compact({ primary, item_type: type, item_id: id, params, ...own });
}

/** Returns the place of a member of the declaration in the front matter, or of the next one above it. */
function placeOf(mapping: YamlMapping, member: string): SourceLocation {
  const [first = '', ...rest] = stepsOf(mapping, member);
  return mapping.locate(String(first), ...rest);
}

function shownName(mapping: YamlMapping, member: string): string {
  return stepsOf(mapping, member)
    .map((step, at) => (typeof step === 'number' ? `[${step}]` : `${at === 0 ? '' : '.'}${step}`))
    .join('');
}

/** The names under which the front matter has a member of the declaration. */
function stepsOf(mapping: YamlMapping, member: string): readonly (string | number)[] {
  const has = (name: string): boolean => Object.hasOwn(mapping.value, name);
  const path = [...member.matchAll(/[^.[\]]+/g)].map(([part]) =>
    /^\d+$/.test(part) ? Number(part) : part,
  );
  const [first, second, third] = path;
  if (first === 'permissions' && has('tools') && second === 'execute' && third === 'tool')
    return ['tools', ...path.slice(3)];
  if (first === 'limits' && typeof second === 'string' && has(second)) return [second];
  if (first === 'continuationDirective') return ['continuation_directive'];
  if (first !== 'process') return path;
  const inner = path.filter(
    (part, at) => !(part === 'foreach' || part === 'if') || path[at + 1] !== 'process',
  );
  return inner.map((part) => (part === 'process' ? 'steps' : part === 'params' ? 'with' : part));
}

/** Replaces the lines of `xml` in a value, as locations and as `path:line`, by their places in the file. */
export function relocated<T>(value: T, path: string, locate: FrontmatterDirective['locate']): T {
  if (typeof value === 'string') {
    const line = value.startsWith(`${path}:`) ? value.slice(path.length + 1) : '';
    return (/^\d+$/.test(line) ? `${path}:${locate(Number(line)).line ?? 1}` : value) as T;
  }
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map((one: unknown) => relocated(one, path, locate)) as T;
  const { path: own, line } = value as Partial<SourceLocation>;
  if (own === path && typeof line === 'number' && !('name' in value)) return locate(line) as T;
  const members = Object.entries(value).map(([name, one]: [string, unknown]) => [
    name,
    relocated(one, path, locate),
  ]);
  return Object.fromEntries(members) as T;
}
