import {
  isRecord,
  type JsonObject,
  type JsonValue,
  parseJson,
  toText,
} from '../../../kernel/core/json.ts';
import { type Editor, openEditor, press, withText } from '../chat/editor.ts';
import type { Key } from '../keyboard.ts';
import { oneLine } from '../visible.ts';

/** One of the values that a person picks from. */
export interface Choice {
  readonly label: string;
  /** Undefined: the answer has no such property. */
  readonly value: JsonValue | undefined;
}

/** Form of one step: a line of text, or picked values. */
type FieldKind = 'text' | 'number' | 'integer' | 'json' | 'any' | 'choice' | 'choices';

/** One step of a form: the answer itself, or a property of it. */
export interface Field {
  /** The property; undefined: the field is the whole answer. */
  readonly name: string | undefined;
  readonly title: string;
  readonly description: string;
  readonly kind: FieldKind;
  readonly choices: readonly Choice[];
  readonly isRequired: boolean;
  readonly schema: JsonObject;
}

/** Content of a field: the text that was typed, or the values that were picked. */
export interface Entry {
  readonly editor: Editor;
  /** Index of the choice under the cursor. */
  readonly at: number;
  readonly marked: ReadonlySet<number>;
}

/** A question's schema as fields that a person fills in, one after the other. */
export interface Form {
  readonly fields: readonly Field[];
  readonly entries: readonly Entry[];
  /** Index of the current field. */
  readonly at: number;
  /** Why the current entry cannot be used; ''. */
  readonly problem: string;
}

export type FormEffect =
  | { readonly kind: 'answer'; readonly answer: JsonValue }
  | { readonly kind: 'leave' };

export interface FormStep {
  readonly form: Form;
  readonly effect?: FormEffect;
}

/** Opens a form for the JSON Schema of an answer; without one, the answer is a text. */
export function openForm(schema: JsonObject = {}): Form {
  const properties = isRecord(schema['properties']) ? schema['properties'] : {};
  const required = new Set(Array.isArray(schema['required']) ? schema['required'] : []);
  const names = Object.keys(properties);
  const isObject = schema['type'] === 'object' && names.length > 0;
  const fields = isObject
    ? names.map((name) => fieldOf(name, properties[name], required.has(name)))
    : [fieldOf(undefined, schema, true)];
  return { fields, entries: fields.map(entryOf), at: 0, problem: '' };
}

/** Applies a key. Enter confirms the field, Escape returns to the one before. */
export function pressForm(form: Form, key: Key): FormStep {
  const { field, entry } = current(form);
  if (key.name === 'escape' || key.name === 'shift+tab') {
    if (form.at > 0) return { form: { ...form, at: form.at - 1, problem: '' } };
    return key.name === 'escape' ? { form, effect: { kind: 'leave' } } : { form };
  }
  if (field.kind === 'choice' || field.kind === 'choices') return pressChoice(form, key);
  const { editor, effect } = press(entry.editor, key);
  if (effect?.kind !== 'send') return { form: withEntry(form, { ...entry, editor }) };
  // the editor has emptied itself, but a refused text stays to be edited
  return confirmed(withEntry(form, { ...entry, editor: withText(editor, effect.text) }));
}

/** Shows why an answer was refused, in the last field. */
export function refused(form: Form, problem: string): Form {
  return { ...form, problem };
}

export function current({ fields, entries, at }: Form): {
  readonly field: Field;
  readonly entry: Entry;
} {
  const [field, entry] = [fields[at], entries[at]];
  if (!field || !entry) throw new RangeError(`the form has no field ${at}`);
  return { field, entry };
}

/** The last choice of an optional property, which Enter picks at first if the schema has no default. */
const SKIP: Choice = { label: 'skip', value: undefined };

function fieldOf(
  name: string | undefined,
  given: JsonValue | undefined,
  isRequired: boolean,
): Field {
  const schema: JsonObject = isRecord(given) ? given : {};
  const listed = choicesOf(schema);
  const kind = kindOf(schema, listed);
  const choices = kind === 'choice' && !isRequired ? [...listed, SKIP] : listed;
  const { title, description } = schema;
  return {
    name,
    title: oneLine(typeof title === 'string' ? title : (name ?? '')),
    description: oneLine(typeof description === 'string' ? description : ''),
    kind,
    choices,
    isRequired,
    schema,
  };
}

function kindOf(
  { type, items, enum: values, oneOf, anyOf }: JsonObject,
  choices: readonly Choice[],
): FieldKind {
  if (choices.length > 0) return type === 'array' && items !== undefined ? 'choices' : 'choice';
  if (type === 'integer' || type === 'number') return type;
  if (type === 'string') return 'text';
  if (type === 'object' || type === 'array') return 'json';
  const isOpen = [type, values, oneOf, anyOf].every((member) => member === undefined);
  return isOpen ? 'text' : 'any';
}

/** Returns the values that a schema lists, for one value or for the values of an array. */
function choicesOf(schema: JsonObject): readonly Choice[] {
  const { type, items, enum: values, enumNames: names, oneOf, anyOf } = schema;
  if (type === 'boolean') {
    return [
      { label: 'yes', value: true },
      { label: 'no', value: false },
    ];
  }
  if (type === 'array') return isRecord(items) ? choicesOf(items) : [];
  if (Array.isArray(values)) {
    const labels = Array.isArray(names) ? names : [];
    return values.map((value, at) => ({ label: labelOf(labels[at] ?? value), value }));
  }
  const options = Array.isArray(oneOf) ? oneOf : Array.isArray(anyOf) ? anyOf : [];
  const choices = options.flatMap((option): Choice[] => {
    if (!isRecord(option) || option['const'] === undefined) return [];
    const { title, const: value } = option as JsonObject;
    return value === undefined ? [] : [{ label: labelOf(title ?? value), value }];
  });
  return choices.length === options.length ? choices : [];
}

