import { basename, dirname } from 'node:path';
import { VERBS } from '../../core/capability.ts';
import { RyeError } from '../../core/errors.ts';
import { assertItemId, ITEM_TYPES } from '../../core/ids.ts';
import { isRecord } from '../../core/json.ts';
import { didYouMean } from '../../core/text.ts';
import type { DirectiveDeclaration, DirectiveHook } from '../api/directives.ts';
import type { OutputSchema } from '../api/output-schema.ts';
import { jsonSchemaOf } from './output-schema.ts';
import { type Attributes, element, empty, entries, escaped, opening, textOf } from './xml-text.ts';

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
  'hooks',
  'process',
] as const satisfies readonly (keyof DirectiveDeclaration)[];
const INPUT = ['type', 'required', 'default', 'enum', 'secret', 'description'] as const;
const OUTPUT = ['type', 'required', 'description', 'from', 'schema'] as const;
const PERMISSIONS = [...VERBS, 'ceiling', 'optional', 'acknowledge'] as const;
const MODEL = ['tier', 'id', 'provider', 'fallback', 'thinking'] as const;
const POSITIONS = ['system', 'before', 'after', 'suppress'] as const;
const CALL = ['primary', 'item_type', 'item_id', 'params', 'async'] as const;
const HOOK = [
  'id',
  'event',
  'condition',
  'action',
  'actions',
  'position',
  'wrap',
  'enabled',
  'timeout_seconds',
  'on_error',
  'description',
] as const satisfies readonly (keyof DirectiveHook)[];
const CONDITION = ['path', 'op', 'value', 'any', 'all', 'not'] as const;
const ACTION = [
  'inject',
  'control',
  'error',
  'reason',
  'instructions',
  'delay_seconds',
  'limit',
  'to',
  'emit',
  'data',
  'set_extends',
  'primary',
  'item_type',
  'item_id',
  'params',
] as const;

