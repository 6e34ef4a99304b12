/** Columns and rows of a terminal. */
export interface Size {
  readonly columns: number;
  readonly rows: number;
}

/** The pane that the keys control. */
export type Focus = 'tree' | 'entry';

/** Layout of the screen. A header and two footer lines frame the body. */
export interface Layout {
  readonly bodyRows: number;
  /** Columns of the tree; 0 if the entry has the screen. */
  readonly treeColumns: number;
  /** Columns of the entry, even if it is hidden; its lines are wrapped to them. */
  readonly entryColumns: number;
  /** Column (from 1) of the line between tree and entry; 0 if only one of them is drawn. */
  readonly border: number;
}

/** Minimum columns to show tree and entry side by side. */
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

/** Style of a piece of text; the painter maps it to colors. */
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
  | 'code'
  | 'added'
  | 'removed'
  | 'label'
  | 'match'
  | 'warn';

/** A piece of a line. */
export interface Span {
  readonly text: string;
  readonly style: Style;
}
