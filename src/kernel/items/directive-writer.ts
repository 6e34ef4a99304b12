import { basename, dirname } from 'node:path';
import { VERBS } from '../core/capability.ts';
import { RyeError } from '../core/errors.ts';
import { assertItemId, ITEM_TYPES } from '../core/ids.ts';
import { isRecord, type JsonObject } from '../core/json.ts';
import { didYouMean } from '../core/text.ts';
import { type Attributes, element, empty, entries, escaped, opening, textOf } from './xml-text.ts';

/** Reads the members of a declaration, and collects the lines of its file with the member that each comes from. */
class DeclarationLines {
  readonly lines: string[] = [];
  readonly members: string[] = [];
  /** The ID of the directive, for errors. */
  readonly id: string;

  constructor(id: string) {
    this.id = id;
  }

  line(member: string, line: string): void {
    this.lines.push(line);
    this.members.push(member);
  }

  element(name: string, text: string): void {
    this.line(name, element(name, text));
  }

  attribute(where: string, name: string, value: unknown): Attributes {
    if (/^[A-Za-z_][\w-]*$/.test(name)) return { [name]: textOf(value) };
    return this.refuse(where, 'has a name that a directive can not have');
  }

  attributes(where: string, values: Readonly<Record<string, unknown>>): Attributes {
    return Object.assign(
      {},
      ...entries(values).map(([name, value]) => this.attribute(`${where}.${name}`, name, value)),
    );
  }

  object(
    where: string,
    value: unknown,
    known?: readonly string[],
  ): Readonly<Record<string, unknown>> {
    if (!isRecord(value)) return this.refuse(where, 'is not an object');
    const unknown = known && Object.keys(value).find((name) => !known.includes(name));
    if (unknown === undefined || known === undefined) return value;
    const hint = didYouMean(unknown, known) ?? `Members are ${known.join(', ')}.`;
    return this.refuse(where, `has no member "${unknown}"`, hint);
  }

  text(where: string, value: unknown): string {
    return typeof value === 'string' && value.trim() !== ''
      ? value
      : this.refuse(where, value === undefined ? 'is missing' : 'is not a text');
  }

  optional(where: string, value: unknown): string | undefined {
    return value === undefined ? undefined : this.text(where, value);
  }

  flag(where: string, value: unknown): boolean | undefined {
    if (value === undefined || typeof value === 'boolean') return value;
    return this.refuse(where, 'is neither true nor false');
  }

  list(where: string, value: unknown): readonly string[] {
    const list: readonly unknown[] = Array.isArray(value) ? value : [value];
    return list.map((one) => this.text(where, one));
  }

  each(where: string, value: unknown): readonly (readonly [string, unknown])[] {
    if (!Array.isArray(value)) return this.refuse(where, 'is not a list');
    return value.map((one: unknown, index) => [`${where}[${index}]`, one]);
  }

  texts(where: string, value: Readonly<Record<string, unknown>>): Attributes {
    return Object.fromEntries(
      entries(value).map(([name, text]) => [name, this.text(`${where}.${name}`, text)]),
    );
  }

  refuse(where: string, problem: string, hint?: string): never {
    throw new RyeError('usage', `the directive ${this.id}: ${where} ${problem}`, { hint });
  }
}

const STEP = ['name', 'description', 'label', 'isolation', 'isolation_result', 'calls'] as const;
const FOREACH = ['item', 'in', 'parallel', 'on_error', 'process'] as const;
const IF = ['condition', 'process', 'else'] as const;
const CALL = ['primary', 'item_type', 'item_id', 'params', 'async'] as const;

/** Writes the `<process>` of a directive: steps, lists and conditions. */
class ProcessWriter {
  readonly #out: DeclarationLines;

  constructor(out: DeclarationLines) {
    this.#out = out;
  }

  write(process: unknown): void {
    this.#out.line('process', '<process>');
    this.#parts('process', process);
    this.#out.line('process', '</process>');
  }

