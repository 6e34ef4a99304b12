import { VERBS } from '../../core/capability.ts';
import { isRecord } from '../../core/json.ts';
import type { DeclarationLines } from './declaration-lines.ts';
import { type Attributes, empty, entries, opening, textOf } from './xml-text.ts';

const STEP = ['name', 'description', 'isolation', 'isolation_result', 'calls'] as const;
const FOREACH = ['item', 'in', 'parallel', 'on_error', 'process'] as const;
const IF = ['condition', 'process', 'else'] as const;
const CALL = ['primary', 'item_type', 'item_id', 'params', 'async'] as const;

/** Writes the `<process>` of a directive: steps, lists and conditions. */
export class ProcessWriter {
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
