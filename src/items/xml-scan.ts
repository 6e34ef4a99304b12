/** One element of a text, found before it is parsed. Offsets are UTF-16 units from the start of the text. */
export interface OutlinedElement {
  readonly name: string;
  readonly start: number;
  /** After the closing `>`; the text's end where the element is not closed. */
  readonly end: number;
  /** 1 for the root. */
  readonly depth: number;
  /** What stands inside an opaque element. */
  readonly opaque?: string;
}

export interface XmlOutline {
  /** In document order. */
  readonly elements: readonly OutlinedElement[];
  /** The text with the inside of opaque elements blanked, of the same length and with the same lines. */
  readonly masked: string;
  /** The first thing that a well-formedness check would let pass and rye refuses. */
  readonly problem?: { readonly offset: number; readonly message: string };
}

const TAG_NAME = /[A-Za-z_:][\w:.-]*/y;
const BAD_ENTITY = /&(?!(?:amp|lt|gt|quot|apos|#\d+|#x[\da-fA-F]+);)/;
const NUMERIC_ENTITY = /&#(?:x([\da-fA-F]+)|(\d+));/g;
const CONTROL = /(?![\t\n\r])\p{Cc}/u;

/**
 * Finds where each element starts and ends and what the validator of the XML package does not check: DOCTYPE, undeclared or
 * impossible entities, control characters. One pass; text that is not well formed ends the outline early and
 * is left to the validator.
 */
export function outlineXml(text: string, opaque: ReadonlySet<string>): XmlOutline {
  return new Scanner(text, opaque).run();
}

interface OpenElement {
  readonly index: number;
  readonly name: string;
}

class Scanner {
  private readonly text: string;
  private readonly opaque: ReadonlySet<string>;
  private readonly elements: OutlinedElement[] = [];
  private readonly open: OpenElement[] = [];
  private readonly masked: string[] = [];
  private maskedUpTo = 0;
  private problem: XmlOutline['problem'];

  constructor(text: string, opaque: ReadonlySet<string>) {
    this.text = text;
    this.opaque = opaque;
  }

  run(): XmlOutline {
    const control = CONTROL.exec(this.text);
    if (control !== null) this.report(control.index, 'a control character is not allowed here');
    let at = 0;
    while (at < this.text.length && this.problem === undefined) {
      const tag = this.text.indexOf('<', at);
      const end = tag === -1 ? this.text.length : tag;
      this.checkEntities(at, end);
      if (tag === -1) break;
      const next = this.markup(tag);
      if (next === undefined) break;
      at = next;
    }
    this.masked.push(this.text.slice(this.maskedUpTo));
    return {
      elements: this.elements,
      masked: this.masked.join(''),
      ...(this.problem === undefined ? {} : { problem: this.problem }),
    };
  }

  /** The offset after the markup at `start`, or undefined where it is not closed. */
  private markup(start: number): number | undefined {
    if (this.text.startsWith('<!--', start)) return this.after('-->', start + 4);
    if (this.text.startsWith('<![CDATA[', start)) return this.after(']]>', start + 9);
    if (this.text.startsWith('<?', start)) return this.after('?>', start + 2);
    if (this.text.startsWith('<!', start)) {
      this.report(start, 'DOCTYPE and other declarations are not allowed');
      return undefined;
    }
    if (this.text.startsWith('</', start)) return this.closingTag(start);
    return this.openingTag(start);
  }

  private after(token: string, from: number): number | undefined {
    const found = this.text.indexOf(token, from);
    return found === -1 ? undefined : found + token.length;
  }

  private closingTag(start: number): number | undefined {
    const end = this.after('>', start);
    if (end === undefined) return undefined;
    const closed = this.open.pop();
    if (closed !== undefined) this.finish(closed.index, { end });
    return end;
  }

  private openingTag(start: number): number | undefined {
    TAG_NAME.lastIndex = start + 1;
    const name = TAG_NAME.exec(this.text)?.[0];
    if (name === undefined) return undefined;
    const end = this.endOfTag(start + 1 + name.length);
    if (end === undefined) return undefined;
    this.checkEntities(start, end);
    const index = this.elements.length;
    this.elements.push({ name, start, end, depth: this.open.length + 1 });
    if (this.text[end - 2] === '/') return end;
    if (!this.opaque.has(name)) {
      this.open.push({ index, name });
      this.finish(index, { end: this.text.length });
      return end;
    }
    return this.opaqueElement(index, name, end);
  }

  private opaqueElement(index: number, name: string, from: number): number | undefined {
    const closing = new RegExp(`</${name}\\s*>`, 'g');
    closing.lastIndex = from;
    const found = closing.exec(this.text);
    if (found === null) return undefined;
    const inside = this.text.slice(from, found.index);
    const end = found.index + found[0].length;
    this.finish(index, { end, opaque: inside });
    this.masked.push(this.text.slice(this.maskedUpTo, from), inside.replaceAll(/[^\n]/g, ' '));
    this.maskedUpTo = found.index;
    return end;
  }

  private endOfTag(from: number): number | undefined {
    let quote: string | undefined;
    for (let at = from; at < this.text.length; at += 1) {
      const character = this.text[at];
      if (quote !== undefined) {
        if (character === quote) quote = undefined;
      } else if (character === '"' || character === "'") {
        quote = character;
      } else if (character === '>') {
        return at + 1;
      }
    }
    return undefined;
  }

  private finish(index: number, change: Partial<OutlinedElement>): void {
    const element = this.elements[index];
    if (element !== undefined) this.elements[index] = { ...element, ...change };
  }

  private checkEntities(from: number, to: number): void {
    const segment = this.text.slice(from, to);
    if (!segment.includes('&')) return;
    const bad = BAD_ENTITY.exec(segment);
    if (bad !== null) {
      this.report(from + bad.index, `"&" starts no known entity; write &amp; for an ampersand`);
      return;
    }
    for (const match of segment.matchAll(NUMERIC_ENTITY)) {
      const code = match[1] === undefined ? Number(match[2]) : Number.parseInt(match[1], 16);
      if (isCharacter(code)) continue;
      this.report(from + match.index, `${match[0]} is not a character`);
      return;
    }
  }

  private report(offset: number, message: string): void {
    this.problem ??= { offset, message };
  }
}

function isCharacter(code: number): boolean {
  if (code < 0x20) return code === 9 || code === 10 || code === 13;
  return code <= 0x10_ffff && !(code >= 0xd800 && code <= 0xdfff);
}
