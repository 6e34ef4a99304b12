import { withoutControls } from '../../kernel/core/text.ts';

/** Text that is HTML already. Only {@link html} and {@link trusted} make it. */
export class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  toString(): string {
    return this.text;
  }
}

/** A value in a template; texts are escaped, `false` and `undefined` render as nothing. */
type Part = Html | string | number | false | undefined | readonly Html[];

/** Template tag: the literal parts are HTML, every value is text unless it is {@link Html}. */
export function html(strings: TemplateStringsArray, ...parts: readonly Part[]): Html {
  let text = strings[0] ?? '';
  for (const [index, part] of parts.entries()) text += asHtml(part) + (strings[index + 1] ?? '');
  return new Html(text);
}

/** Vouches for markup that a renderer made: of markdown-it without HTML, of highlight.js, or of this program itself. */
export function trusted(text: string): Html {
  return new Html(text);
}

export const NOTHING = new Html('');

function asHtml(part: Part): string {
  if (part === undefined || part === false) return '';
  if (part instanceof Html) return part.text;
  if (typeof part === 'string') return escapeText(part);
  // what a log holds need not have the type that it should
  return Array.isArray(part) ? part.map(asHtml).join('') : escapeText(String(part));
}

const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

function escapeText(text: string): string {
  return printable(text).replaceAll(/[&<>"']/g, (character) => ESCAPES[character] ?? '');
}

const TERMINAL_STYLE = new RegExp(`${String.fromCodePoint(0x1b)}\\[[\\d;?]*[A-Za-z]`, 'g');

/** Without terminal colors and control characters, which a page can't show, and with one kind of line end. */
export function printable(text: string): string {
  return withoutControls(text.replaceAll(TERMINAL_STYLE, ''));
}
