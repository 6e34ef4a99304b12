import { RyeError } from '../../core/errors.ts';
import { headChars } from '../../core/text.ts';
import { exclusively, loadText, writeText } from '../files.ts';
import { keepBefore, sha256 } from '../kept-files.ts';
import { confine } from '../paths.ts';
import {
  builtinTool,
  CHANGING_TRAITS,
  type FromSchema,
  type Tool,
  type ToolContext,
  type ToolOutput,
  textOutput,
} from '../tool.ts';
import { type BuiltinOptions, PATH_PROPERTY, rulesOf } from './options.ts';
import { writtenPaths } from './write.ts';

const EDIT = {
  type: 'object',
  properties: {
    old_string: {
      type: 'string',
      description:
        'Text to replace, exactly as in the file, with enough lines around it to be unique.',
    },
    new_string: { type: 'string', description: 'Text to put in its place.' },
    replace_all: { type: 'boolean', description: 'Replace every occurrence. Default false.' },
  },
  required: ['old_string', 'new_string'],
  additionalProperties: false,
} as const;

/** One replacement as a model requests it. */
type Edit = FromSchema<typeof EDIT>;

/** `rye/file-system/edit` makes one exact replacement. `data`: `path`, `replacements`, `line` of the first, `bytes`. */
export function createEditTool(options: BuiltinOptions): Tool {
  return builtinTool({
    id: 'rye/file-system/edit',
    description:
      'Replaces exact text in a file. Fails when the text is not found or, without replace_all, occurs more than once. Pasted line numbers of read are ignored.',
    properties: { path: PATH_PROPERTY, ...EDIT.properties },
    required: ['path', ...EDIT.required],
    traits: CHANGING_TRAITS,
    writes: writtenPaths,
    run: ({ path, ...edit }, context) => change(path, [edit], context, options),
  });
}

/** `rye/file-system/multi_edit` makes several replacements in one file, in order, all or none. `data` as for edit. */
export function createMultiEditTool(options: BuiltinOptions): Tool {
  return builtinTool({
    id: 'rye/file-system/multi_edit',
    description:
      'Applies several replacements to one file, in order, each on the result of the one before. All or none: if one fails, nothing is written.',
    properties: { path: PATH_PROPERTY, edits: { type: 'array', minItems: 1, items: EDIT } },
    required: ['path', 'edits'],
    traits: CHANGING_TRAITS,
    writes: writtenPaths,
    run: ({ path, edits }, context) => change(path, edits, context, options),
  });
}

async function change(
  wanted: string,
  edits: readonly Edit[],
  context: ToolContext,
  options: BuiltinOptions,
): Promise<ToolOutput> {
  const path = await confine(wanted, 'write', rulesOf(options, context));
  return exclusively(path.real, async () => {
    const loaded = await loadText(path);
    const hash = sha256(loaded.bytes);
    const problem = options.memory?.editProblem(path.real, hash);
    if (problem !== undefined) {
      throw new RyeError(
        'invalid_input',
        `${JSON.stringify(path.shown)} was not edited: ${problem}`,
        { hint: 'Read it with rye_file_system_read, then edit.' },
      );
    }
    const edited = applyAll(loaded.text, edits, path.shown);
    if (context.signal.aborted) throw new RyeError('cancelled', 'the edit was cancelled');
    const { bytes, mode, version: expected } = loaded;
    const state = { sha256: hash, bytes: bytes.length, mode };
    await keepBefore(options.keep, context, {
      path,
      before: { state, bytes },
      content: edited.content,
    });
    await writeText({ path, content: edited.content, expected, mode });
    options.memory?.recordChange(path.real, sha256(edited.content));
    const { replacements, line } = edited;
    const times = replacements === 1 ? '1 replacement' : `${replacements} replacements`;
    const told = textOutput(`Edited ${path.shown}: ${times}, the first in line ${line}.`, {
      path: path.shown,
      replacements,
      line,
      bytes: Buffer.byteLength(edited.content),
    });
    return { ...told, prior: bytes };
  });
}

interface Edited {
  readonly content: string;
  readonly replacements: number;
  readonly line: number;
}

function applyAll(original: string, edits: readonly Edit[], shown: string): Edited {
  let edited: Edited = { content: original, replacements: 0, line: 0 };
  for (const [index, { old_string, new_string, replace_all = false }] of edits.entries()) {
    const edit = { oldString: old_string, newString: new_string, replaceAll: replace_all };
    const result = applyEdit(edited.content, edit);
    if (!result.ok) {
      const which =
        edits.length === 1
          ? ''
          : ` Edit ${index + 1} of ${edits.length} failed, nothing was written.`;
      throw new RyeError(
        'invalid_input',
        `${JSON.stringify(shown)} was not edited.${which} ${result.problem}`,
      );
    }
    edited = {
      content: result.content,
      replacements: edited.replacements + result.replacements,
      line: index === 0 ? result.line : edited.line,
    };
  }
  return edited;
}

