import MarkdownIt, { type Token } from 'markdown-it';
import { withoutControls } from '../../core/text.ts';
import type { CodeRenderer } from './code.ts';
import { type Html, html, printable, trusted } from './safe.ts';

/** Longer texts are shown as they are, not as Markdown. */
const MAX_MARKDOWN_CHARS = 200_000;
/** Headings of a message stand below those of the page. */
const HEADING_SHIFT = 2;
const MAX_HEADING = 6;

const LINK = /^(?:https?|mailto):/i;

/**
 * Somebody's Markdown as HTML that can do nothing: no markup of its own, links only to the web and to mail, images as
 * words. Lines end where they end, as in a chat: prompts are often no Markdown but XML.
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

/** Links tell nobody where they were clicked, cells are aligned by a class, headings stand below those of the page. */
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