  #parts(where: string, parts: unknown): void {
    for (const [place, part] of this.#out.each(where, parts)) {
      const members = this.#out.object(place, part);
      if (members['foreach'] !== undefined) this.#foreach(place, members);
      else if (members['if'] !== undefined) this.#if(place, members);
      else this.#step(place, this.#out.object(place, members, STEP));
    }
  }

  #foreach(place: string, part: Readonly<Record<string, unknown>>): void {
    const where = `${place}.foreach`;
    const block = this.#out.object(place, part, ['foreach'])['foreach'];
    const { process, in: list, ...others } = this.#out.object(where, block, FOREACH);
    const attributes: Attributes = {
      item: this.#out.text(`${where}.item`, others['item']),
      in: Array.isArray(list) ? textOf(list) : this.#out.text(`${where}.in`, list),
      parallel: this.#parallel(`${where}.parallel`, others['parallel']),
      on_error: this.#out.optional(`${where}.on_error`, others['on_error']),
    };
    this.#out.line(where, opening('foreach', attributes));
    this.#parts(`${where}.process`, process);
    this.#out.line(where, '</foreach>');
  }

  #parallel(where: string, value: unknown): number | undefined {
    if (value === undefined || typeof value === 'number') return value;
    return this.#out.refuse(where, 'is not a number');
  }

  #if(place: string, part: Readonly<Record<string, unknown>>): void {
    const where = `${place}.if`;
    const block = this.#out.object(place, part, ['if'])['if'];
    const { condition, process, else: otherwise } = this.#out.object(where, block, IF);
    const text = this.#out.text(`${where}.condition`, condition);
    this.#out.line(where, opening('if', { condition: text }));
    this.#parts(`${where}.process`, process);
    this.#out.line(where, '</if>');
    if (otherwise === undefined) return;
    this.#out.line(`${where}.else`, '<else>');
    this.#parts(`${where}.else`, otherwise);
    this.#out.line(`${where}.else`, '</else>');
  }

  #step(where: string, step: Readonly<Record<string, unknown>>): void {
    const optional = (name: string): string | undefined =>
      this.#out.optional(`${where}.${name}`, step[name]);
    const attributes = {
      name: this.#out.text(`${where}.name`, step['name']),
      description: optional('description'),
      label: optional('label'),
      isolation: optional('isolation'),
      isolation_result: optional('isolation_result'),
    };
    this.#out.line(where, opening('step', attributes));
    for (const [place, call] of this.#out.each(`${where}.calls`, step['calls'])) {
      this.#call(place, this.#out.object(place, call, CALL));
    }
    this.#out.line(where, '</step>');
  }

  #call(where: string, call: Readonly<Record<string, unknown>>): void {
    const verb = VERBS.find((known) => known === call['primary']);
    if (verb === undefined)
      this.#out.refuse(`${where}.primary`, `is not one of ${VERBS.join(', ')}`);
    const item_type = this.#out.text(`${where}.item_type`, call['item_type']);
    const item_id = this.#out.text(`${where}.item_id`, call['item_id']);
    const isAsync = this.#out.flag(`${where}.async`, call['async']);
    this.#out.line(where, opening(verb, { item_type, item_id, async: isAsync }));
    const { params = {} } = call;
    for (const [name, value] of entries(this.#out.object(`${where}.params`, params))) {
      const place = `${where}.params.${name}`;
      const type = this.#paramType(place, value);
      this.#out.line(place, empty('param', { name, type, value: textOf(value) }));
    }
    this.#out.line(where, `</${verb}>`);
  }

  #paramType(where: string, value: unknown): string {
    if (Array.isArray(value)) return 'array';
    if (isRecord(value)) return 'object';
    if (typeof value === 'number') return Number.isInteger(value) ? 'integer' : 'number';
    if (typeof value === 'string' || typeof value === 'boolean') return typeof value;
    return this.#out.refuse(where, `is ${String(value)}, which a call can't have`);
  }
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
  'hooks',
  'process',
] as const;
const INPUT = ['type', 'required', 'default', 'enum', 'secret', 'description'] as const;
const OUTPUT = ['type', 'required', 'description', 'from', 'schema'] as const;
const PERMISSIONS = [...VERBS, 'ceiling', 'optional', 'acknowledge'] as const;
const GRANT = ['id', 'ask', 'reason', 'optional'] as const;
const MODEL = ['tier', 'id', 'provider', 'fallback', 'thinking'] as const;
const POSITIONS = ['system', 'before', 'after', 'suppress'] as const;
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
] as const;
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

interface Grant extends Attributes {
  readonly id: string;
}

/** Returns the schema of an output as JSON Schema. Throws for a value that is none; `where` names its member. */
export type SchemaReader = (schema: unknown, where: string) => JsonObject;

/** Writes the text of a directive file, one element per line, with the member that each line comes from. */
export class DirectiveWriter {
  readonly #out: DeclarationLines;
  readonly #root: Readonly<Record<string, unknown>>;
  readonly #id: string;

  readonly #readSchema: SchemaReader;