export interface TextEdit {
  readonly oldString: string;
  readonly newString: string;
  readonly replaceAll: boolean;
}

export type EditResult =
  | {
      readonly ok: true;
      readonly content: string;
      readonly replacements: number;
      /** Line of the first replacement, from 1. */
      readonly line: number;
    }
  | { readonly ok: false; readonly problem: string };

/** Effort of the preview: lines compared times lines of the pattern. */
const PREVIEW_WORK = 400_000;
const PREVIEW_LINES = 20;
const MIN_SIMILARITY = 0.4;

/**
 * Applies one replacement to a text. Tries the text as given, then without pasted line numbers, if every line has one in
 * ascending order, then with a last line end that the file lacks. Line ends match each other; a line keeps its own, and
 * new lines take that of their neighbors, so that CRLF, mixed ends, a byte order mark and a missing last line end stay.
 * Refuses a text that occurs more than once unless all are to be replaced. If it doesn't occur, the problem shows the
 * nearest lines.
 */
export function applyEdit(content: string, edit: TextEdit): EditResult {
  if (edit.oldString === '')
    return { ok: false, problem: 'old_string is empty; use write to fill a file.' };
  if (edit.oldString === edit.newString) {
    return {
      ok: false,
      problem: 'old_string and new_string are the same: there is nothing to change.',
    };
  }
  const found = findPair(content, edit);
  if (found === undefined) return { ok: false, problem: notFound(content, edit.oldString) };
  const { text, places } = found;
  if (places.length > 1 && !edit.replaceAll) {
    const lines = places.slice(0, 5).map((place) => lineAt(text, place));
    const more = places.length > 5 ? ', …' : '';
    return {
      ok: false,
      problem: `old_string occurs ${places.length} times (lines ${lines.join(', ')}${more}). Add surrounding lines to make it unique, or set replace_all.`,
    };
  }
  return {
    ok: true,
    content: replaced(found),
    replacements: places.length,
    line: lineAt(text, places[0] ?? 0),
  };
}

interface Found {
  /** The mark that the file starts with. */
  readonly mark: string;
  /** The rest of the file, with `\n` for each of `ends`. */
  readonly text: string;
  readonly ends: readonly string[];
  readonly oldString: string;
  readonly newString: string;
  /** Positions of `oldString` in `text`. */
  readonly places: readonly number[];
}

const LINE_END = /\r?\n/g;
const BYTE_ORDER_MARK = '\uFEFF';

function findPair(content: string, edit: TextEdit): Found | undefined {
  const oldString = plainText(edit.oldString);
  const newString = content.includes('\n') ? plainText(edit.newString) : edit.newString;
  // an edit of nothing but marks and line ends means each of them
  if (oldString === newString) {
    const text = { mark: '', text: content, ends: content.match(/\n/g) ?? [] };
    return placed(text, edit.oldString, edit.newString);
  }
  const mark = content.startsWith(BYTE_ORDER_MARK) ? BYTE_ORDER_MARK : '';
  const file = { mark, text: plainText(content), ends: content.match(LINE_END) ?? [] };
  const stripped = stripLineNumbers(oldString);
  const pairs: (readonly [string, string])[] = [[oldString, newString]];
  if (stripped !== undefined) pairs.push([stripped, newString.replaceAll(LINE_NUMBER, '')]);
  const whole = file.text.endsWith('\n')
    ? []
    : [{ ...file, text: `${file.text}\n`, ends: [...file.ends, ''] }];
  for (const text of [file, ...whole]) {
    for (const [from, to] of pairs) {
      const found = placed(text, from, to);
      if (found) return found;
    }
  }
  return undefined;
}

function plainText(text: string): string {
  return text.replace(/^\uFEFF/, '').replaceAll(LINE_END, '\n');
}

function placed(
  file: Pick<Found, 'mark' | 'text' | 'ends'>,
  oldString: string,
  newString: string,
): Found | undefined {
  const places = oldString === '' ? [] : positions(file.text, oldString);
  return places.length === 0 ? undefined : { ...file, oldString, newString, places };
}

function replaced({ mark, text, ends, oldString, newString, places }: Found): string {
  const rows = text.split(oldString).join(newString).split('\n');
  const [before, after] = [oldString.split('\n'), newString.split('\n')];
  const height = before.length - 1;
  const kept = Math.min(height, after.length - 1, sameAtEnd(before, after));
  const newEnds: string[] = [];
  let line = 0;
  let from = 0;
  for (const place of places) {
    const until = line + positions(text.slice(from, place), '\n').length;
    while (line < until) newEnds.push(ends[line++] ?? '');
    const taken = ends.slice(line, line + height);
    const near = [
      taken[height - kept],
      taken.findLast(isEnd),
      ends[line + height],
      ends[line - 1],
      '\n',
    ].find(isEnd);
    const added = after.length - 1 - kept;
    for (let row = 0; row < added; row += 1) {
      newEnds.push((row < height - kept ? taken[row] : near) ?? '');
    }
    for (const end of taken.slice(height - kept)) newEnds.push(end);
    line += height;
    from = place + oldString.length;
  }
  while (line < ends.length) newEnds.push(ends[line++] ?? '');
  return mark + rows.map((row, index) => row + (newEnds[index] ?? '')).join('');
}

