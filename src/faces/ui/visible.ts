import { domainToASCII } from 'node:url';

declare const SHOWN: unique symbol;

/** Text that a terminal obeys in nothing but rye's own colors: what {@link visible}, {@link oneLine} or {@link shown} returned. */
export type Shown = string & { readonly [SHOWN]: true };

export interface VisibleOptions {
  /** Draw line breaks and tabs too, so that the text stays on one line. */
  readonly isLine?: boolean;
  /** Text to be read and not judged, such as an answer: typographic spaces, hyphens and look-alikes stay. */
  readonly isProse?: boolean;
}

/** A drawn character: a control picture, or a code point. The text itself never has either, see {@link draw}. */
const DRAWN = /[\u2400-\u2421]|\\u\{[0-9a-f]+\}/g;

// Most text is ASCII. The Unicode tables below are functions because V8 compiles a literal where it is evaluated, in milliseconds.
const PLAIN = /^[\t\n -~]*$/;
const PLAIN_LINE = /^[ -~]*$/;
/** Letters, numbers, marks, punctuation and symbols: everything else has no certain place or shape on a screen. */
const GRAPHIC = (): RegExp => /^[\p{L}\p{M}\p{N}\p{P}\p{S}]$/u;
const IGNORABLE = (): RegExp => /^[\p{Default_Ignorable_Code_Point}\u2800\u{1d159}]$/u;
const SPACE = (): RegExp => /^\p{Zs}$/u;
const MARK = (): RegExp => /^\p{M}$/u;
const LETTER = (): RegExp => /^[\p{L}\p{M}]$/u;
const EMOJI_TEXT = (): RegExp => /^(?=\p{Emoji})(?!\p{Emoji_Presentation})[^\0-\x7f]$/u;
const PICTURE = (): RegExp => /^[\p{Extended_Pictographic}\p{Emoji_Modifier}\ufe0f]$/u;
/** Scripts that are written with joiners. */
const JOINING = (): RegExp =>
  /^[\p{Script=Arabic}\p{Script=Syriac}\p{Script=Mongolian}\p{Script=Devanagari}\p{Script=Bengali}\p{Script=Gurmukhi}\p{Script=Gujarati}\p{Script=Oriya}\p{Script=Tamil}\p{Script=Telugu}\p{Script=Kannada}\p{Script=Malayalam}\p{Script=Sinhala}\p{Script=Khmer}\p{Script=Myanmar}]$/u;
/** Marks on one letter; more of them reach into other lines. */
const MOST_MARKS = 3;

/** Punctuation that looks like a character of a command, a path or an address. */
const LIKE_SYNTAX =
  /^[\u02b9-\u02bd\u02c2\u02c3\u02c6\u02c8\u02cb\u02d0\u02d7\u02dc\u02f8\u01c0-\u01c3\u037e\u055a\u0589\u05c3\u2010-\u2012\u2024\u2035\u2039\u203a\u2044\u204e\u2212\u2215-\u2217\u2223\u2236\u223c\u23d0\u29f5\u29f8\u29f9\ua4f8-\ua4ff\ua789\ua78a\ufe50-\ufe6b]$/u;
const FULL_WIDTH = /^[\uff01-\uff5e]$/u;
const STYLED_LETTER = /^[\u2100-\u218b\u{1d400}-\u{1d7ff}\u{1fbf0}-\u{1fbf9}]$/u;
const WORD = (): RegExp => /[\p{L}\p{M}\p{N}_]+/gu;
/** Letters that pass for Latin ones, among Latin ones. */
const LIKE_LATIN = (): RegExp =>
  /[\p{Script=Cyrillic}\p{Script=Armenian}\p{Script=Cherokee}\p{Script=Coptic}\p{Script=Lisu}\p{Script=Deseret}\p{Script=Osage}\p{Script=Gothic}\p{Script=Old_Italic}\p{Script=Carian}\p{Script=Lycian}\p{Script=Lydian}\p{Script=Canadian_Aboriginal}ΑΒΕΖΗΙΚΜΝΟΡΤΥΧαικνορυχϲϳͿ\u0250-\u02af\u1d00-\u1dbf]|(?!\d)\p{Nd}/u;
