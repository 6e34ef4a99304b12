/** What {@link JsonStrings} reports, in the order of the text. */
export interface JsonStringSink {
  openObject(): void;
  closeObject(): void;
  /** A string value begins. `key` is that of the nearest member; values of a list have the list's. */
  beginString(key: string): void;
  /** Decoded text of the string that began last. */
  text(piece: string): void;
  endString(): void;
}

const MAX_KEY_LENGTH = 256;
const ESCAPES: Readonly<Record<string, string>> = { b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' };
/** Everything that ends a run of plain characters. */
const SPECIAL = /["\\]/g;

interface Container {
  readonly isObject: boolean;
  /** Of the member that is being read, or of the list as a whole. */
  key: string;
}

/**
 * Decodes the string values of a JSON text that comes in pieces, cut anywhere. Costs O(piece) and keeps no values;
 * whatever is not JSON is passed over, because a call with such arguments is never run.
 */
export class JsonStrings {
  readonly #sink: JsonStringSink;
  readonly #containers: Container[] = [];
  #mode: 'between' | 'key' | 'value' = 'between';
  #expectsKey = false;
  #key = '';
  /** An escape sequence that the last piece cut, from its backslash on. */
  #escape = '';

  constructor(sink: JsonStringSink) {
    this.#sink = sink;
  }

  write(piece: string): void {
    let at = 0;
    while (at < piece.length) {
      if (this.#mode === 'between') at = this.#structure(piece, at);
      else if (this.#escape !== '') at = this.#escaped(piece, at);
      else at = this.#plain(piece, at);
    }
  }

  /** The text is over: ends a string that it left open, and its objects. */
  finish(): void {
    if (this.#mode === 'value') this.#sink.endString();
    this.#mode = 'between';
    for (let open = this.#containers.pop(); open; open = this.#containers.pop()) {
      if (open.isObject) this.#sink.closeObject();
    }
  }

  #structure(piece: string, at: number): number {
    switch (piece.charAt(at)) {
      case '"':
        this.#beginString();
        break;
      case '{':
        this.#containers.push({ isObject: true, key: '' });
        this.#expectsKey = true;
        this.#sink.openObject();
        break;
      case '[':
        this.#containers.push({ isObject: false, key: this.#containers.at(-1)?.key ?? '' });
        this.#expectsKey = false;
        break;
      case '}':
      case ']':
        if (this.#containers.pop()?.isObject === true) this.#sink.closeObject();
        this.#expectsKey = false;
        break;
      case ',':
        this.#expectsKey = this.#containers.at(-1)?.isObject === true;
        break;
      case ':':
        this.#expectsKey = false;
        break;
      default:
        break;
    }
    return at + 1;
  }

  #beginString(): void {
    if (this.#expectsKey) {
      this.#mode = 'key';
      this.#key = '';
      return;
    }
    this.#mode = 'value';
    this.#sink.beginString(this.#containers.at(-1)?.key ?? '');
  }

  #plain(piece: string, from: number): number {
    SPECIAL.lastIndex = from;
    const found = SPECIAL.exec(piece);
    const end = found?.index ?? piece.length;
    if (end > from) this.#emit(piece.slice(from, end));
    if (!found) return end;
    if (found[0] === '\\') this.#escape = '\\';
    else this.#endString();
    return end + 1;
  }

  #escaped(piece: string, at: number): number {
    this.#escape += piece.charAt(at);
    const kind = this.#escape.charAt(1);
    if (kind === 'u' && this.#escape.length < 6) return at + 1;
    if (kind === 'u') {
      const unit = Number.parseInt(this.#escape.slice(2), 16);
      this.#emit(Number.isNaN(unit) ? '\ufffd' : String.fromCharCode(unit));
    } else {
      this.#emit(ESCAPES[kind] ?? kind);
    }
    this.#escape = '';
    return at + 1;
  }

  #emit(text: string): void {
    if (this.#mode === 'value') this.#sink.text(text);
    else if (this.#key.length < MAX_KEY_LENGTH) this.#key += text;
  }

  #endString(): void {
    if (this.#mode === 'value') {
      this.#sink.endString();
    } else {
      const container = this.#containers.at(-1);
      if (container) container.key = this.#key;
    }
    this.#mode = 'between';
  }
}