function labelOf(value: JsonValue): string {
  return oneLine(toText(value));
}

function entryOf({ kind, choices, schema }: Field): Entry {
  const given = schema['default'];
  const values: readonly (JsonValue | undefined)[] =
    Array.isArray(given) && kind === 'choices' ? given : [given];
  const marked = choices.flatMap(({ value }, at) => (values.includes(value) ? [at] : []));
  const isText = given !== undefined && choices.length === 0;
  return {
    editor: withText(openEditor([]), isText ? toText(given) : ''),
    at: marked[0] ?? 0,
    marked: new Set(marked),
  };
}

function withEntry(form: Form, entry: Entry): Form {
  const entries = form.entries.map((one, at) => (at === form.at ? entry : one));
  return { ...form, entries, problem: '' };
}

/** Arrows move, Space marks one of several, a digit or the first letters pick. */
function pressChoice(form: Form, key: Key): FormStep {
  const { field, entry } = current(form);
  const { choices, kind } = field;
  const { name, text } = key;
  if (name === 'enter') return confirmed(form);
  if (name === 'up' || name === 'down') {
    const at = entry.at + (name === 'up' ? -1 : 1);
    return {
      form: withEntry(form, { ...entry, at: Math.min(choices.length - 1, Math.max(0, at)) }),
    };
  }
  if (kind === 'choices' && text === ' ') {
    const marked = new Set(entry.marked);
    if (!marked.delete(entry.at)) marked.add(entry.at);
    return { form: withEntry(form, { ...entry, marked }) };
  }
  if (text === undefined || name === 'paste') return { form };
  return typed(form, text);
}

/** Picks by what is typed: `y` or `n` for a yes or no, a number of the list, or the first letters of a value. */
function typed(form: Form, text: string): FormStep {
  const { field, entry } = current(form);
  const { choices, kind, schema } = field;
  const query = `${entry.editor.text}${text}`.toLowerCase();
  const starts = (part: string): number =>
    choices.findIndex(({ label }) => label.toLowerCase().startsWith(part));
  const found = starts(query) === -1 ? text.toLowerCase() : query;
  const at = starts(found);
  const picked = withEntry(form, {
    ...entry,
    at: at === -1 ? entry.at : at,
    editor: withText(entry.editor, at === -1 ? '' : found),
  });
  if (at !== -1) return schema['type'] === 'boolean' ? confirmed(picked) : { form: picked };
  const digit = choices.length < 10 ? Number(text) : 0;
  if (!(digit >= 1 && digit <= choices.length)) return { form: picked };
  const numbered = withEntry(form, { ...entry, at: digit - 1 });
  return kind === 'choice'
    ? confirmed(numbered)
    : pressChoice(numbered, { name: 'space', text: ' ' });
}

/** Takes the entry if it can be used, and goes to the next field or answers. */
function confirmed(form: Form): FormStep {
  const { field, entry } = current(form);
  const problem = problemOf(field, entry);
  if (problem !== '') return { form: { ...form, problem } };
  if (form.at < form.fields.length - 1) return { form: { ...form, at: form.at + 1, problem: '' } };
  return { form, effect: { kind: 'answer', answer: answerOf(form) } };
}

function answerOf({ fields, entries }: Form): JsonValue {
  const [first] = fields;
  const values = fields.map((field, at) => {
    const entry = entries[at];
    return entry && valueOf(field, entry);
  });
  if (first?.name === undefined) return values[0] ?? '';
  return Object.fromEntries(
    fields.flatMap(({ name }, at) => {
      const value = values[at];
      return name === undefined || value === undefined ? [] : [[name, value] as const];
    }),
  );
}

/** Returns undefined for an optional property without a value. */
function valueOf({ kind, choices, isRequired }: Field, entry: Entry): JsonValue | undefined {
  const { text } = entry.editor;
  if (kind === 'choice') return choices[entry.at]?.value;
  if (kind === 'choices') {
    return choices.flatMap(({ value }, at) =>
      value !== undefined && entry.marked.has(at) ? [value] : [],
    );
  }
  if (text.trim() === '' && !isRequired) return undefined;
  if (kind === 'text') return text;
  if (kind === 'number' || kind === 'integer') return Number(text);
  return parseJson(text) ?? text;
}

/** Returns why an entry cannot be used; '' if it can. The schema as a whole is checked with the answer. */
function problemOf({ kind, isRequired, schema }: Field, { editor: { text } }: Entry): string {
  if (kind === 'choice' || kind === 'choices') return '';
  if (text.trim() === '') return isRequired ? 'Type an answer.' : '';
  if (kind === 'json') return parseJson(text) === undefined ? 'This is not valid JSON.' : '';
  return kind === 'number' || kind === 'integer' ? numberProblem(kind, text, schema) : '';
}

function numberProblem(
  kind: 'number' | 'integer',
  text: string,
  { minimum, maximum }: JsonObject,
): string {
  const value = Number(text);
  if (!Number.isFinite(value)) return `This is not a number: ${oneLine(text)}`;
  if (kind === 'integer' && !Number.isInteger(value)) return 'Type a whole number.';
  if (typeof minimum === 'number' && value < minimum) return `The minimum is ${minimum}.`;
  if (typeof maximum === 'number' && value > maximum) return `The maximum is ${maximum}.`;
  return '';
}
