import hljs from 'highlight.js/lib/common';
import MarkdownIt, { type Token } from 'markdown-it';
import type { EventPayloads } from '../../core/events.ts';
import { withoutControls } from '../../core/text.ts';
import { foldContext } from '../../log/context.ts';
import { isKnown, pathTo, type TreeEntry } from '../../log/tree.ts';
import { type TreeRow, viewTree } from '../../log/tree-view.ts';
import type { ExportSource } from '../source.ts';
import { type Annotations, annotate } from './annotations.ts';
import { type Html, html, printable, trusted } from './safe.ts';

/** Everything that rendering an entry needs. */
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
  /** The visible part of the tree. */
  readonly rows: readonly TreeRow[];
  /** The branches of the conversation by the entry where it forks. */
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

/** Renders a log's time of day; shows any other value as it is. */
export function renderTime(timestamp: string): Html {
  const clock = /^\d{4}-\d\d-\d\dT(\d\d:\d\d:\d\d)/.exec(timestamp)?.[1];
  return html`<time datetime="${timestamp}" title="${timestamp}">${clock ?? timestamp}</time>`;
}

/** Something that is shown when a person asks for it. */
export function folded(
  kind: string,
  summary: Html,
  body: Html | readonly Html[],
  isOpen = false,
): Html {
  return html`<details class="fold ${kind}"${isOpen && html` open`}><summary>${summary}</summary><div class="fold-body">${body}</div></details>`;
}

/** Longer texts are shown as they are, not as Markdown. */
const MAX_MARKDOWN_CHARS = 200_000;
/** Headings of a message rank below those of the page. */
const HEADING_SHIFT = 2;
const MAX_HEADING = 6;

const LINK = /^(?:https?|mailto):/i;

/**
 * Renders untrusted Markdown as harmless HTML: no raw markup, links only to the web and to mail, images as words. Keeps
 * line ends, as a chat does: prompts are often XML instead of Markdown.
 */
function proseRenderer(code: CodeRenderer): (text: string) => Html {
  const markdown = new MarkdownIt({ html: false, linkify: true, breaks: true });
  markdown.linkify.set({ fuzzyLink: false, fuzzyEmail: false });
  markdown.validateLink = (url) => LINK.test(url);
  const { rules } = markdown.renderer;
  rules.image = (tokens, index) => {
    const token = tokens[index];
    const source = token?.attrGet('src') ?? '';
    return html`<span class="image" title="${source}">image, not loaded: ${token?.content ?? ''}</span>`
      .text;
  };
  const fence = (content: string, info: string): string =>
    code.block(content.replace(/\n$/, ''), info.trim().split(/\s+/)[0]?.toLowerCase()).text;
  rules.fence = (tokens, index) => fence(tokens[index]?.content ?? '', tokens[index]?.info ?? '');
  rules.code_block = (tokens, index) => fence(tokens[index]?.content ?? '', '');
  markdown.core.ruler.push('rye', ({ tokens }) => {
    harmless(tokens);
  });
  return (text) =>
    text.length > MAX_MARKDOWN_CHARS
      ? code.block(text)
      : html`<div class="prose" dir="auto">${trusted(withoutControls(markdown.render(printable(text))))}</div>`;
}

/** Links send no referrer, classes align cells, headings rank below those of the page. */
function harmless(tokens: readonly Token[]): void {
  for (const token of tokens) {
    if (token.type === 'link_open') {
      token.attrSet('rel', 'noopener noreferrer nofollow');
      token.attrSet('target', '_blank');
    } else if (token.type === 'td_open' || token.type === 'th_open') {
      // a style attribute is what the page's own policy forbids
      const alignment = /^text-align:(right|center)$/.exec(token.attrGet('style') ?? '')?.[1];
      token.attrs = alignment === undefined ? null : [['class', alignment]];
    } else if (/^heading_(?:open|close)$/.test(token.type)) {
      token.tag = `h${Math.min(MAX_HEADING, Number(token.tag.slice(1)) + HEADING_SHIFT)}`;
    }
    harmless(token.children ?? []);
  }
}

/** A longer text is shown as its head and its tail. */
const MAX_SHOWN_CHARS = 16_384;
/** Coloring costs far more than escaping, so a page has a budget for it. */
const MAX_COLORED_CHARS = 500_000;

/** Shows code and plain output. One for each page: it counts the characters that the page has colored so far. */
export class CodeRenderer {
  #left = MAX_COLORED_CHARS;

  /** Returns a block of code or output; colors it if the language is known and the text is short enough. */
  block(text: string, language?: string): Html {
    if (text.length <= MAX_SHOWN_CHARS)
      return html`<pre><code>${this.inline(text, language)}</code></pre>`;
    const half = MAX_SHOWN_CHARS / 2;
    return html`<pre><code>${text.slice(0, half)}</code></pre><p class="cut">${(text.length - MAX_SHOWN_CHARS).toLocaleString('en')} characters are omitted here; the log has them.</p><pre><code>${text.slice(-half)}</code></pre>`;
  }

  /** The code itself, without a block around it. */
  inline(text: string, language?: string): Html {
    const isLanguage = language !== undefined && hljs.getLanguage(language) !== undefined;
    if (!isLanguage || text.length > MAX_SHOWN_CHARS || text.length > this.#left)
      return html`${text}`;
    this.#left -= text.length;
    return trusted(hljs.highlight(printable(text), { language, ignoreIllegals: true }).value);
  }
}
