import * as fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { RyeError } from '../../src/kernel/core/errors.ts';
import { escapeXml } from '../../src/kernel/core/text.ts';
import type { XmlElement } from '../../src/kernel/items/xml.ts';
import {
  childElements,
  elementToJson,
  exactValue,
  parseXml,
  textOf,
  typedValue,
} from '../../src/kernel/items/xml.ts';
import { errorOf, where } from './helpers.ts';

const OPAQUE = new Set(['raw', 'template', 'example']);

function parse(text: string, line = 1): XmlElement {
  return parseXml({ path: 'f.md', text, line, column: 1 }, OPAQUE);
}

describe('parseXml', () => {
  it('reads attributes, text, children and their locations', () => {
    const root = parse('<a x="1 &amp; 2">\n  t\n  <b y=\'"\'/>\n</a>', 10);
    expect(root.attributes.get('x')).toBe('1 & 2');
    expect(textOf(root)).toBe('t');
    const [b] = childElements(root);
    expect(b?.name).toBe('b');
    expect(b?.attributes.get('y')).toBe('"');
    expect(b?.location).toEqual({ path: 'f.md', line: 12, column: 3 });
  });

  it('keeps an element as it was written', () => {
    const [p] = childElements(parse('<a>\n<p k="1">* <q/></p>\n<r/></a>'));
    expect(p?.raw).toBe('<p k="1">* <q/></p>');
  });

  it('decodes numeric entities and keeps CDATA exactly', () => {
    const root = parse('<a> &#65;&#x1F600; <![CDATA[ <z> & ]]> </a>');
    expect(textOf(root)).toBe('A😀 <z> & ');
  });

  it('keeps the content of opaque elements, however malformed', () => {
    const root = parse('<a><raw> <b & </a> </raw><example>x<raw>y</example><c/></a>');
    const [raw, example, c] = childElements(root);
    expect(raw && textOf(raw)).toBe(' <b & </a> ');
    expect(example && textOf(example)).toBe('x<raw>y');
    expect(c?.name).toBe('c');
  });

  it('skips comments, processing instructions and the declaration', () => {
    const root = parse('<?xml version="1.0"?><!-- <x> & --><a><!-- <y> --><b/><?pi z?></a>');
    expect(childElements(root).map(({ name }) => name)).toEqual(['b']);
  });

  it('reads a deep text with an attribute that holds >', () => {
    const [b] = childElements(parse('<a><b c="x>y" d="/>"/><e/></a>'));
    expect([...(b?.attributes ?? [])]).toEqual([
      ['c', 'x>y'],
      ['d', '/>'],
    ]);
  });
});

