import hljs from 'highlight.js/lib/common';
import MarkdownIt, { type Token } from 'markdown-it';
import type { ContentBlock } from '../../kernel/core/message.ts';
import { withoutControls } from '../../kernel/core/text.ts';
import { type Html, html, NOTHING, printable, trusted } from './safe.ts';

/** `1 tool`, `2 tools`. */
export function count(total: number, noun: string): string {
  return `${total.toLocaleString('en')} ${noun}${total === 1 ? '' : 's'}`;
}

export function formatBytes(bytes: number): string {
  if (bytes < 1000) return `${Math.ceil(bytes)} B`;
  return bytes < 1_000_000
    ? `${(bytes / 1000).toFixed(1)} kB`
    : `${(bytes / 1_000_000).toFixed(1)} MB`;
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

/** The beginning of a text on one line, cut between words. */
export function gist(text: string, max = 160): string {
  const line = text
    .slice(0, max * 2)
    .replaceAll(/\s+/g, ' ')
    .trim();
  return line.length <= max ? line : `${line.slice(0, wordEnd(line, max - 1)).trimEnd()}…`;
}

/** Without the marks of Markdown. */
export function plain(text: string): string {
  return text
    .replaceAll(/\*\*|__|`+/g, '')
    .replaceAll(/(?<![\w*])\*(?=\S)([^*\n]{1,200})\*(?![\w*])/g, '$1')
    .replaceAll(/(?:^|(?<=\s))#{1,6}\s/g, '')
    .replaceAll(/!?\[([^\]]{0,200})\]\([^)]{0,500}\)/g, '$1')
    .trim();
}

/** Longer texts are shown as they are, not as Markdown. */
const MAX_MARKDOWN_CHARS = 200_000;
/** Headings of a message rank below the page's headings. */
const HEADING_SHIFT = 2;
const MAX_HEADING = 6;

const LINK = /^(?:https?|mailto):/i;

/**
 * Renders untrusted Markdown as harmless HTML: no raw markup, links only to the web and to mail, images as words. Keeps
 * line ends, as a chat does: prompts are often XML instead of Markdown.
 */
export function proseRenderer(code: CodeRenderer): (text: string) => Html {
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
    code.whole(content.replace(/\n$/, ''), info.trim().split(/\s+/)[0]?.toLowerCase()).text;
  rules.fence = (tokens, index) => fence(tokens[index]?.content ?? '', tokens[index]?.info ?? '');
  rules.code_block = (tokens, index) => fence(tokens[index]?.content ?? '', '');
  markdown.core.ruler.push('rye', ({ tokens }) => {
    harmless(tokens);
  });
  return (text) =>
    text.length > MAX_MARKDOWN_CHARS
      ? code.whole(text)
      : html`<div class="prose" dir="auto">${trusted(withoutControls(markdown.render(printable(text))))}</div>`;
}

/** Links send no referrer, classes align cells, headings rank below the page's headings. */
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

/** The lines and characters of a long text that are shown before a person asks for the rest. */
const PREVIEW_LINES = 10;
const PREVIEW_CHARS = 1000;
/** A longer text is shown as its head and its tail. */
const MAX_SHOWN_CHARS = 65_536;
/** Coloring costs far more than escaping, so a page has a budget for it. */
const MAX_COLORED_CHARS = 500_000;
const MAX_COLORED_BLOCK = 16_384;

/** Shows code and plain output. One for each page: it counts the characters that the page has colored so far. */
export class CodeRenderer {
  #left = MAX_COLORED_CHARS;

  /** Returns a block with the first lines; the rest is folded below them. */
  preview(text: string, language?: string): Html {
    const end = previewEnd(text);
    if (end >= text.length) return this.whole(text, language);
    const rest = text.slice(end).replace(/^\n/, '');
    const lines = rest.split('\n').length;
    const amount = lines > 1 ? count(lines, 'more line') : count(rest.length, 'more character');
    const head = html`<pre><code>${this.#colored(text.slice(0, end), language)}</code></pre>`;
    return withRest(head, amount, this.whole(rest, language));
  }

  /** Returns a block of code or output; colors it if the language is known and the text is short enough. */
  whole(text: string, language?: string): Html {
    if (text.length <= MAX_SHOWN_CHARS)
      return html`<pre><code>${this.#colored(text, language)}</code></pre>`;
    const half = MAX_SHOWN_CHARS / 2;
    const head = text.slice(0, lineEnd(text, half));
    const tail = text.slice(text.length - half);
    const end = tail.slice(lineEnd(tail, Math.min(1000, half), 'first'));
    const omitted = text.length - head.length - end.length;
    return html`<pre><code>${head}</code></pre><p class="cut">${omitted.toLocaleString('en')} characters are omitted here; the log has them.</p><pre><code>${end.replace(/^\n/, '')}</code></pre>`;
  }

  #colored(text: string, language: string | undefined): Html {
    const isLanguage = language !== undefined && hljs.getLanguage(language) !== undefined;
    if (!isLanguage || text.length > MAX_COLORED_BLOCK || text.length > this.#left)
      return html`${text}`;
    this.#left -= text.length;
    return trusted(hljs.highlight(printable(text), { language, ignoreIllegals: true }).value);
  }
}

/** A block whose rest opens with a click, without a script. */
export function withRest(head: Html, amount: string, rest: Html): Html {
  return html`<div class="long">${head}<details class="more"><summary><span class="closed">… ${amount}</span><span class="opened">Show less</span></summary>${rest}</details></div>`;
}

/** Returns the end of the preview of a text: a line end, or the gap between two words of a very long line. */
function previewEnd(text: string): number {
  let end = -1;
  for (let line = 0; line < PREVIEW_LINES; line += 1) {
    const next = text.indexOf('\n', end + 1);
    if (next === -1 || next > PREVIEW_CHARS) {
      if (text.length <= PREVIEW_CHARS) return text.length;
      return end > 0 ? end : wordEnd(text, PREVIEW_CHARS);
    }
    end = next;
  }
  // hiding a last line or two saves nothing
  const hidden = text.slice(end + 1, end + PREVIEW_CHARS).split('\n').length;
  return hidden <= 2 && text.length - end < 200 ? text.length : end;
}

/** The last line end up to a place, or the first; without one the end of a word. */
function lineEnd(text: string, place: number, which: 'first' | 'last' = 'last'): number {
  const found =
    which === 'last' ? text.lastIndexOf('\n', place) : text.slice(0, place).indexOf('\n');
  return found > 0 ? found : wordEnd(text, place);
}

/** The last space up to a place; the place itself in a text without one. */
function wordEnd(text: string, place: number): number {
  const space = text.lastIndexOf(' ', place);
  return space > place / 2 ? space : place;
}

/** The first characters of the files that a page shows, in base64. */
const IMAGE_STARTS: Readonly<Record<string, string>> = {
  'image/png': 'iVBORw0KGgo',
  'image/jpeg': '/9j/',
  'image/gif': 'R0lGOD',
  'image/webp': 'UklGR',
};
const MAX_IMAGE_BYTES = 2_000_000;
const MAX_PAGE_IMAGE_BYTES = 16_000_000;

type Image = Extract<ContentBlock, { type: 'image' }>;

/** Shows images as data of the page, never SVG. One for each page: it counts their bytes. */
export class ImageRenderer {
  #left = MAX_PAGE_IMAGE_BYTES;
  readonly #omitted = new Set<Image>();

  /** True for an image that is not part of the page. */
  omits(image: Image): boolean {
    return this.#omitted.has(image);
  }

  show(image: Image): Html {
    const { media_type: type, data } = image;
    const bytes = (data.length * 3) / 4;
    const facts = `${type}, ${formatBytes(bytes)}`;
    const start = Object.hasOwn(IMAGE_STARTS, type) ? IMAGE_STARTS[type] : undefined;
    const isImage =
      start !== undefined && data.startsWith(start) && /^[A-Za-z0-9+/]+={0,2}$/.test(data);
    if (isImage && bytes <= MAX_IMAGE_BYTES && bytes <= this.#left) {
      this.#left -= bytes;
      return html`<img class="shown-image" src="data:${type};base64,${data}" alt="Image (${facts})" title="${facts}" decoding="async">`;
    }
    this.#omitted.add(image);
    const why = isImage ? 'too large for this page' : 'not a PNG, JPEG, GIF or WebP image';
    return html`<p class="image">image (${facts}) is omitted: ${why}; the log has it</p>`;
  }
}

/** A quiet line, or nothing for no text. */
export function quiet(text: string | undefined): Html {
  return text === undefined || text === '' ? NOTHING : html`<p class="quiet">${text}</p>`;
}
