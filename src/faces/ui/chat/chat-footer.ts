import type { Footer } from '../render/live-view.ts';
import { type Colors, truncate } from '../terminal-text.ts';
import { oneLine } from '../visible.ts';
import type { Editor } from './editor.ts';
import { drawField } from './input-field.ts';

/** The parts of the screen below the output. */
export interface FooterParts {
  /** A request that waits while a message is typed. */
  readonly request: readonly string[];
  /** The message that is being sent. */
  readonly sending: string | undefined;
  readonly queued: readonly string[];
  readonly editor: Editor;
  readonly hint: string;
  /** The facts about the conversation. */
  readonly rest: readonly string[];
}

interface FooterStyle {
  readonly colors: Colors;
  readonly columns: number;
  readonly rows: number;
}

/** Draws what waits, the input field and the facts about the conversation. */
export function footerOf(parts: FooterParts, style: FooterStyle): Footer {
  const { colors, columns, rows } = style;
  const { request, sending, queued, editor, hint, rest } = parts;
  const waiting = [
    ...(sending === undefined ? [] : [`  sending: ${oneLine(sending)}`]),
    ...queued.map((text) => `  queued: ${oneLine(text)}`),
  ].map((line) => colors.dim(truncate(line, columns - 1)));
  const above = [...request, rule(style), ...waiting];
  const height = Math.max(1, Math.floor(rows / 3));
  const field = drawField(editor, { columns, rows: height, colors, hint });
  const { row, column } = field.cursor;
  return {
    lines: [...above, ...field.lines, ...rest],
    cursor: { row: above.length + row, column },
  };
}

/** Puts a rule above lines that have the keys. */
export function ruledOff({ lines, cursor }: Footer, style: FooterStyle): Footer {
  const place = cursor && { row: cursor.row + 1, column: cursor.column };
  return { lines: [rule(style), ...lines], ...(place ? { cursor: place } : {}) };
}

function rule({ colors, columns }: FooterStyle): string {
  return colors.dim('─'.repeat(Math.max(1, columns - 1)));
}
