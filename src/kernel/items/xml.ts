import { type XMLMetaData, XMLParser, XMLValidator } from 'fast-xml-parser';
import { RyeError, type SourceLocation } from '../core/errors.ts';
import { isRecord, type JsonObject, type JsonValue, parseJson } from '../core/json.ts';
import { Locator, type SourceText, shifted } from './source.ts';

/** Maximum length of an XML text in UTF-16 units. */
const MAX_LENGTH = 1024 * 1024;
const MAX_DEPTH = 64;

/** An element of a validated document. Attribute values and text are decoded. */
export interface XmlElement {
  readonly kind: 'element';
  readonly name: string;
  readonly attributes: ReadonlyMap<string, string>;
  readonly children: readonly XmlNode[];
  /** Location of the opening `<` in the file. */
  readonly location: SourceLocation;
  /** The element as written. */
  readonly raw: string;
}

/** A run of text. `verbatim` text comes from CDATA or an opaque element and keeps its whitespace. */
export interface XmlText {
  readonly kind: 'text';
  readonly text: string;
  readonly verbatim: boolean;
  /** Location of the enclosing element. */
  readonly location: SourceLocation;
}

export type XmlNode = XmlElement | XmlText;

const parser = new XMLParser({
  preserveOrder: true,
  captureMetaData: true,
  ignoreAttributes: false,
  attributeNamePrefix: '',
  parseTagValue: false,
  parseAttributeValue: false,
  trimValues: false,
  cdataPropName: '#cdata',
  processEntities: false,
  ignoreDeclaration: true,
  ignorePiTags: true,
  maxNestedTags: MAX_DEPTH + 1,
});
/** Key under which the parser stores the offsets of an element. */
const OFFSETS = XMLParser.getMetaDataSymbol() as symbol;

/**
 * Validates and parses an XML text with exactly one root element. Refuses DOCTYPE, entities other than the five
 * predefined and numeric ones, more than 1 MiB and more than 64 levels. The content of an `opaque` element ends at the
 * first matching closing tag and is returned unchanged, however malformed. Throws `xml_malformed` with the location in
 * the file.
 */
export function parseXml(source: SourceText, opaque: ReadonlySet<string>): XmlElement {
  if (source.text.length > MAX_LENGTH) {
    throw malformed('the XML is larger than 1 MiB', shifted(source, 1, 1));
  }
  const locator = new Locator(source);
  const masked = maskXml(source.text, opaque, locator);
  assertWellFormed(masked.text, source);
  if (masked.end < source.text.length) {
    throw malformed('malformed markup', locator.at(masked.end));
  }
  const builder = new TreeBuilder(source, locator, masked.contents);
  return builder.root(parseOrdered(masked.text, source));
}

interface MaskedXml {
  /** The text with opaque content blanked; offsets stay the same. */
  readonly text: string;
  /** The content of each opaque element, by the offset of the element. */
  readonly contents: ReadonlyMap<number, string>;
  /** Offset of the first markup that was not recognized; the text's length if there is none. */
  readonly end: number;
}

