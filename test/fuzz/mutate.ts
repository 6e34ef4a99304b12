/** Numbers from a seed (Lehmer, MINSTD): the same seed makes the same inputs. */
export function randomFrom(seed: number): (limit: number) => number {
  let state = (seed % 2_147_483_646) + 1;
  return (limit) => {
    state = (state * 48_271) % 2_147_483_647;
    return Math.floor((state / 2_147_483_647) * limit);
  };
}

/** Inputs that break parsers. */
const TOKENS = [
  '<',
  '>',
  '</',
  '/>',
  '<!--',
  '-->',
  '<![CDATA[',
  ']]>',
  '<!DOCTYPE a [<!ENTITY b "c">]>',
  '&lt;',
  '&#0;',
  '&b;',
  '"',
  "'",
  '```',
  '```xml\n',
  '---',
  '---js',
  '\n',
  '\r\n',
  '\r',
  '\0',
  '\u{FEFF}',
  '\u{202E}',
  '\u{D800}',
  '{input:x}',
  '${a || b}',
  '${',
  '{env:HOME}',
  '*',
  '.*',
  '..',
  '/',
  '\\',
  'rye.*',
  'rye.execute.',
  '__proto__',
  'constructor',
  ': &a [*a]',
  '!!js/function',
  'NaN',
  '-1',
  '1e999',
  '9'.repeat(400),
  '(a+)+$',
  '[',
  ']',
  '{',
  '}',
  ',',
  'null',
  '|x@y',
  '==',
];

const MAX_LENGTH = 64 * 1024;

/** One to eight edits of a text: deleted, repeated, exchanged and foreign pieces, flipped characters. */
export function mutate(
  text: string,
  others: readonly string[],
  below: (limit: number) => number,
): string {
  let mutated = text;
  for (let edits = 1 + below(8); edits > 0; edits -= 1) {
    const at = below(mutated.length + 1);
    const to = Math.min(mutated.length, at + below(below(4) === 0 ? mutated.length + 1 : 24));
    mutated =
      mutated.slice(0, at) + piece(mutated.slice(at, to), others, below) + mutated.slice(to);
    if (mutated.length > MAX_LENGTH) mutated = mutated.slice(0, MAX_LENGTH);
  }
  return mutated;
}

function piece(cut: string, others: readonly string[], below: (limit: number) => number): string {
  switch (below(6)) {
    case 0:
      return '';
    case 1:
      return cut + cut;
    case 2:
      return TOKENS[below(TOKENS.length)] ?? '';
    case 3: {
      const other = others[below(others.length)] ?? '';
      const from = below(other.length + 1);
      return other.slice(from, from + below(200));
    }
    case 4:
      return (TOKENS[below(TOKENS.length)] ?? '').repeat(1 + below(2000));
    default:
      return cut + String.fromCodePoint(below(0x2_00));
  }
}