/** Words that pass for Latin ones as a whole. */
const TWIN = /^[аеорсухіјѕһԁԛԝӏүАВЕКМНОРСТУХІЈЅԚԜӀҮЗΑΒΕΖΗΙΚΜΝΟΡΤΥΧοναιρυκϲϳͿ]+$/u;
const SYNTAX = /^[/.\-_:=@~$"'\\]$/;
const HOST = /\b[a-z][a-z\d+.-]*:\/\/(?:[^\s/?#@]*@)?([^\s/?#:@[\]\\"'`<>()]+)/giu;

interface Drawing {
  readonly text: Shown;
  /** Characters that are not shown as they are. Line breaks and tabs are not among them. */
  readonly odd: number;
}

/**
 * Draws untrusted text so that a person sees every character of it: control, format, invisible and look-alike characters
 * appear as pictures such as `␛` or as code points such as `\u{202e}`. Deletes nothing: different texts have different
 * drawings. Line breaks and tabs stay unless `isLine`.
 */
export function visible(text: string, options: VisibleOptions = {}): Shown {
  return drawing(text, options).text;
}

/** Draws untrusted text on one line; line breaks and tabs are drawn too. */
export function oneLine(text: string): Shown {
  return drawing(text, { isLine: true }).text;
}

/** Returns how many characters of a text are not shown as they are. */
export function oddCharacters(text: string): number {
  return drawing(text, {}).odd;
}

/** True for `string` and for a template with parts of that type: its keys have no end. */
type IsOpen<T extends string> = Record<'\0', 1> extends Record<T, 1> ? true : false;

/** Returns T for shown text, numbers and words of the source, which a line of rye may contain. */
type Safe<T> = T extends number | Shown
  ? T
  : T extends string
    ? IsOpen<T> extends true
      ? Shown
      : T
    : never;

/** The result of a function that keeps the characters of a text: shown text stays shown. */
export type Kept<T> = [T] extends [Safe<T>] ? Shown : string;

/** Composes a line of shown texts. A text that may come from elsewhere is refused by the compiler. */
export function shown<const T extends readonly unknown[]>(
  strings: TemplateStringsArray,
  ...values: { readonly [K in keyof T]: Safe<T[K]> } & T
): Shown {
  return String.raw({ raw: strings }, ...values) as Shown;
}

/** Joins shown texts; the separator is a word of the source. */
export function joined<const T extends string>(
  parts: readonly Shown[],
  separator: Safe<T> & T,
): Shown {
  return parts.join(separator) as Shown;
}

/** Removes spaces at the end of shown text. */
export function trimmed(text: Shown): Shown {
  return text.trimEnd() as Shown;
}

/** Returns the lines of shown text. */
export function linesOf(text: Shown): readonly Shown[] {
  return text.split('\n') as Shown[];
}

/** Returns a part of a text; of shown text it is shown. */
export function partOf<T extends string>(text: T, start: number, end?: number): T {
  return text.slice(start, end) as T;
}

/** Replaces what matches in a text; shown text by shown text. */
export function replaced<T extends string>(text: T, pattern: RegExp, by: (match: T) => T): T {
  return text.replaceAll(pattern, (match) => by(match as T)) as T;
}

/** Draws a text that is judged, line by line: tabs and spaces at the end of a line are drawn too. */
export function judgedLines(text: string): readonly Shown[] {
  const tabless = replaced(visible(text), /\t/g, () => shown`\u2409   `);
  return linesOf(replaced(tabless, / +$/gm, drawnSpaces));
}

function drawnSpaces(spaces: string): Shown {
  return '\\u{20}'.repeat(spaces.length) as Shown;
}

function drawing(text: string, options: VisibleOptions): Drawing {
  const { isLine = false } = options;
  const plain = isLine ? PLAIN_LINE : PLAIN;
  if (plain.test(text) && !text.includes('\\u{')) return { text: text as Shown, odd: 0 };
  return drawEach(text, options);
}

function drawEach(text: string, { isLine = false, isProse = false }: VisibleOptions): Drawing {
  const characters = Array.from(text);
  const twins = isProse || PLAIN.test(text) ? NO_TWINS : twinsOf(text);
  const parts: string[] = [];
  let odd = 0;
  let at = 0;
  for (const [index, character] of characters.entries()) {
    const around = { characters, index, isProse };
    if (character === '\n' || character === '\t') {
      parts.push(isLine ? draw(character) : character);
    } else if (twins.letters.has(at) || isHidden(character, around)) {
      parts.push(draw(character));
      if (character !== '\r' || characters[index + 1] !== '\n') odd += 1;
    } else parts.push(character);
    at += character.length;
    const host = twins.hosts.get(at);
    if (host !== undefined) parts.push(`[${host}]`);
  }
  return { text: parts.join('') as Shown, odd };
}

function draw(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  if (code < 0x20) return String.fromCodePoint(0x24_00 + code);
  return code === 0x7f ? '\u2421' : `\\u{${code.toString(16)}}`;
}

/** Paints the drawn characters of shown text. */
export function paintDrawn(text: Shown, paint: (drawn: Shown) => Shown): Shown {
  return replaced(text, DRAWN, paint);
}

interface Around {
  readonly characters: readonly string[];
  readonly index: number;
  readonly isProse: boolean;
}

/** True for a character that a person would not recognize for what it is. */
function isHidden(character: string, around: Around): boolean {
  if (character === '\\') return startsEscape(around);
  if (character >= ' ' && character <= '~') return false;
  if (!GRAPHIC().test(character)) {
    return !(around.isProse && SPACE().test(character)) && !isJoiner(character, around);
  }
  if (character >= '\u2400' && character <= '\u2421') return true;
  if (IGNORABLE().test(character)) return !isEmojiStyle(character, around);
  if (MARK().test(character)) return isOddMark(character, around);
  return !around.isProse && isLookAlike(character, around);
}

function startsEscape({ characters, index }: Around): boolean {
  return characters[index + 1] === 'u' && characters[index + 2] === '{';
}

function isJoiner(character: string, { characters, index }: Around): boolean {
  if (character !== '\u200c' && character !== '\u200d') return false;
  const [before = '', after = ''] = [characters[index - 1], characters[index + 1]];
  if (JOINING().test(before) && JOINING().test(after)) return true;
  return character === '\u200d' && PICTURE().test(before) && PICTURE().test(after);
}

function isEmojiStyle(character: string, { characters, index }: Around): boolean {
  if (character !== '\ufe0f') return false;
  const before = characters[index - 1] ?? '';
  return (
    EMOJI_TEXT().test(before) || (/^[\d#*]$/.test(before) && characters[index + 1] === '\u20e3')
  );
}

/** True for a mark without a letter, one of a stack, and one whose letter has the same look as a single character. */
function isOddMark(mark: string, { characters, index }: Around): boolean {
  const before = characters[index - 1] ?? '';
  if (mark === '\u20e3') return before !== '\ufe0f';
  if (!LETTER().test(before) || before <= '~') return true;
  const marks = characters.slice(Math.max(0, index - MOST_MARKS), index);
  if (marks.length === MOST_MARKS && marks.every((one) => MARK().test(one))) return true;
  return Array.from(`${before}${mark}`.normalize('NFC')).length < 2;
}

function isLookAlike(character: string, { characters, index }: Around): boolean {
  if (LIKE_SYNTAX.test(character)) return true;
  if (STYLED_LETTER.test(character)) {
    return characters[index + 1] !== '\ufe0f' && PLAIN_LINE.test(character.normalize('NFKC'));
  }
  if (FULL_WIDTH.test(character)) {
    const isWord = /^[a-z\d]$/i.test(character.normalize('NFKC'));
    return isWord || [characters[index - 1], characters[index + 1]].some(isAscii);
  }
  return character.normalize('NFC') !== character;
}

function isAscii(character: string | undefined): boolean {
  return character !== undefined && character > ' ' && character <= '~';
}

interface Twins {
  /** Offsets of letters that pass for Latin ones. */
  readonly letters: ReadonlySet<number>;
  /** Names of hosts as they are looked up, by the offset where the host ends. */
  readonly hosts: ReadonlyMap<number, string>;
}

const NO_TWINS: Twins = { letters: new Set(), hosts: new Map() };

function twinsOf(text: string): Twins {
  const letters = new Set<number>();
  const hosts = new Map<number, string>();
  for (const { 0: word, index } of text.matchAll(WORD())) {
    if (PLAIN_LINE.test(word) || !passesForLatin(word, index, text)) continue;
    let at = index;
    for (const letter of word) {
      if (LIKE_LATIN().test(letter)) letters.add(at);
      at += letter.length;
    }
  }
  for (const match of text.matchAll(HOST)) {
    const host = match[1] ?? '';
    if (PLAIN_LINE.test(host)) continue;
    hosts.set(match.index + match[0].length, domainToASCII(host) || 'no host name');
  }
  return { letters, hosts };
}

function passesForLatin(word: string, at: number, text: string): boolean {
  if (/\p{Script=Latin}|\d/u.test(word)) return LIKE_LATIN().test(word);
  if (!TWIN.test(word)) return false;
  // `а` and `в` are words of a language, unless they are a part of a path or an address
  const isPart = SYNTAX.test(text[at - 1] ?? '') || SYNTAX.test(text[at + word.length] ?? '');
  if (word.length === 1) return isPart;
  const line = text.slice(text.lastIndexOf('\n', at) + 1).split('\n', 1)[0] ?? '';
  return isPart || /[a-z]/i.test(line) || line.trim() === word;
}

/** Returns JSON in which every character that a terminal would obey or not show is written as `\\uXXXX`. */
export function jsonText(value: unknown, indent = 0): string {
  return JSON.stringify(value, null, indent).replaceAll(UNSEEN(), (character) =>
    Array.from({ length: character.length }, (_, at) => {
      const code = character.charCodeAt(at).toString(16);
      return `\\u${code.padStart(4, '0')}`;
    }).join(''),
  );
}

const UNSEEN = (): RegExp => /[^\P{C}\t\n\p{Co}\u200c\u200d]|[\u2028\u2029]/gu;
