import type { Colors } from '../terminal-text.ts';
import type { Frame, FrameRow } from './frame.ts';
import type { Span, Style } from './layout.ts';

const ESCAPE = '\u001b';
const ERASE_REST = `${ESCAPE}[K`;
/** Other screen, no cursor, no wrapping: a character that is wider than thought must not push the next line down. */
export const ENTER_SCREEN = `${ESCAPE}[?1049h${ESCAPE}[?25l${ESCAPE}[?7l${ESCAPE}[2J`;
/** Clears the other screen first: after a resize, tmux would leave some of it on the first one. */
export const LEAVE_SCREEN = `${ESCAPE}[H${ESCAPE}[2J${ESCAPE}[?7h${ESCAPE}[?25h${ESCAPE}[?1049l`;
// the terminal shows all of a frame at once where it can
const BEGIN = `${ESCAPE}[?2026h`;
const END = `${ESCAPE}[?2026l`;

/** Returns the output that updates the screen: the changed rows, or all rows without a last screen. */
export function paint(
  frame: Frame,
  { last, colors }: { readonly last: readonly string[] | undefined; readonly colors: Colors },
): { readonly output: string; readonly lines: readonly string[] } {
  const lines = frame.rows.map((row) => lineOf(row, frame.border, colors));
  const changes = lines
    .map((line, at) => (last?.[at] === line ? '' : `${ESCAPE}[${at + 1};1H${line}`))
    .join('');
  const output = changes === '' ? '' : `${BEGIN}${changes}${END}`;
  return { output, lines };
}

/** Positions the right pane by column, because terminals disagree on the width of some scripts. */
function lineOf({ left, right }: FrameRow, border: number, colors: Colors): string {
  const start = styled(left, colors);
  if (!right || border === 0) return `${start}${ERASE_REST}`;
  const column = `${ERASE_REST}${ESCAPE}[${border}G`;
  return `${start}${column}${colors.dim('│')} ${styled(right, colors)}${ERASE_REST}`;
}

function styled(spans: readonly Span[], colors: Colors): string {
  return spans.map(({ text, style }) => (text === '' ? '' : INKS[style](colors)(text))).join('');
}

type Ink = (colors: Colors) => (text: string) => string;

const INKS: Readonly<Record<Style, Ink>> = {
  plain: () => (text) => text,
  dim: (colors) => colors.dim,
  heading: (colors) => colors.bold,
  key: (colors) => colors.cyan,
  chosen: (colors) => colors.inverse,
  'chosen-dim': (colors) => colors.underline,
  user: (colors) => colors.green,
  model: (colors) => colors.blue,
  tool: (colors) => colors.magenta,
  thinking: (colors) => colors.italic,
  code: (colors) => colors.cyan,
  added: (colors) => colors.green,
  removed: (colors) => colors.red,
  label: (colors) => colors.yellow,
  match: (colors) => colors.yellow,
  warn: (colors) => colors.yellow,
};
