import { XMLParser, XMLValidator } from 'fast-xml-parser';
import { RyeError, type SourceLocation } from '../core/errors.ts';
import { isRecord } from '../core/json.ts';
import { Locator, type SourceText, shifted } from './source.ts';
import { outlineXml, type XmlOutline } from './xml-scan.ts';

/** Largest XML text, in UTF-16 units. */
const MAX_LENGTH = 1024 * 1024;
const MAX_DEPTH = 64;

/** An element of a validated document. Attribute values and text are decoded. */
export interface XmlElement {
  readonly kind: 'element';
  readonly name: string;
  readonly attributes: ReadonlyMap<string, string>;
  readonly children: readonly XmlNode[];
  /** Place of the opening `<` in the file. */
  readonly location: SourceLocation;
  /** The element as it was written. */
  readonly raw: string;
}

/** A run of text; `verbatim` text comes from CDATA or an opaque element and keeps its white space. */
export interface XmlText {
  readonly kind: 'text';
  readonly text: string;
  readonly verbatim: boolean;
  /** Nearest place known: that of the enclosing element. */
  readonly location: SourceLocation;
}

export type XmlNode = XmlElement | XmlText;

const parser = new XMLParser({
  preserveOrder: true,
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

/**
 * Validates and parses an XML text with exactly one root element. DOCTYPE, entities other than the five
 * predefined and numeric ones, more than 1 MiB and more than 64 levels are refused. The inside of `opaque` elements
 * ends at the first matching closing tag and is taken as it stands, however malformed. Errors: `xml_malformed` with the place in
 * the file.
 */
export function parseXml(source: SourceText, opaque: ReadonlySet<string>): XmlElement {
  if (source.text.length > MAX_LENGTH) {
    throw malformed('the XML is larger than 1 MiB', shifted(source, 1, 1));
  }
  const locator = new Locator(source);
  const outline = outlineXml(source.text, opaque);
  if (outline.problem !== undefined) {
    throw malformed(outline.problem.message, locator.at(outline.problem.offset));
  }
  assertWellFormed(outline.masked, source);
  const deepest = outline.elements.find(({ depth }) => depth > MAX_DEPTH);
  if (deepest !== undefined) {
    throw malformed(`elements are nested deeper than ${MAX_DEPTH}`, locator.at(deepest.start));
  }
  return new TreeBuilder(source, locator, outline).build(parseOrdered(outline.masked, source));
}

function assertWellFormed(text: string, source: SourceText): void {
  const verdict = XMLValidator.validate(text);
  if (verdict === true) return;
  const { msg, line, col } = verdict.err;
  // The validator counts lines from the start of the fence; people count them from the start of the file.
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
    hint: 'Correct the XML at that place; text with < or & belongs in CDATA or a <raw> element.',
  });
}

/** Joins the parser's tree with the places that the outline found: both list elements in document order. */
class TreeBuilder {
  private readonly source: SourceText;
  private readonly locator: Locator;
  private readonly outline: XmlOutline;
  private next = 0;

  constructor(source: SourceText, locator: Locator, outline: XmlOutline) {
    this.source = source;
    this.locator = locator;
    this.outline = outline;
  }

  build(parsed: unknown): XmlElement {
    const top = shifted(this.source, 1, 1);
    const roots = this.nodes(parsed, top).filter((node) => node.kind === 'element');
    const [root, extra] = roots;
    if (root === undefined) throw malformed('there is no element', top);
    if (extra !== undefined) {
      throw malformed(
        `<${extra.name}> stands beside the root element <${root.name}>`,
        extra.location,
      );
    }
    return root;
  }

  private nodes(parsed: unknown, parent: SourceLocation): XmlNode[] {
    if (!Array.isArray(parsed)) return [];
    return parsed.flatMap((entry: unknown) => (isRecord(entry) ? [this.node(entry, parent)] : []));
  }

  private node(entry: Record<string, unknown>, parent: SourceLocation): XmlNode {
    if (typeof entry['#text'] === 'string') {
      return {
        kind: 'text',
        text: decodeEntities(entry['#text']),
        verbatim: false,
        location: parent,
      };
    }
    if (Array.isArray(entry['#cdata'])) {
      const text = entry['#cdata'].map((part: unknown) =>
        isRecord(part) && typeof part['#text'] === 'string' ? part['#text'] : '',
      );
      return { kind: 'text', text: text.join(''), verbatim: true, location: parent };
    }
    return this.element(entry);
  }

  private element(entry: Record<string, unknown>): XmlElement {
    const name = Object.keys(entry).find((key) => key !== ':@') ?? '';
    const place = this.outline.elements[this.next];
    this.next += 1;
    const location = this.locator.at(place?.start ?? 0);
    // The parser renames what would collide with members of Object; no element of an item is called so.
    if (place === undefined || place.name !== name) {
      throw malformed(`<${place?.name ?? name}> is not a usable element name`, location);
    }
    const attributes = isRecord(entry[':@']) ? entry[':@'] : {};
    const inner = this.nodes(entry[name], location);
    const { opaque } = place;
    return {
      kind: 'element',
      name,
      attributes: new Map(
        Object.entries(attributes).map(([key, value]) => [key, decodeEntities(String(value))]),
      ),
      children:
        opaque === undefined ? inner : [{ kind: 'text', text: opaque, verbatim: true, location }],
      location,
      raw: this.source.text.slice(place.start, place.end),
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

/** The element children of `element`, those called `name` only when it is given. */
export function childElements(element: XmlElement, name?: string): readonly XmlElement[] {
  return element.children.filter(
    (child) => child.kind === 'element' && (name === undefined || child.name === name),
  ) as readonly XmlElement[];
}

/** The text of an element without that of its child elements; white space around it goes, inside CDATA it stays. */
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
