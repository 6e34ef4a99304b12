import { basename, dirname } from 'node:path';
import type { BehaviorOptions } from '../core/behavior.ts';
import { type Risk, VERBS, type Verb } from '../core/capability.ts';
import { RyeError } from '../core/errors.ts';
import { assertItemId, ITEM_TYPES, type ItemType } from '../core/ids.ts';
import { isRecord, type JsonObject, type JsonValue } from '../core/json.ts';
import type { PartialLimits } from '../core/limits.ts';
import type { ProcessCall, ThreadPlan, ValueType } from '../core/plan.ts';
import { didYouMean } from '../core/text.ts';

/** An input of a directive from code. */
export interface DirectiveInput {
  /** Default: `enum` if values are listed, else `string`. */
  readonly type?: ValueType;
  readonly required?: boolean;
  readonly default?: JsonValue;
  /** Allowed values. */
  readonly enum?: readonly string[];
  /** True to keep its value out of plans, logs, prompts and exports. */
  readonly secret?: boolean;
  readonly description?: string;
}

export interface DirectiveOutput {
  /** Default: `string`. */
  readonly type?: ValueType;
  readonly required?: boolean;
  readonly description?: string;
  /** Expression that the value comes from if no model runs, such as `${steps.price.data.cents}`. */
  readonly from?: string;
}

/** Ids or patterns by item type, such as `{ tool: 'rye/file-system/*' }`; `*` grants all. */
export type DirectiveGrants = '*' | { readonly [T in ItemType]?: string | readonly string[] };

export interface DirectivePermissions extends Partial<Readonly<Record<Verb, DirectiveGrants>>> {
  /** True if descendants must stay within these permissions. */
  readonly ceiling?: boolean;
  readonly acknowledge?: readonly { readonly risk: Risk; readonly reason: string }[];
}

/** One call of a step; `params` may contain `{input:name}` and `${steps.name.…}`. */
export interface DirectiveCall extends Pick<ProcessCall, 'primary' | 'item_type' | 'item_id'> {
  readonly params?: JsonObject;
  readonly async?: boolean;
}

export interface DirectiveStep {
  readonly name: string;
  readonly description?: string;
  readonly calls: readonly DirectiveCall[];
}

export interface DirectiveModel {
  readonly tier?: string;
  readonly id?: string;
  readonly provider?: string;
  readonly fallback?: string;
  readonly thinking?: ThreadPlan['thinking'];
}

/** Ids of knowledge entries for the prompt, and ids that must not contribute. */
export interface DirectiveKnowledge {
  readonly system?: readonly string[];
  readonly before?: readonly string[];
  readonly after?: readonly string[];
  readonly suppress?: readonly string[];
}

/** Inputs by name. A member that an input does not have is refused. */
type Inputs<D> = D & {
  readonly [N in keyof D]: Readonly<Record<Exclude<keyof D[N], keyof DirectiveInput>, never>>;
};

/** The members of a directive file, as a value. A program has handlers in place of `<hooks>`. */
export interface DirectiveDeclaration<D = Readonly<Record<string, DirectiveInput>>> {
  /** Such as `team/quote`. */
  readonly id: string;
  readonly description: string;
  /** Markdown for the model: the body of a file. */
  readonly instructions: string;
  /** Default: `1.0.0`. */
  readonly version?: string;
  /** Default: `program`. */
  readonly author?: string;
  /** Id of the directive that this one extends. */
  readonly extends?: string;
  readonly continuationDirective?: string;
  readonly inputs?: Inputs<D>;
  readonly outputs?: Readonly<Record<string, DirectiveOutput>>;
  readonly limits?: PartialLimits;
  readonly permissions?: '*' | DirectivePermissions;
  readonly model?: DirectiveModel;
  readonly behavior?: BehaviorOptions;
  readonly context?: DirectiveKnowledge;
  /** Steps that run without a model. */
  readonly process?: readonly DirectiveStep[];
}

type ValueOf<D> = D extends { readonly enum: readonly (infer E)[] }
  ? E
  : D extends { readonly type: 'integer' | 'number' }
    ? number
    : D extends { readonly type: 'boolean' }
      ? boolean
      : D extends { readonly type: 'array' }
        ? readonly JsonValue[]
        : D extends { readonly type: 'object' }
          ? JsonObject
          : string;

/** The type of the inputs that a run of a declared directive takes. */
export type DirectiveInputs<D> = string extends keyof D
  ? JsonObject
  : { readonly [N in RequiredOf<D>]: ValueOf<D[N]> } & {
      readonly [N in Exclude<keyof D, RequiredOf<D>>]?: ValueOf<D[N]>;
    };