function isEnd(end: string | undefined): boolean {
  return end !== undefined && end !== '';
}

/** Number of last lines that are the same. */
function sameAtEnd(left: readonly string[], right: readonly string[]): number {
  let count = 0;
  while (count < left.length && left.at(-1 - count) === right.at(-1 - count)) count += 1;
  return count;
}

/** The prefix of a line that was pasted from a read. New lines between numbered ones may have none, or any. */
const LINE_NUMBER = /^[^\S\n]*\d{1,9}\t/gm;

/** The text without `<N><tab>` prefixes, or undefined unless every line has one and they count up by one. */
export function stripLineNumbers(text: string): string | undefined {
  const lines = text.split('\n');
  // A pasted block may end with a newline after its last numbered line.
  const numbered = lines.at(-1) === '' ? lines.slice(0, -1) : lines;
  let expected: number | undefined;
  const plain: string[] = [];
  for (const line of numbered) {
    const match = /^\s*(\d{1,9})\t/.exec(line);
    if (match === null) return undefined;
    const number = Number(match[1]);
    if (expected !== undefined && number !== expected) return undefined;
    expected = number + 1;
    plain.push(line.slice(match[0].length));
  }
  if (plain.length === 0) return undefined;
  return [...plain, ...lines.slice(numbered.length)].join('\n');
}

function positions(content: string, needle: string): number[] {
  const found: number[] = [];
  let at = -needle.length;
  while ((at = content.indexOf(needle, at + needle.length)) !== -1) found.push(at);
  return found;
}

function lineAt(content: string, position: number): number {
  return positions(content.slice(0, position), '\n').length + 1;
}

function notFound(content: string, oldString: string): string {
  const near = nearestLines(content, stripLineNumbers(oldString) ?? oldString);
  if (near === undefined)
    return 'old_string was not found. Read the file again and copy the text exactly.';
  const why = near.whitespaceOnly ? 'It differs only in white space from' : 'The nearest lines are';
  return `old_string was not found. ${why}:\n${near.preview}`;
}

interface Nearest {
  readonly preview: string;
  readonly whitespaceOnly: boolean;
}

function nearestLines(content: string, wanted: string): Nearest | undefined {
  const lines = content.split('\n');
  const needle = wanted.replace(/\n$/, '').split('\n').slice(0, PREVIEW_LINES);
  const height = Math.max(1, Math.min(needle.length, Math.floor(PREVIEW_WORK / lines.length)));
  const keys = needle.slice(0, height).map(lineKey);
  const haystack = lines.slice(0, PREVIEW_WORK).map(lineKey);
  let best = { score: 0, at: -1 };
  for (let at = 0; at < haystack.length; at += 1) {
    let sum = 0;
    for (let row = 0; row < height; row += 1) sum += similarity(keys[row], haystack[at + row]);
    if (sum / height > best.score) best = { score: sum / height, at };
  }
  if (best.score < MIN_SIMILARITY) return undefined;
  const shown = lines.slice(best.at, best.at + needle.length);
  return {
    preview: shown.map((line, index) => `${best.at + index + 1}\t${cutLine(line)}`).join('\n'),
    whitespaceOnly: best.score === 1 && height === needle.length,
  };
}

interface LineKey {
  readonly squeezed: string;
  readonly words: ReadonlySet<string>;
}

function lineKey(line: string): LineKey {
  const bounded = line.slice(0, 400);
  return {
    squeezed: bounded.replaceAll(/\s+/g, ''),
    words: new Set(bounded.split(/[^\p{L}\p{N}_]+/u).filter((word) => word !== '')),
  };
}

/** 1 when only white space differs, else the Dice coefficient of the words. */
function similarity(left: LineKey | undefined, right: LineKey | undefined): number {
  if (left === undefined || right === undefined) return 0;
  if (left.squeezed === right.squeezed) return 1;
  const total = left.words.size + right.words.size;
  if (total === 0) return 0;
  let shared = 0;
  for (const word of left.words) if (right.words.has(word)) shared += 1;
  // Never 1: the lines do differ in more than white space.
  return Math.min(0.95, (2 * shared) / total);
}

function cutLine(line: string): string {
  const plain = line.endsWith('\r') ? line.slice(0, -1) : line;
  return plain.length <= 300 ? plain : `${headChars(plain, 300)}…`;
}
