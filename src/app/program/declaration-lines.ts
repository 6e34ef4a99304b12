import { RyeError } from '../../core/errors.ts';
import { isRecord } from '../../core/json.ts';
import { didYouMean } from '../../core/text.ts';
import { type Attributes, element, entries, textOf } from './xml-text.ts';

/** Reads the members of a declaration, and collects the lines of its file with the member that each comes from. */
export class DeclarationLines {
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