type RequiredOf<D> = {
  [N in keyof D]: D[N] extends { readonly required: true } ? N : never;
}[keyof D];

/** A directive from code, for `rye.run({ directive })` or `directives` of a preset. */
export interface DefinedDirective<I extends object = object> {
  readonly id: string;
  /** The file that the declaration is equal to. */
  readonly text: string;
  /** Carries the type of the inputs; has no value. */
  readonly inputs?: I;
}

/** The declaration of a directive, and the member that each line of its text comes from. */
export interface DirectiveSource {
  readonly declaration: DirectiveDeclaration;
  readonly members: readonly string[];
}

const sources = new WeakMap<object, DirectiveSource>();

/**
 * Returns a directive from code. Throws `usage` for a misspelled member or one of the wrong type. A run, or
 * `rye.defineDirective()`, checks the rest with the parser for files.
 */
export function defineDirective<const D extends Readonly<Record<string, DirectiveInput>>>(
  declaration: DirectiveDeclaration<D>,
): DefinedDirective<DirectiveInputs<D>> {
  const writer = new DirectiveWriter(declaration);
  const text = writer.text();
  const defined = Object.freeze({ id: declaration.id, text });
  sources.set(defined, { declaration, members: writer.members });
  return defined;
}

/** Throws `usage` for a value that does not come from {@link defineDirective}. */
export function directiveSource(directive: DefinedDirective): DirectiveSource {
  const source = sources.get(directive);
  if (source) return source;
  throw new RyeError('usage', 'the directive of a run is not a value of defineDirective()', {
    hint: 'Pass what defineDirective() returns, or name a file with directiveId.',
  });
}

const ROOT = [
  'id',
  'description',
  'instructions',
  'version',
  'author',
  'extends',
  'continuationDirective',
  'inputs',
  'outputs',
  'limits',
  'permissions',
  'model',
  'behavior',
  'context',
  'process',
] as const satisfies readonly (keyof DirectiveDeclaration)[];
const INPUT = ['type', 'required', 'default', 'enum', 'secret', 'description'] as const;
const OUTPUT = ['type', 'required', 'description', 'from'] as const;
const PERMISSIONS = [...VERBS, 'ceiling', 'acknowledge'] as const;
const MODEL = ['tier', 'id', 'provider', 'fallback', 'thinking'] as const;
const POSITIONS = ['system', 'before', 'after', 'suppress'] as const;
const CALL = ['primary', 'item_type', 'item_id', 'params', 'async'] as const;

type Attributes = Readonly<Record<string, string | number | boolean | undefined>>;

/** Writes the text of a directive file, one element per line, with the member that each line comes from. */
class DirectiveWriter {
  readonly members: string[] = [];
  readonly #lines: string[] = [];
  readonly #root: Readonly<Record<string, unknown>>;
  readonly #id: string;

