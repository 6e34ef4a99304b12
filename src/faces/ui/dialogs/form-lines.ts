import { type DrawnField, drawField } from '../chat/input-field.ts';
import type { Colors } from '../terminal-text.ts';
import { truncate, wrapText } from '../terminal-text.ts';
import { packed } from './approval-lines.ts';
import { type Choice, current, type Entry, type Field, type Form } from './question-form.ts';

interface Style {
  readonly columns: number;
  readonly rows: number;
  readonly colors: Colors;
}

/** Choices that are shown at once. */
const WINDOW = 8;

/** Draws the current field of a form: its name, the choices or the text, and the keys. */
export function formLines(form: Form, style: Style): DrawnField {
  const { colors, columns } = style;
  const { field, entry } = current(form);
  const head = headLines(form, field, style);
  const problem = wrapText(form.problem, columns - 3).map((line) => colors.red(`  ${line}`));
  const below = [
    ...(form.problem === '' ? [] : problem),
    ...packed(keysOf(form, field), columns - 1).map(colors.dim),
  ];
  if (field.choices.length > 0) {
    const lines = [...head, ...choiceLines(field, entry, style), ...below];
    return { lines, cursor: { row: head.length, column: 0 } };
  }
  const drawn = drawField(entry.editor, {
    columns,
    rows: Math.max(1, Math.floor(style.rows / 4)),
    colors,
    hint: hintOf(field),
  });
  return {
    lines: [...head, ...drawn.lines, ...below],
    cursor: { row: head.length + drawn.cursor.row, column: drawn.cursor.column },
  };
}

function headLines(
  { fields, at }: Form,
  { name, title, description, isRequired }: Field,
  { colors, columns }: Style,
): readonly string[] {
  if (name === undefined && title === '' && description === '') return [];
  const place = fields.length > 1 ? `${at + 1}/${fields.length} ` : '';
  const optional = isRequired ? '' : ' (optional)';
  const first =
    title === '' ? [] : [`  ${colors.dim(place)}${colors.bold(title)}${colors.dim(optional)}`];
  const rest = description === '' ? [] : wrapText(description, columns - 3);
  return [...first, ...rest.map((line) => `  ${colors.dim(line)}`)];
}

function choiceLines(
  { choices, kind }: Field,
  { at, marked }: Entry,
  { columns, colors }: Style,
): readonly string[] {
  const first = Math.max(0, Math.min(at - Math.floor(WINDOW / 2), choices.length - WINDOW));
  const shown = choices.slice(first, first + WINDOW);
  const numbers = choices.length < 10;
  const line = ({ label }: Choice, index: number): string => {
    const isAt = index === at;
    const box = kind === 'choices' ? (marked.has(index) ? '[x] ' : '[ ] ') : '';
    const number = numbers ? `${index + 1}  ` : '';
    const text = truncate(`${box}${number}${label}`, columns - 5);
    return isAt ? `${colors.cyan('  ▸ ')}${colors.bold(text)}` : `    ${text}`;
  };
  const lines = shown.map((choice, index) => line(choice, first + index));
  const rest = choices.length - shown.length;
  return rest > 0 ? [...lines, colors.dim(`    ${at + 1} of ${choices.length}`)] : lines;
}

function hintOf({ kind, schema, isRequired }: Field): string {
  const { minimum, maximum } = schema;
  const range = [
    ...(typeof minimum === 'number' ? [`from ${minimum}`] : []),
    ...(typeof maximum === 'number' ? [`to ${maximum}`] : []),
  ].join(' ');
  const what = { number: 'a number', integer: 'a whole number', json: 'JSON', any: 'text or JSON' };
  const name = kind === 'number' || kind === 'integer' || kind === 'json' || kind === 'any';
  const wanted = name ? `${what[kind]} ${range}`.trim() : 'type an answer';
  return isRequired ? wanted : `${wanted}; Enter skips it`;
}

function keysOf({ at, fields }: Form, { kind, schema, isRequired }: Field): readonly string[] {
  const back = at > 0 ? 'Esc back' : 'Esc decline';
  const next = at < fields.length - 1 ? 'Enter next' : 'Enter answer';
  const pick =
    schema['type'] === 'boolean'
      ? [isRequired ? 'y yes · n no' : 'y yes · n no · s skip']
      : kind === 'choices'
        ? ['↑↓ move · Space mark']
        : kind === 'choice'
          ? ['↑↓ choose']
          : [];
  return [...pick, next, back, 'Ctrl-C leave it pending'];
}
