import type { ListedApproval } from '../../../kernel/app/api/approvals.ts';
import { hunksOf } from '../../../kernel/core/edit-hunks.ts';
import { type DrawnField, drawField } from '../chat/input-field.ts';
import type { Sink } from '../io.ts';
import { type Colors, displayWidth, wrapText } from '../terminal-text.ts';
import { oneLine } from '../visible.ts';
import {
  hunkLines,
  inputLines,
  oddCount,
  packed,
  pageLines,
  previewLines,
  shortInputLines,
  warningLines,
} from './approval-lines.ts';
import type { Mode } from './dialog-mode.ts';
import { formLines } from './form-lines.ts';

/** A request and its place among those that wait at the terminal. */
export interface Shown {
  readonly approval: ListedApproval;
  /** From 1. */
  readonly place: number;
  readonly total: number;
  /** Why the last decision was refused; ''. */
  readonly problem: string;
}

/** Lines of the footer, and the cursor's place in them if a text is typed. */
export interface Screen {
  readonly lines: readonly string[];
  readonly cursor?: DrawnField['cursor'];
}

interface Style {
  readonly sink: Pick<Sink, 'columns' | 'rows'>;
  readonly colors: Colors;
}

/** Fewest lines of a preview; taller terminals show more. */
const MIN_PREVIEW = 4;
const LEAVE = 'Ctrl-C leave it pending';

/** Draws a request below the stream. */
export function drawRequest(shown: Shown, mode: Mode, style: Style): Screen {
  const { colors, sink } = style;
  const { columns, rows } = sink;
  if (mode.kind === 'pages') return drawPage(shown, mode.top, style);
  if (mode.kind === 'hunks') return drawHunks(shown, mode, style);
  const head = [...headLines(shown, style), ...bodyLines(shown.approval, style)];
  const problem = shown.problem === '' ? [] : wrapText(shown.problem, columns - 3);
  const above = [...head, ...problem.map((line) => colors.red(`  ${line}`))];
  if (mode.kind === 'form') return below(above, formLines(mode.form, { columns, rows, colors }));
  if (mode.kind === 'keys') return { lines: [...above, ...keyLines(shown.approval, style)] };
  if (mode.kind === 'busy') return { lines: [...above, colors.dim('signing …')] };
  const isReason = mode.kind === 'reason';
  const title = isReason ? '  Reason, which the model reads (may be empty):' : '  Input as JSON:';
  const keys = `Enter ${isReason ? 'deny' : 'approve with it'} · Esc back · ${LEAVE}`;
  const drawn = drawField(mode.editor, {
    columns,
    rows: Math.max(2, Math.floor(rows / 3)),
    colors,
    hint: '',
  });
  const field = below([...above, colors.dim(title)], drawn);
  return { ...field, lines: [...field.lines, ...wrapText(keys, columns - 1).map(colors.dim)] };
}

function below(above: readonly string[], { lines, cursor }: DrawnField): Screen {
  const place = { row: above.length + cursor.row, column: cursor.column };
  return { lines: [...above, ...lines], cursor: place };
}

function headLines({ approval, place, total }: Shown, { colors, sink }: Style): readonly string[] {
  const { tool, id, preview, kind } = approval;
  const title = `${colors.yellow('?')} ${colors.bold(oneLine(preview.title))}`;
  const count = total > 1 ? `  (${place} of ${total})` : '';
  const facts = oneLine(kind === 'question' ? id : `${tool} ${id}`);
  const width = displayWidth(oneLine(preview.title)) + displayWidth(facts) + count.length + 6;
  if (width < sink.columns) return ['', `${title}${count}  ${colors.dim(facts)}`];
  return ['', `${title}${count}`, `  ${colors.dim(facts)}`];
}

/** The preview as far as there is room, and the reason. */
function bodyLines(approval: ListedApproval, style: Style): readonly string[] {
  const { colors, sink } = style;
  const { columns, rows } = sink;
  const all = previewLines(approval, { columns, colors });
  const room = previewRows(rows);
  const reason = oneLine(approval.reason);
  const others = shortInputLines(approval, { columns, colors });
  return [
    ...warningLines(approval, colors),
    ...headAndTail(all, room, colors),
    ...headAndTail(others, room, colors),
    ...(reason === '' ? [] : wrapText(reason, columns - 4).map((line) => colors.dim(`  ${line}`))),
  ];
}