  constructor(declaration: unknown, readSchema: SchemaReader) {
    this.#readSchema = readSchema;
    this.#id = isRecord(declaration) ? String(declaration['id']) : '';
    this.#out = new DeclarationLines(this.#id);
    this.#root = this.#out.object('the declaration', declaration, ROOT);
    assertItemId(this.#out.text('id', this.#root['id']), 'directive');
  }

  /** The member that each line comes from. */
  get members(): readonly string[] {
    return this.#out.members;
  }

  text(): string {
    const { version = '1.0.0', author = 'program' } = this.#root;
    const folder = dirname(this.#id);
    this.#out.line('id', '```xml');
    const head = {
      name: basename(this.#id),
      version: this.#out.text('version', version),
      extends: this.#out.optional('extends', this.#root['extends']),
    };
    this.#out.line(head.extends === undefined ? 'id' : 'extends', opening('directive', head));
    this.#out.line('id', '<metadata>');
    this.#out.element('description', this.#out.text('description', this.#root['description']));
    this.#out.line('id', element('category', folder === '.' ? '' : folder));
    this.#out.element('author', author === '' ? '' : this.#out.text('author', author));
    this.#metadata();
    this.#out.line('id', '</metadata>');
    this.#inputs();
    this.#outputs();
    const { process } = this.#root;
    if (process !== undefined) new ProcessWriter(this.#out).write(process);
    this.#out.line('id', '</directive>');
    this.#out.line('id', '```');
    const body = this.#out.text('instructions', this.#root['instructions']);
    return `${this.#out.lines.join('\n')}\n\n${body}\n`;
  }

  #metadata(): void {
    const { model, limits, permissions, behavior, context, hooks } = this.#root;
    const next = this.#out.optional('continuationDirective', this.#root['continuationDirective']);
    if (next !== undefined) {
      this.#out.line('continuationDirective', element('continuation_directive', next));
    }
    if (model !== undefined) {
      const choice = this.#out.object('model', model, MODEL);
      this.#out.line('model', empty('model', this.#out.texts('model', choice)));
    }
    if (limits !== undefined) {
      for (const [name, value] of entries(this.#out.object('limits', limits))) {
        const where = `limits.${name}`;
        if (typeof value !== 'number') this.#out.refuse(where, 'is not a number');
        this.#out.line(where, empty('limits', this.#out.attribute(where, name, value)));
      }
    }
    if (permissions !== undefined) this.#permissions(permissions);
    for (const [name, value] of entries(this.#out.object('behavior', behavior ?? {}))) {
      const where = `behavior.${name}`;
      this.#out.line(where, empty('behavior', this.#out.attribute(where, name, value)));
    }
    if (context !== undefined) this.#context(this.#out.object('context', context, POSITIONS));
    if (hooks !== undefined) this.#hooks(hooks);
  }

  #permissions(value: unknown): void {
    if (value === '*') {
      this.#out.line('permissions', element('permissions', '*'));
      return;
    }
    const {
      ceiling,
      optional: isOptional,
      acknowledge = [],
      ...grants
    } = this.#out.object('permissions', value, PERMISSIONS);
    const optional = this.#out.flag('permissions.optional', isOptional);
    const attributes = { ceiling: this.#out.flag('permissions.ceiling', ceiling) };
    this.#out.line('permissions', opening('permissions', attributes));
    for (const [verb, items] of entries(grants)) {
      const where = `permissions.${verb}`;
      if (items === '*') this.#out.line(where, element(verb, '*'));
      else {
        for (const [type, ids] of entries(this.#out.object(where, items, ITEM_TYPES))) {
          for (const [place, grant] of this.#grants(`${where}.${type}`, ids)) {
            const { id, ...own } = grant;
            const written = element(type, id, { optional, ...own });
            this.#out.line(place, `<${verb}>${written}</${verb}>`);
          }
        }
      }
    }
    for (const [where, one] of this.#out.each('permissions.acknowledge', acknowledge)) {
      const { risk, reason, tool } = this.#out.object(where, one, ['risk', 'reason', 'tool']);
      const text = this.#out.text(`${where}.reason`, reason);
      const attributesOfOne = {
        risk: this.#out.text(`${where}.risk`, risk),
        tool: this.#out.optional(`${where}.tool`, tool),
      };
      this.#out.line(where, element('acknowledge', text, attributesOfOne));
    }
    this.#out.line('permissions', '</permissions>');
  }

  /** Reads ids; one that asks or may be missing is an object. */
  #grants(where: string, value: unknown): readonly (readonly [string, Grant])[] {
    const list: readonly unknown[] = Array.isArray(value) ? value : [value];
    return list.map((one, index) => {
      const place = Array.isArray(value) ? `${where}[${index}]` : where;
      if (!isRecord(one)) return [place, { id: this.#out.text(place, one) }];
      const { id, ask, reason, optional } = this.#out.object(place, one, GRANT);
      const asks = typeof ask === 'string' || this.#out.flag(`${place}.ask`, ask) === true;
      return [
        place,
        {
          id: this.#out.text(`${place}.id`, id),
          optional: this.#out.flag(`${place}.optional`, optional),
          ...(asks ? { ask: true } : {}),
          reason: this.#out.optional(`${place}.reason`, typeof ask === 'string' ? ask : reason),
        },
      ];
    });
  }

  #context(context: Readonly<Record<string, unknown>>): void {
    this.#out.line('context', '<context>');
    for (const [position, ids] of entries(context)) {
      const where = `context.${position}`;
      for (const [place, { id, optional }] of this.#grants(where, ids))
        this.#out.line(place, element(position, id, { optional }));
    }
    this.#out.line('context', '</context>');
  }

  #hooks(hooks: unknown): void {
    this.#out.line('hooks', '<hooks>');
    for (const [where, hook] of this.#out.each('hooks', hooks)) {
      const { condition, action, actions, ...attributes } = this.#out.object(where, hook, HOOK);
      this.#out.line(where, opening('hook', this.#out.attributes(where, attributes)));
      if (condition !== undefined) this.#condition(`${where}.condition`, condition);
      if (action !== undefined) this.#action(`${where}.action`, action);
      for (const [place, one] of this.#out.each(`${where}.actions`, actions ?? [])) {
        this.#action(place, one);
      }
      this.#out.line(where, '</hook>');
    }
    this.#out.line('hooks', '</hooks>');
  }

  #condition(where: string, value: unknown): void {
    const { any, all, not, ...test } = this.#out.object(where, value, CONDITION);
    if (entries(test).length > 0) {
      this.#out.line(where, empty('condition', this.#out.attributes(where, test)));
    }
    for (const [name, list] of entries({ any, all, not: not === undefined ? not : [not] })) {
      this.#out.line(where, opening(name));
      for (const [place, one] of this.#out.each(`${where}.${name}`, list))
        this.#condition(place, one);
      this.#out.line(where, `</${name}>`);
    }
  }

  #action(where: string, value: unknown): void {
    const { inject, params, data, ...rest } = this.#out.object(where, value, ACTION);
    if (inject !== undefined)
      this.#out.line(where, element('inject', this.#out.text(where, inject)));
    if (inject !== undefined && entries({ params, data, ...rest }).length === 0) return;
    this.#out.line(where, opening('action', this.#out.attributes(where, rest)));
    for (const [name, one] of entries(this.#out.object(`${where}.params`, params ?? data ?? {}))) {
      this.#out.line(`${where}.${name}`, element('param', textOf(one), { name }));
    }
    this.#out.line(where, '</action>');
  }

  #inputs(): void {
    const { inputs = {} } = this.#root;
    this.#out.line('inputs', '<inputs>');
    for (const [name, value] of entries(this.#out.object('inputs', inputs))) {
      const where = `inputs.${name}`;
      const declared = this.#out.object(where, value, INPUT);
      const { default: fallback } = declared;
      // a separator at the end keeps commas in a value
      const values = declared['enum'] === undefined ? [] : this.#out.list(where, declared['enum']);
      const others = {
        enum: values.length === 0 ? undefined : `${values.join('|')}|`,
        default: fallback === undefined ? undefined : textOf(fallback),
        secret: this.#out.flag(`${where}.secret`, declared['secret']),
      };
      this.#declaration('input', name, declared, { others, schema: '' });
    }
    this.#out.line('inputs', '</inputs>');
  }

  #outputs(): void {
    const { outputs = {} } = this.#root;
    this.#out.line('outputs', '<outputs>');
    for (const [name, value] of entries(this.#out.object('outputs', outputs))) {
      const where = `outputs.${name}`;
      const declared = this.#out.object(where, value, OUTPUT);
      const from = this.#out.optional(`${where}.from`, declared['from']);
      const schema =
        declared['schema'] === undefined ? '' : this.#schema(where, declared['schema']);
      this.#declaration('output', name, declared, { others: { from }, schema });
    }
    this.#out.line('outputs', '</outputs>');
  }

  #declaration(
    tag: 'input' | 'output',
    name: string,
    declared: Readonly<Record<string, unknown>>,
    { others, schema }: { readonly others: Attributes; readonly schema: string },
  ): void {
    const where = `${tag}s.${name}`;
    const text = this.#out.optional(`${where}.description`, declared['description']) ?? '';
    const type = this.#out.optional(`${where}.type`, declared['type']);
    const required = this.#out.flag(`${where}.required`, declared['required']);
    const start = opening(tag, { name, type, required, ...others });
    this.#out.line(where, `${start}${escaped(text)}${schema}</${tag}>`);
  }

  #schema(where: string, value: unknown): string {
    if (!isRecord(value) && typeof value !== 'function') {
      return this.#out.refuse(`${where}.schema`, 'is not an object');
    }
    const schema = this.#readSchema(value, `the directive ${this.#id}: ${where}.schema`);
    return element('schema', JSON.stringify(schema));
  }
}