describe('parseXml refuses', () => {
  test.each([
    ['an unclosed element', '<a>\n  <b>\n</a>', '3:1'],
    ['a second root', '<a>x</a>\n<b/>', '2:1'],
    ['no element', 'hello', '1:1'],
    ['an empty text', '', '1:1'],
    ['a bare ampersand in text', '<a>\n b & c</a>', '2:4'],
    ['a bare ampersand in an attribute', '<a>\n <b x="&"/></a>', '2:8'],
    ['an unknown entity', '<a>&nbsp;</a>', '1:4'],
    ['an attribute without quotes', '<a>\n<b x=1></b></a>', '2:4'],
    ['a repeated attribute', '<a x="1" x="2"/>', '1:10'],
    ['a DOCTYPE', '<!DOCTYPE a [<!ENTITY e "x">]>\n<a>&e;</a>', '1:1'],
    ['an entity declaration inside', '<a>\n<!ENTITY e "x"></a>', '2:1'],
    ['a character that is none', '<a>&#0;</a>', '1:4'],
    ['a surrogate', '<a>&#xD800;</a>', '1:4'],
    ['a processing instruction that is not closed', '<a><?><!DOCTYPE a></a>', '1:4'],
    ['a processing instruction with an open quote', '<a><?p "?><b/><?p "?></a>', '1:4'],
    ['a control character', '<a>\n\u0007</a>', '2:1'],
    ['an unclosed opaque element', '<a><raw>x</a>', '1:10'],
    ['a reserved element name', '<a>\n <constructor/></a>', '1:1'],
    ['prototype pollution', '<a __proto__="1"/>', '1:1'],
  ])('%s', (_, text, place) => {
    expect(where(errorOf(() => parse(text)))).toBe(`xml_malformed ${place}`);
  });

  it('more than 64 levels', () => {
    const nest = (depth: number): string => '<a>'.repeat(depth) + '</a>'.repeat(depth);
    expect(parse(nest(64)).name).toBe('a');
    expect(errorOf(() => parse(nest(65))).message).toContain('deeper than 64');
    expect(errorOf(() => parse(nest(20_000))).code).toBe('xml_malformed');
  });

  it('more than 1 MiB', () => {
    const fits = `<a>${'x'.repeat(1024 * 1024 - 7)}</a>`;
    expect(textOf(parse(fits))).toHaveLength(1024 * 1024 - 7);
    expect(errorOf(() => parse(fits.replace('x', 'xx'))).message).toContain('larger than 1 MiB');
  });

  it('with lines of the file also inside the message', () => {
    const error = errorOf(() => parse('<a>\n<b>\n</a>', 100));
    expect(error.message).toContain('f.md:102:1');
    expect(error.message).toContain('opened in line 101');
  });
});

it('returns any escaped text and attribute unchanged', () => {
  const text = fc
    .string({ unit: 'grapheme' })
    .filter((value) => !/(?![\t\n])\p{Cc}|\r/u.test(value));
  fc.assert(
    fc.property(text, text, (body, attribute) => {
      const root = parse(`<a x="${escapeXml(attribute)}"><b>${escapeXml(body)}</b></a>`);
      const [b] = childElements(root);
      expect(root.attributes.get('x')).toBe(attribute);
      expect(b && textOf(b)).toBe(body.trim());
    }),
    { numRuns: 200, seed: 7 },
  );
});

it('never throws anything but an xml_malformed error with a place', () => {
  const piece = fc.constantFrom(
    '<a>',
    '</a>',
    '<b x="',
    '"',
    '/>',
    '&',
    '&lt;',
    '<![CDATA[',
    ']]>',
    '<!--',
    '-->',
    '<raw>',
    '</raw>',
    't',
    '\n',
    '<?',
    '>',
  );
  const outcome = (text: string): string => {
    try {
      return parse(text).name;
    } catch (error) {
      return error instanceof RyeError ? `${error.code} ${error.location?.path}` : String(error);
    }
  };
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 12 }), (pieces) => {
      expect(['a', 'xml_malformed f.md']).toContain(outcome(`<a>${pieces.join('')}</a>`));
    }),
    { numRuns: 500, seed: 11 },
  );
});

it.each<readonly [text: string, typed: unknown, exact: unknown]>([
  ['12e34567', '12e34567', '12e34567'],
  ['12345678901234567890', '12345678901234567890', '12345678901234567890'],
  ['1.10', 1.1, '1.10'],
  ['12e3', 12000, '12e3'],
  ['-7', -7, -7],
  ['0.5', 0.5, 0.5],
  ['true', true, true],
])('%s is typed as %j, and as data is %j: no value becomes another', (text, typed, exact) => {
  expect([typedValue(text), exactValue(text)]).toEqual([typed, exact]);
});

describe('the operand of a condition', () => {
  const operand = (value: string) =>
    elementToJson(parse(`<condition path="a" op="contains" value="${value}"/>`));

  it.each([
    ['8080', 8080],
    ['1.10', '1.10'],
    ['1e3', '1e3'],
    ['true', true],
    ['prod', 'prod'],
  ])('%s is %j', (text, value) => {
    expect(operand(text)).toMatchObject({ value });
  });
});
