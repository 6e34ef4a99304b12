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
