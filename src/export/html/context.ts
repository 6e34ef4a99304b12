import type { EventPayloads } from '../../core/events.ts';
import { foldContext } from '../../log/context.ts';
import { isKnown, pathTo, type TreeEntry } from '../../log/tree.ts';
import { type TreeRow, viewTree } from '../../log/tree-view.ts';
import type { ExportSource } from '../source.ts';
import { type Annotations, annotate } from './annotations.ts';
import { CodeRenderer } from './code.ts';
import { proseRenderer } from './prose.ts';
import { type Html, html, printable } from './safe.ts';

/** What the entries of a page are rendered with. */
export interface PageContext {
  readonly source: ExportSource;
  readonly annotations: Annotations;
  readonly code: CodeRenderer;
  readonly prose: (text: string) => Html;
  /** Entries of the open path. */
  readonly active: ReadonlySet<string>;
  /** Messages of the open path that the model would be sent next. */
  readonly inContext: ReadonlySet<string>;
  /** The newest edit of each entry on the open path. */
  readonly edits: ReadonlyMap<string, EventPayloads['context_edit']>;
  /** What people see of the tree. */
  readonly rows: readonly TreeRow[];
  /** By entry: where the conversation parts, the ways that it took. */
  readonly forks: ReadonlyMap<string, readonly TreeRow[]>;
}

/** Looks at the whole source once, so that each entry can be rendered by itself. */
export function pageContext(source: ExportSource): PageContext {
  const { tree, leafId, events } = source;
  const path = pathTo(tree, leafId);
  const code = new CodeRenderer();
  const rows = viewTree(tree);
  const sources = foldContext(tree, { leafId }).sources.filter((id) => id !== null);
  return {
    source,
    annotations: annotate(events),
    code,
    prose: proseRenderer(code),
    active: new Set(path.map(({ id }) => id)),
    inContext: new Set(sources),
    edits: new Map(path.flatMap(editOf)),
    rows,
    forks: forksOf(rows),
  };
}

function editOf(entry: TreeEntry): readonly [string, EventPayloads['context_edit']][] {
  return isKnown(entry, 'context_edit') ? [[entry.payload.target_id, entry.payload]] : [];
}

function forksOf(rows: readonly TreeRow[]): PageContext['forks'] {
  const children = new Map<string, TreeRow[]>();
  for (const row of rows) {
    if (row.parentId === null) continue;
    const siblings = children.get(row.parentId);
    if (siblings) siblings.push(row);
    else children.set(row.parentId, [row]);
  }
  return new Map([...children].filter(([, siblings]) => siblings.length > 1));
}

/** Address of an entry within the page. */
export function anchorOf(id: string): string {
  return `#entry-${encodeURIComponent(printable(id))}`;
}

/** `1 tool`, `2 tools`. */
export function count(total: number, noun: string): string {
  return `${total.toLocaleString('en')} ${noun}${total === 1 ? '' : 's'}`;
}

/** A time of day of a log, or whatever stands in its place. */
export function timeOf(timestamp: string): Html {
  const clock = /^\d{4}-\d\d-\d\dT(\d\d:\d\d:\d\d)/.exec(timestamp)?.[1];
  return html`<time datetime="${timestamp}" title="${timestamp}">${clock ?? timestamp}</time>`;
}

/** Something that is shown when a person asks for it. */
export function folded(
  { kind, summary, isOpen = false }: { kind: string; summary: Html; isOpen?: boolean },
  body: Html | readonly Html[],
): Html {
  return html`<details class="fold ${kind}"${isOpen && html` open`}><summary>${summary}</summary><div class="fold-body">${body}</div></details>`;
}
