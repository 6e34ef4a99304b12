/** Columns and rows of a terminal. */
export interface Size {
  readonly columns: number;
  readonly rows: number;
}

/** Which pane the keys move in. */
export type Focus = 'tree' | 'entry';

/** Where things stand on the screen. A head line and two foot lines frame the body. */
export interface Layout {
  readonly bodyRows: number;
  /** Columns of the tree; 0 where the entry has the screen. */
  readonly treeColumns: number;
  /** Columns of the entry as it is drawn now, or would be; lines are wrapped to it. */
  readonly entryColumns: number;
  /** Column (from 1) of the line between tree and entry; 0 where only one of them is drawn. */
  readonly border: number;
}

/** Below this width tree and entry take turns. */
const TWO_PANES = 72;
const FRAME_ROWS = 3;
const TREE_SHARE = 0.45;
/** The line between the panes, and a space. */
const BORDER_COLUMNS = 2;

export function layoutOf({ size, focus }: { readonly size: Size; readonly focus: Focus }): Layout {
  const bodyRows = Math.max(1, size.rows - FRAME_ROWS);
  const { columns } = size;
  if (columns < TWO_PANES) {
    const treeColumns = focus === 'tree' ? columns : 0;
    return { bodyRows, treeColumns, entryColumns: columns, border: 0 };
  }
  const treeColumns = Math.floor(columns * TREE_SHARE);
  const entryColumns = columns - treeColumns - BORDER_COLUMNS;
  return { bodyRows, treeColumns, entryColumns, border: treeColumns + 1 };
}

/** How a piece of text looks; the painter has the colours. */
export type Style =
  | 'plain'
  | 'dim'
  | 'heading'
  | 'key'
  | 'chosen'
  | 'chosen-dim'
  | 'user'
  | 'model'
  | 'tool'
  | 'thinking'
  | 'label'
  | 'match'
  | 'warn';

/** A piece of a line. */
export interface Span {
  readonly text: string;
  readonly style: Style;
}