  constructor(declaration: unknown) {
    this.#id = isRecord(declaration) ? String(declaration['id']) : '';
    this.#root = this.#object('the declaration', declaration, ROOT);
    assertItemId(this.#text('id', this.#root['id']), 'directive');
  }

  text(): string {
    const { version = '1.0.0', author = 'program' } = this.#root;
    const folder = dirname(this.#id);
    this.#line('id', '```xml');
    const head = {
      name: basename(this.#id),
      version: this.#text('version', version),
      extends: this.#optional('extends', this.#root['extends']),
    };
    this.#line(head.extends === undefined ? 'id' : 'extends', opening('directive', head));
    this.#line('id', '<metadata>');
    this.#element('description', this.#text('description', this.#root['description']));
    this.#line('id', element('category', folder === '.' ? '' : folder));
    this.#element('author', this.#text('author', author));
    this.#metadata();
    this.#line('id', '</metadata>');
    this.#inputs();
    this.#outputs();
    this.#process();
    this.#line('id', '</directive>');
    this.#line('id', '```');
    const body = this.#text('instructions', this.#root['instructions']);
    return `${this.#lines.join('\n')}\n\n${body}\n`;
  }

  #metadata(): void {
    const { model, limits, permissions, behavior, context, continuationDirective } = this.#root;
    const next = this.#optional('continuationDirective', continuationDirective);
    if (next !== undefined) {
      this.#line('continuationDirective', element('continuation_directive', next));
    }
    if (model !== undefined) {
      const choice = this.#object('model', model, MODEL);
      this.#line('model', empty('model', this.#texts('model', choice)));
    }
    if (limits !== undefined) {
      const values = this.#numbers('limits', this.#object('limits', limits));
      for (const [name, value] of values) {
        this.#line(
          `limits.${name}`,
          empty('limits', this.#attribute(`limits.${name}`, name, value)),
        );
      }
    }
    if (permissions !== undefined) this.#permissions(permissions);
    for (const [name, value] of entries(this.#object('behavior', behavior ?? {}))) {
      const where = `behavior.${name}`;
      const text = typeof value === 'string' ? value : JSON.stringify(value);
      this.#line(where, empty('behavior', this.#attribute(where, name, text)));
    }
    if (context !== undefined) this.#context(this.#object('context', context, POSITIONS));
  }

  #permissions(value: unknown): void {
    if (value === '*') {
      this.#line('permissions', element('permissions', '*'));
      return;
    }
    const {
      ceiling,
      acknowledge = [],
      ...grants
    } = this.#object('permissions', value, PERMISSIONS);
    const attributes = { ceiling: this.#flag('permissions.ceiling', ceiling) };
    this.#line('permissions', opening('permissions', attributes));
    for (const [verb, items] of entries(grants)) {
      const where = `permissions.${verb}`;
      if (items === '*') this.#line(where, element(verb, '*'));
      else {
        for (const [type, ids] of entries(this.#object(where, items, ITEM_TYPES))) {
          for (const id of this.#list(`${where}.${type}`, ids)) {
            this.#line(`${where}.${type}`, `<${verb}>${element(type, id)}</${verb}>`);
          }
        }
      }
    }
    for (const [where, one] of this.#each('permissions.acknowledge', acknowledge)) {
      const { risk, reason } = this.#object(where, one, ['risk', 'reason']);
      const text = this.#text(`${where}.reason`, reason);
      const attribute = { risk: this.#text(`${where}.risk`, risk) };
      this.#line(where, element('acknowledge', text, attribute));
    }
    this.#line('permissions', '</permissions>');
  }

  #context(context: Readonly<Record<string, unknown>>): void {
    this.#line('context', '<context>');
    for (const [position, ids] of entries(context)) {
      const where = `context.${position}`;
      for (const id of this.#list(where, ids)) this.#line(where, element(position, id));
    }
    this.#line('context', '</context>');
  }

  #inputs(): void {
    const { inputs = {} } = this.#root;
    this.#line('inputs', '<inputs>');
    for (const [name, value] of entries(this.#object('inputs', inputs))) {
      const where = `inputs.${name}`;
      const declared = this.#object(where, value, INPUT);
      const { default: fallback } = declared;
      // a separator at the end keeps commas in a value
      const values = declared['enum'] === undefined ? [] : this.#list(where, declared['enum']);
      const text = typeof fallback === 'string' ? fallback : JSON.stringify(fallback);
      this.#declaration('input', name, declared, {
        enum: values.length === 0 ? undefined : `${values.join('|')}|`,
        default: text,
        secret: this.#flag(`${where}.secret`, declared['secret']),
      });
    }
    this.#line('inputs', '</inputs>');
  }

  #outputs(): void {
    const { outputs = {} } = this.#root;
    this.#line('outputs', '<outputs>');
    for (const [name, value] of entries(this.#object('outputs', outputs))) {
      const where = `outputs.${name}`;
      const declared = this.#object(where, value, OUTPUT);
      const from = this.#optional(`${where}.from`, declared['from']);
      this.#declaration('output', name, declared, { from });
    }
    this.#line('outputs', '</outputs>');
  }

  #declaration(
    tag: 'input' | 'output',
    name: string,
    declared: Readonly<Record<string, unknown>>,
    others: Attributes,
  ): void {
    const where = `${tag}s.${name}`;
    const text = this.#optional(`${where}.description`, declared['description']) ?? '';
    const type = this.#optional(`${where}.type`, declared['type']);
    const required = this.#flag(`${where}.required`, declared['required']);
    this.#line(where, element(tag, text, { name, type, required, ...others }));
  }

  #process(): void {
    const { process } = this.#root;
    if (process === undefined) return;
    this.#line('process', '<process>');
    for (const [where, value] of this.#each('process', process)) {
      const step = this.#object(where, value, ['name', 'description', 'calls']);
      const name = this.#text(`${where}.name`, step['name']);
      const description = this.#optional(`${where}.description`, step['description']);
      this.#line(where, opening('step', { name, description }));
      for (const [place, call] of this.#each(`${where}.calls`, step['calls'])) {
        this.#call(place, this.#object(place, call, CALL));
      }
      this.#line(where, '</step>');
    }
    this.#line('process', '</process>');
  }

  #call(where: string, call: Readonly<Record<string, unknown>>): void {
    const verb = VERBS.find((known) => known === call['primary']);
    if (verb === undefined) this.#refuse(`${where}.primary`, `is not one of ${VERBS.join(', ')}`);
    const item_type = this.#text(`${where}.item_type`, call['item_type']);
    const item_id = this.#text(`${where}.item_id`, call['item_id']);
    const isAsync = this.#flag(`${where}.async`, call['async']);
    this.#line(where, opening(verb, { item_type, item_id, async: isAsync }));
    const { params = {} } = call;
    for (const [name, value] of entries(this.#object(`${where}.params`, params))) {
      const place = `${where}.params.${name}`;
      const type = this.#paramType(place, value);
      const text = typeof value === 'string' ? value : JSON.stringify(value);
      this.#line(place, empty('param', { name, type, value: text }));
    }
    this.#line(where, `</${verb}>`);
  }

  #paramType(where: string, value: unknown): string {
    if (Array.isArray(value)) return 'array';
    if (isRecord(value)) return 'object';
    if (typeof value === 'number') return Number.isInteger(value) ? 'integer' : 'number';
    if (typeof value === 'string' || typeof value === 'boolean') return typeof value;
    return this.#refuse(where, `is ${String(value)}, which a call can't have`);
  }