/** Writes the text of a directive file, one element per line, with the member that each line comes from. */
export class DirectiveWriter {
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
    const { model, limits, permissions, behavior, context, hooks } = this.#root;
    const next = this.#optional('continuationDirective', this.#root['continuationDirective']);
    if (next !== undefined) {
      this.#line('continuationDirective', element('continuation_directive', next));
    }
    if (model !== undefined) {
      const choice = this.#object('model', model, MODEL);
      this.#line('model', empty('model', this.#texts('model', choice)));
    }
    if (limits !== undefined) {
      for (const [name, value] of entries(this.#object('limits', limits))) {
        const where = `limits.${name}`;
        if (typeof value !== 'number') this.#refuse(where, 'is not a number');
        this.#line(where, empty('limits', this.#attribute(where, name, value)));
      }
    }
    if (permissions !== undefined) this.#permissions(permissions);
    for (const [name, value] of entries(this.#object('behavior', behavior ?? {}))) {
      const where = `behavior.${name}`;
      this.#line(where, empty('behavior', this.#attribute(where, name, value)));
    }
    if (context !== undefined) this.#context(this.#object('context', context, POSITIONS));
    if (hooks !== undefined) this.#hooks(hooks);
  }

  #permissions(value: unknown): void {
    if (value === '*') {
      this.#line('permissions', element('permissions', '*'));
      return;
    }
    const {
      ceiling,
      optional: isOptional,
      acknowledge = [],
      ...grants
    } = this.#object('permissions', value, PERMISSIONS);
    const optional = this.#flag('permissions.optional', isOptional);
    const attributes = { ceiling: this.#flag('permissions.ceiling', ceiling) };
    this.#line('permissions', opening('permissions', attributes));
    for (const [verb, items] of entries(grants)) {
      const where = `permissions.${verb}`;
      if (items === '*') this.#line(where, element(verb, '*'));
      else {
        for (const [type, ids] of entries(this.#object(where, items, ITEM_TYPES))) {
          for (const id of this.#list(`${where}.${type}`, ids)) {
            this.#line(`${where}.${type}`, `<${verb}>${element(type, id, { optional })}</${verb}>`);
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

  #hooks(hooks: unknown): void {
    this.#line('hooks', '<hooks>');
    for (const [where, hook] of this.#each('hooks', hooks)) {
      const { condition, action, actions, ...attributes } = this.#object(where, hook, HOOK);
      this.#line(where, opening('hook', this.#attributes(where, attributes)));
      if (condition !== undefined) this.#condition(`${where}.condition`, condition);
      if (action !== undefined) this.#action(`${where}.action`, action);
      for (const [place, one] of this.#each(`${where}.actions`, actions ?? [])) {
        this.#action(place, one);
      }
      this.#line(where, '</hook>');
    }
    this.#line('hooks', '</hooks>');
  }

  #condition(where: string, value: unknown): void {
    const { any, all, not, ...test } = this.#object(where, value, CONDITION);
    if (entries(test).length > 0) {
      this.#line(where, empty('condition', this.#attributes(where, test)));
    }
    for (const [name, list] of entries({ any, all, not: not === undefined ? not : [not] })) {
      this.#line(where, opening(name));
      for (const [place, one] of this.#each(`${where}.${name}`, list)) this.#condition(place, one);
      this.#line(where, `</${name}>`);
    }
  }

  #action(where: string, value: unknown): void {
    const { inject, params, data, ...rest } = this.#object(where, value, ACTION);
    if (inject !== undefined) this.#line(where, element('inject', this.#text(where, inject)));
    if (inject !== undefined && entries({ params, data, ...rest }).length === 0) return;
    this.#line(where, opening('action', this.#attributes(where, rest)));
    for (const [name, one] of entries(this.#object(`${where}.params`, params ?? data ?? {}))) {
      this.#line(`${where}.${name}`, element('param', textOf(one), { name }));
    }
    this.#line(where, '</action>');
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
      const others = {
        enum: values.length === 0 ? undefined : `${values.join('|')}|`,
        default: fallback === undefined ? undefined : textOf(fallback),
        secret: this.#flag(`${where}.secret`, declared['secret']),
      };
      this.#declaration('input', name, declared, { others, schema: '' });
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
      const schema =
        declared['schema'] === undefined ? '' : this.#schema(where, declared['schema']);
      this.#declaration('output', name, declared, { others: { from }, schema });
    }
    this.#line('outputs', '</outputs>');
  }

  #declaration(
    tag: 'input' | 'output',
    name: string,
    declared: Readonly<Record<string, unknown>>,
    { others, schema }: { readonly others: Attributes; readonly schema: string },
  ): void {
    const where = `${tag}s.${name}`;
    const text = this.#optional(`${where}.description`, declared['description']) ?? '';
    const type = this.#optional(`${where}.type`, declared['type']);
    const required = this.#flag(`${where}.required`, declared['required']);
    const start = opening(tag, { name, type, required, ...others });
    this.#line(where, `${start}${escaped(text)}${schema}</${tag}>`);
  }

  #schema(where: string, value: unknown): string {
    if (!isRecord(value) && typeof value !== 'function') {
      return this.#refuse(`${where}.schema`, 'is not an object');
    }
    const schema = jsonSchemaOf(
      value as OutputSchema,
      `the directive ${this.#id}: ${where}.schema`,
    );
    return element('schema', JSON.stringify(schema));
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
      this.#line(place, empty('param', { name, type, value: textOf(value) }));
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

  #attribute(where: string, name: string, value: unknown): Attributes {
    if (/^[A-Za-z_][\w-]*$/.test(name)) return { [name]: textOf(value) };
    return this.#refuse(where, 'has a name that a directive can not have');
  }

  #attributes(where: string, values: Readonly<Record<string, unknown>>): Attributes {
    return Object.assign(
      {},
      ...entries(values).map(([name, value]) => this.#attribute(`${where}.${name}`, name, value)),
    );
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

  #refuse(where: string, problem: string, hint?: string): never {
    throw new RyeError('usage', `the directive ${this.#id}: ${where} ${problem}`, { hint });
  }
}
