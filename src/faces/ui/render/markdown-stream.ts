import {
  codeLine,
  type MarkdownBlock,
  type MarkdownStyle,
  markdownBlocks,
  renderBlock,
} from './markdown.ts';

/** Lines of a block that is still arriving. A longer block is committed in parts if its type permits it. */
const MAX_PENDING_LINES = 12;
/** Characters of a block that cannot be committed in parts. */
const MAX_PENDING_CHARACTERS = 64 * 1024;
const OPEN_FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`\s]*)/;

/**
 * Renders Markdown while it arrives. A block is final when the next one begins, the lines of a code block at once, and
 * the items of a long list one by one.
 */
export class MarkdownStream {
  #text = '';
  /** The fence and language of a code block with a committed start. */
  #fence: { readonly mark: string; readonly language: string } | undefined;
  #hasLines = false;
  /** The pending text continues a partly committed block. */
  #continues = false;
  #endsWithHeading = false;

  push(text: string): void {
    this.#text += text;
  }

  get isEmpty(): boolean {
    return this.#text.trim() === '' && this.#fence === undefined;
  }

  /** Returns the final lines that have not been returned before. */
  take(style: MarkdownStyle): readonly string[] {
    const lines: string[] = [];
    if (this.#fence) lines.push(...this.#takeCode(this.#fence, style));
    if (this.#fence) return lines;
    const blocks = this.#blocks();
    const last = blocks.at(-1);
    for (const one of blocks.slice(0, -1)) lines.push(...this.#rendered(one, style));
    if (!last) return lines;
    this.#text = linesFrom(this.#text, last.start);
    if (blocks.length > 1) this.#continues = false;
    lines.push(...this.#takeParts(last, style));
    return lines;
  }

  /** Returns the lines of the block that is still arriving. */
  pending(style: MarkdownStyle): readonly string[] {
    if (this.#fence) return codeLine(this.#text, this.#fence.language, style);
    return this.#blocks().flatMap((one, at) => [
      ...(at === 0 ? this.#gap(one) : ['']),
      ...renderBlock(one, style),
    ]);
  }

  /** Returns all remaining lines. The next text is a separate document, after an empty line. */
  end(style: MarkdownStyle): readonly string[] {
    const lines = [...this.take(style)];
    if (this.#fence && this.#text !== '') {
      lines.push(...codeLine(this.#text, this.#fence.language, style));
    } else if (!this.#fence) {
      for (const one of this.#blocks()) lines.push(...this.#rendered(one, style));
    }
    this.#text = '';
    this.#fence = undefined;
    this.#continues = false;
    this.#hasLines = false;
    this.#endsWithHeading = false;
    return lines;
  }

  #blocks(): readonly MarkdownBlock[] {
    return markdownBlocks(this.#text.replaceAll('\t', '    '));
  }

  #gap({ type }: MarkdownBlock): readonly string[] {
    const isClose = this.#endsWithHeading && type !== 'heading_open';
    return this.#hasLines && !this.#continues && !isClose ? [''] : [];
  }

  #rendered(one: MarkdownBlock, style: MarkdownStyle): readonly string[] {
    const lines = [...this.#gap(one), ...renderBlock(one, style)];
    this.#hasLines = true;
    this.#continues = false;
    this.#endsWithHeading = one.type === 'heading_open';
    return lines;
  }

  /** Commits the parts of a block that cannot change. */
  #takeParts(block: MarkdownBlock, style: MarkdownStyle): readonly string[] {
    if (block.type === 'fence') return this.#openFence(block, style);
    if (this.#text.length > MAX_PENDING_CHARACTERS) {
      const end = this.#text.lastIndexOf('\n') + 1;
      return end === 0 ? [] : this.#takeUpTo(end, style);
    }
    if (!block.type.endsWith('_list_open')) return [];
    const last = block.tokens.findLast(
      ({ type, level }) => type === 'list_item_open' && level === 1,
    );
    const start = last?.map?.[0] ?? 0;
    if (start < MAX_PENDING_LINES) return [];
    return this.#takeUpTo(this.#text.length - linesFrom(this.#text, start).length, style);
  }

  #takeUpTo(end: number, style: MarkdownStyle): readonly string[] {
    const rest = this.#text.slice(end);
    this.#text = this.#text.slice(0, end);
    const lines = this.#blocks().flatMap((one) => this.#rendered(one, style));
    this.#text = rest;
    this.#continues = true;
    return lines;
  }

  #openFence(block: MarkdownBlock, style: MarkdownStyle): readonly string[] {
    const [line, mark = '', language = ''] = OPEN_FENCE.exec(this.#text) ?? [];
    const end = this.#text.indexOf('\n') + 1;
    if (line === undefined || end === 0) return [];
    const lines = [...this.#gap(block)];
    this.#fence = { mark, language };
    this.#text = this.#text.slice(end);
    this.#hasLines = true;
    this.#endsWithHeading = false;
    return [...lines, ...this.#takeCode(this.#fence, style)];
  }

  #takeCode(
    { mark, language }: { readonly mark: string; readonly language: string },
    style: MarkdownStyle,
  ): readonly string[] {
    const lines: string[] = [];
    for (let end = this.#text.indexOf('\n'); end !== -1; end = this.#text.indexOf('\n')) {
      const line = this.#text.slice(0, end);
      this.#text = this.#text.slice(end + 1);
      if (isClosing(line, mark)) {
        this.#fence = undefined;
        break;
      }
      lines.push(...codeLine(line, language, style));
    }
    // the closing fence of a finished message has no line feed
    if (this.#fence && isClosing(this.#text, mark)) {
      this.#text = '';
    }
    return lines;
  }
}

function isClosing(line: string, mark: string): boolean {
  const closing = line.trim();
  return closing.length >= mark.length && closing === (mark[0] ?? '').repeat(closing.length);
}

function linesFrom(text: string, line: number): string {
  let at = 0;
  for (let count = 0; count < line; count += 1) at = text.indexOf('\n', at) + 1;
  return text.slice(at);
}