  #line(member: string, line: string): void {
    this.#lines.push(line);
    this.members.push(member);
  }

  #element(name: string, text: string): void {
    this.#line(name, element(name, text));
  }

  #attribute(where: string, name: string, value: string | number): Attributes {
    if (/^[A-Za-z_][\w-]*$/.test(name)) return { [name]: value };
    return this.#refuse(where, 'has a name that a directive can not have');
  }

  #object(
    where: string,
    value: unknown,
    known?: readonly string[],
  ): Readonly<Record<string, unknown>> {
    if (!isRecord(value)) return this.#refuse(where, 'is not an object');
    const unknown = known && Object.keys(value).find((name) => !known.includes(name));
    if (unknown === undefined || known === undefined) return value;
    const hint = didYouMean(unknown, known) ?? `Members are ${known.join(', ')}.`;
    return this.#refuse(where, `has no member "${unknown}"`, hint);
  }

  #text(where: string, value: unknown): string {
    return typeof value === 'string' && value.trim() !== ''
      ? value
      : this.#refuse(where, value === undefined ? 'is missing' : 'is not a text');
  }

  #optional(where: string, value: unknown): string | undefined {
    return value === undefined ? undefined : this.#text(where, value);
  }

  #flag(where: string, value: unknown): boolean | undefined {
    if (value === undefined || typeof value === 'boolean') return value;
    return this.#refuse(where, 'is neither true nor false');
  }

  #list(where: string, value: unknown): readonly string[] {
    const list: readonly unknown[] = Array.isArray(value) ? value : [value];
    return list.map((one) => this.#text(where, one));
  }

  #each(where: string, value: unknown): readonly (readonly [string, unknown])[] {
    if (!Array.isArray(value)) return this.#refuse(where, 'is not a list');
    return value.map((one: unknown, index) => [`${where}[${index}]`, one]);
  }

  #texts(where: string, value: Readonly<Record<string, unknown>>): Attributes {
    return Object.fromEntries(
      entries(value).map(([name, text]) => [name, this.#text(`${where}.${name}`, text)]),
    );
  }

  #numbers(where: string, value: Readonly<Record<string, unknown>>): readonly [string, number][] {
    return entries(value).map(([name, one]) => [
      name,
      typeof one === 'number' ? one : this.#refuse(`${where}.${name}`, 'is not a number'),
    ]);
  }

  #refuse(where: string, problem: string, hint?: string): never {
    throw new RyeError('usage', `the directive ${this.#id}: ${where} ${problem}`, { hint });
  }
}

function entries(value: Readonly<Record<string, unknown>>): [string, unknown][] {
  return Object.entries(value).filter(([, member]) => member !== undefined);
}

function opening(name: string, attributes: Attributes = {}): string {
  const written = Object.entries(attributes).flatMap(([key, value]) =>
    value === undefined ? [] : [` ${key}="${escaped(String(value))}"`],
  );
  return `<${name}${written.join('')}>`;
}

function empty(name: string, attributes: Attributes): string {
  return `${opening(name, attributes).slice(0, -1)}/>`;
}

function element(name: string, text: string, attributes: Attributes = {}): string {
  return `${opening(name, attributes)}${escaped(text)}</${name}>`;
}

/** Line breaks are escaped too: each element stays on its line and no text can close the fence. */
function escaped(text: string): string {
  return text.replaceAll(/[&<>"'`\n\r\t]/g, (character) => `&#${character.charCodeAt(0)};`);
}
