import hljs from 'highlight.js/lib/common';
import { type Html, html, printable, trusted } from './safe.ts';

/** A longer text is shown as its head and its tail. */
const MAX_SHOWN_CHARS = 16_384;
/** Colouring costs far more than escaping, so a page has a budget for it. */
const MAX_COLOURED_CHARS = 500_000;

/** Shows code and plain output. One for each page: it counts what the page has coloured so far. */
export class CodeRenderer {
  #left = MAX_COLOURED_CHARS;

  /** A block of code or output; coloured where the language is known and the text is not too long. */
  block(text: string, language?: string): Html {
    if (text.length <= MAX_SHOWN_CHARS)
      return html`<pre><code>${this.inline(text, language)}</code></pre>`;
    const half = MAX_SHOWN_CHARS / 2;
    return html`<pre><code>${text.slice(0, half)}</code></pre><p class="cut">${(text.length - MAX_SHOWN_CHARS).toLocaleString('en')} characters are left out here; the log has them.</p><pre><code>${text.slice(-half)}</code></pre>`;
  }

  /** The code itself, without a block around it. */
  inline(text: string, language?: string): Html {
    const isKnown = language !== undefined && hljs.getLanguage(language) !== undefined;
    if (!isKnown || text.length > MAX_SHOWN_CHARS || text.length > this.#left) return html`${text}`;
    this.#left -= text.length;
    return trusted(hljs.highlight(printable(text), { language, ignoreIllegals: true }).value);
  }
}