/** Shortens lines to their head and tail, with the number of those between. */
function headAndTail(lines: readonly string[], room: number, colors: Colors): readonly string[] {
  if (lines.length <= room) return lines;
  const tail = Math.floor((room - 1) / 3);
  const rest = lines.length - (room - 1);
  return [
    ...lines.slice(0, room - 1 - tail),
    colors.yellow(`  … ${rest} more lines: d shows them`),
    ...(tail === 0 ? [] : lines.slice(-tail)),
  ];
}

function previewRows(rows: number): number {
  return Math.max(MIN_PREVIEW, Math.floor(rows / 3));
}

/**
 * True if a person has to open the details before one key decides: a character is not shown as it is, or the screen lacks a
 * part of the call. Of a diff the head and the tail are enough.
 */
export function needsReading(
  approval: ListedApproval,
  { columns, rows }: Pick<Sink, 'columns' | 'rows'>,
  colors: Colors,
): boolean {
  if (oddCount(approval) > 0) return true;
  const room = previewRows(rows);
  const others = inputLines(approval);
  if (others.length > room || others.some((line) => displayWidth(line) > columns - 4)) return true;
  return (
    approval.preview.format !== 'diff' && previewLines(approval, { columns, colors }).length > room
  );
}

function keyLines(approval: ListedApproval, { sink, colors }: Style): readonly string[] {
  const keys = [
    'y once',
    ...widerKey(approval),
    'n deny',
    ...(approval.kind === 'call' || approval.kind === 'plan' ? ['e edit'] : []),
    ...(hunksOf(approval.tool, approval.input).length > 0 ? ['h choose edits'] : []),
    'd details',
    '? help',
    LEAVE,
  ];
  return packed(keys, sink.columns - 1).map(colors.dim);
}

function widerKey({ scopes }: ListedApproval): readonly string[] {
  const widest = scopes.at(-1);
  if (widest === 'tool') return ['t this thread'];
  return widest === 'arguments' ? ['t same input in this thread'] : [];
}

/** Draws the edits of a call with a mark each, and the chosen one as a diff. */
function drawHunks(
  shown: Shown,
  { at, kept }: Extract<Mode, { kind: 'hunks' }>,
  { colors, sink }: Style,
): Screen {
  const { approval, problem } = shown;
  const style = { columns: sink.columns, colors };
  const hunks = hunksOf(approval.tool, approval.input).map((hunk) => hunkLines(hunk, style));
  const room = Math.max(MIN_PREVIEW, sink.rows - hunks.length - 7);
  const lines = hunks.flatMap((diff, place) => {
    const mark = kept[place] === true ? colors.green('✓') : colors.red('✗');
    const title = `${place === at ? colors.bold('▸') : ' '} ${mark} edit ${place + 1} of ${hunks.length}`;
    return place === at ? [title, ...headAndTail(diff, room, colors)] : [title];
  });
  const keys = packed(
    ['y keep', 'n omit', '↑↓ move', 'Enter approve the kept ones', 'Esc back', LEAVE],
    sink.columns - 1,
  );
  const above = ['', colors.bold(oneLine(approval.preview.title))];
  const red =
    problem === ''
      ? []
      : wrapText(problem, sink.columns - 3).map((line) => colors.red(`  ${line}`));
  return { lines: [...above, ...lines, ...red, ...keys.map(colors.dim)] };
}

/** Rows of a page: the screen without the status line and the keys. */
export function pageRows({ rows }: Pick<Sink, 'rows'>): number {
  return Math.max(3, rows - 6);
}

function drawPage({ approval }: Shown, top: number, { sink, colors }: Style): Screen {
  const all = pageLines(approval, { columns: sink.columns, colors });
  const room = pageRows(sink);
  const first = clampTop(approval, top, sink, colors);
  const shown = all.slice(first, first + room);
  const place = `${first + 1}–${first + shown.length} of ${all.length}`;
  const keys = packed(
    [place, ...(all.length > room ? ['Space next', 'b back', '↑↓ scroll'] : []), 'q close'],
    sink.columns - 1,
  );
  return { lines: ['', ...shown, ...keys.map(colors.dim)] };
}

/** Keeps the first line of a page within the request. */
export function clampTop(
  approval: ListedApproval,
  top: number,
  sink: Pick<Sink, 'columns' | 'rows'>,
  colors: Colors,
): number {
  const { length } = pageLines(approval, { columns: sink.columns, colors });
  return Math.max(0, Math.min(top, length - pageRows(sink)));
}