/** The lookahead keeps the name from backtracking, which would take quadratic time in an unclosed tag. */
const TAG = String.raw`<([A-Za-z_:][\w:.-]*)(?![\w:.-])(?:"[^"]*"|'[^']*'|[^"'>])*>`;
/** Quotes must close before the first `?>`: the validator ends the instruction there, the parser after the quote. */
const INSTRUCTION = String.raw`<\?(?!>)(?:"(?:(?!\?>)[^"])*"|'(?:(?!\?>)[^'])*'|(?!\?>)[^"'])*\?>`;
const MARKUP = new RegExp(
  String.raw`[^<]+|<!--[^]*?-->|<!\[CDATA\[[^]*?\]\]>|<!(?!--|\[CDATA\[)|${INSTRUCTION}|</[^>]*>|${TAG}`,
  'y',
);
const BAD_ENTITY = /&(?!(?:amp|lt|gt|quot|apos|#\d+|#x[\da-fA-F]+);)/;
const NUMERIC_ENTITY = /&#(?:x([\da-fA-F]+)|(\d+));/g;
const CONTROL = /(?![\t\n\r])\p{Cc}/u;

/**
 * Refuses what fast-xml-parser accepts (declarations, unknown entities, control characters) or reports without a
 * location (deep nesting), and blanks opaque content, which its validator would check. Stops at markup that is not well
 * formed: the validator has the better message.
 */
function maskXml(text: string, opaque: ReadonlySet<string>, locator: Locator): MaskedXml {
  const control = text.search(CONTROL);
  if (control !== -1) throw malformed('control characters are not allowed', locator.at(control));
  const pieces: string[] = [];
  const contents = new Map<number, string>();
  let depth = 0;
  let at = 0;
  let unmasked = 0;
  while (at < text.length) {
    MARKUP.lastIndex = at;
    const [markup, name] = MARKUP.exec(text) ?? [];
    if (markup === undefined) break;
    if (markup === '<!') {
      throw malformed('DOCTYPE and other declarations are not allowed', locator.at(at));
    }
    const start = at;
    at += markup.length;
    if (name === undefined) {
      if (!markup.startsWith('<')) assertEntities(markup, start, locator);
      if (markup.startsWith('</')) depth -= 1;
      continue;
    }
    assertEntities(markup, start, locator);
    if (depth >= MAX_DEPTH) {
      throw malformed(`elements are nested deeper than ${MAX_DEPTH}`, locator.at(start));
    }
    if (markup.endsWith('/>')) continue;
    depth += 1;
    if (!opaque.has(name)) continue;
    const length = text.slice(at).search(new RegExp(`</${name}\\s*>`));
    if (length === -1) break;
    const content = text.slice(at, at + length);
    contents.set(start, content);
    pieces.push(text.slice(unmasked, at), content.replaceAll(/[^\n]/g, ' '));
    at += length;
    unmasked = at;
  }
  return { text: pieces.join('') + text.slice(unmasked), contents, end: at };
}

function assertEntities(text: string, offset: number, locator: Locator): void {
  if (!text.includes('&')) return;
  const bad = text.search(BAD_ENTITY);
  if (bad !== -1) {
    const message = '"&" starts no known entity; write &amp; for an ampersand';
    throw malformed(message, locator.at(offset + bad));
  }
  for (const match of text.matchAll(NUMERIC_ENTITY)) {
    const code = match[1] === undefined ? Number(match[2]) : Number.parseInt(match[1], 16);
    if (!isCharacter(code))
      throw malformed(`${match[0]} is not a character`, locator.at(offset + match.index));
  }
}

function isCharacter(code: number): boolean {
  if (code < 0x20) return code === 9 || code === 10 || code === 13;
  return code <= 0x10_ffff && !(code >= 0xd800 && code <= 0xdfff);
}

function assertWellFormed(text: string, source: SourceText): void {
  const verdict = XMLValidator.validate(text);
  if (verdict === true) return;
  const { msg, line, col } = verdict.err;
  // the validator counts lines from the start of the fence, readers from the start of the file
  const message = msg.replace(
    /line (\d+)/g,
    (_, found: string) => `line ${Number(found) + source.line - 1}`,
  );
  throw malformed(message.replace(/\.$/, ''), shifted(source, line, col ?? 1));
}

function parseOrdered(text: string, source: SourceText): unknown {
  try {
    return parser.parse(text);
  } catch (error) {
    const reason =
      error instanceof Error ? error.message.replace(/^\[SECURITY\] /, '') : String(error);
    throw malformed(reason, shifted(source, 1, 1));
  }
}

function malformed(message: string, location: SourceLocation): RyeError {
  return new RyeError('xml_malformed', message, {
    location,
    hint: 'Correct the XML there; put text with < or & into CDATA or a <raw> element.',
  });
}

/** Converts the parser's output to elements with their location, raw text and decoded entities. */
class TreeBuilder {
  readonly #source: SourceText;
  readonly #locator: Locator;
  readonly #contents: MaskedXml['contents'];

  constructor(source: SourceText, locator: Locator, contents: MaskedXml['contents']) {
    this.#source = source;
    this.#locator = locator;
    this.#contents = contents;
  }

  root(parsed: unknown): XmlElement {
    const top = shifted(this.#source, 1, 1);
    const [root, extra] = this.#nodes(parsed, top).filter((node) => node.kind === 'element');
    if (root === undefined) throw malformed('the XML has no element', top);
    if (extra === undefined) return root;
    throw malformed(
      `<${extra.name}> is a second root element beside <${root.name}>`,
      extra.location,
    );
  }

  #nodes(parsed: unknown, parent: SourceLocation): XmlNode[] {
    if (!Array.isArray(parsed)) return [];
    return parsed.flatMap((entry: unknown) => (isRecord(entry) ? [this.#node(entry, parent)] : []));
  }

  #node(entry: Record<string, unknown>, location: SourceLocation): XmlNode {
    const { '#text': text, '#cdata': cdata } = entry;
    if (typeof text === 'string') {
      return { kind: 'text', text: decodeEntities(text), verbatim: false, location };
    }
    if (!Array.isArray(cdata)) return this.#element(entry);
    const texts = cdata.map((part: unknown) =>
      isRecord(part) && typeof part['#text'] === 'string' ? part['#text'] : '',
    );
    return { kind: 'text', text: texts.join(''), verbatim: true, location };
  }

  #element(entry: Record<string, unknown>): XmlElement {
    const { startIndex = 0, endIndex = 0 } = Reflect.get(entry, OFFSETS) as XMLMetaData;
    const raw = this.#source.text.slice(startIndex, endIndex);
    const location = this.#locator.at(startIndex);
    const name = Object.keys(entry).find((key) => key !== ':@') ?? '';
    const written = /^<([\w:.-]+)/.exec(raw)?.[1];
    // the parser renames what would collide with members of Object; no element of an item has such a name
    if (written !== name) {
      throw malformed(`<${written ?? name}> is not a usable element name`, location);
    }
    const attributes = isRecord(entry[':@']) ? Object.entries(entry[':@']) : [];
    const content = this.#contents.get(startIndex);
    return {
      kind: 'element',
      name,
      attributes: new Map(attributes.map(([key, value]) => [key, decodeEntities(String(value))])),
      children:
        content === undefined
          ? this.#nodes(entry[name], location)
          : [{ kind: 'text', text: content, verbatim: true, location }],
      location,
      raw,
    };
  }
}

const NAMED: Readonly<Record<string, string>> = {
  amp: '&',
  lt: '<',
  gt: '>',
  quot: '"',
  apos: "'",
};

function decodeEntities(text: string): string {
  if (!text.includes('&')) return text;
  return text.replaceAll(
    /&(?:#x([\da-fA-F]+)|#(\d+)|(\w+));/g,
    (whole, ...groups: (string | undefined)[]) => {
      const [hex, decimal, name] = groups;
      if (name !== undefined) return NAMED[name] ?? whole;
      return String.fromCodePoint(hex === undefined ? Number(decimal) : Number.parseInt(hex, 16));
    },
  );
}

/** Returns the child elements of `element`, or only those with the given name. */
export function childElements(element: XmlElement, name?: string): readonly XmlElement[] {
  return element.children.filter(
    (child) => child.kind === 'element' && (name === undefined || child.name === name),
  ) as readonly XmlElement[];
}

/** Returns the text of an element without its child elements, trimmed except inside CDATA. */
export function textOf(element: XmlElement): string {
  const runs = element.children.filter((child) => child.kind === 'text');
  if (runs.some(({ verbatim }) => verbatim)) {
    return runs.map(({ text, verbatim }) => (verbatim ? text : text.trim())).join('');
  }
  return runs
    .map(({ text }) => text)
    .join('')
    .trim();
}

const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

/**
 * Converts an XML text to a JSON value: a boolean, null, a number, a list or an object, else text. A number that JSON cannot
 * hold, such as an id of 20 digits, stays text.
 */
export function typedValue(text: string): JsonValue {
  if (text === 'true') return true;
  if (text === 'false') return false;
  if (text === 'null') return null;
  const number = NUMBER.test(text) ? Number(text) : Number.NaN;
  if (Number.isSafeInteger(number) || (Number.isFinite(number) && text.includes('.')))
    return number;
  if (/^[[{]/.test(text)) return parseJson(text) ?? text;
  return text;
}

/** Like {@link typedValue} for data, in which a number is one only if it is written as JSON writes it: `1.10` and `12e3` are text. */
export function exactValue(text: string): JsonValue {
  const value = typedValue(text);
  return typeof value === 'number' && String(value) !== text ? text : value;
}

/**
 * Converts an element to JSON: attributes and child elements become typed members, a repeated child a list. An element
 * with neither becomes its typed text.
 */
export function elementToJson(element: XmlElement): JsonValue {
  const children = childElements(element);
  if (element.attributes.size === 0 && children.length === 0) return typedValue(textOf(element));
  const members = new Map<string, JsonValue>();
  // the operand of a condition may be compared with a text: 1.10 is not 1.1 there
  const isOperand = (name: string): boolean => element.name === 'condition' && name === 'value';
  for (const [name, value] of element.attributes)
    members.set(name, isOperand(name) ? exactValue(value) : typedValue(value));
  for (const child of children) {
    const value = elementToJson(child);
    const earlier = members.get(child.name);
    if (earlier === undefined) members.set(child.name, value);
    else members.set(child.name, Array.isArray(earlier) ? [...earlier, value] : [earlier, value]);
  }
  return Object.fromEntries(members) satisfies JsonObject;
}

/** True for `true`, `yes` and `1` in any case. */
export function isTrue(text: string | undefined): boolean {
  return text !== undefined && /^(?:true|yes|1)$/i.test(text.trim());
}
