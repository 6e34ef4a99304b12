import { createHash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import type { JsonObject } from '../../core/json.ts';
import {
  decodeCut,
  loadText,
  MAX_EDIT_BYTES,
  openForRead,
  readLines,
  startsBinary,
  wholeBytes,
} from '../files.ts';
import { type ConfinedPath, confine } from '../paths.ts';
import {
  builtinTool,
  errorOutput,
  type FromSchema,
  READING_TRAITS,
  type Tool,
  type ToolContext,
  type ToolOutput,
  textOutput,
} from '../tool.ts';
import { type BuiltinOptions, NOTICE_BYTES, PATH_PROPERTY, rulesOf, tooLarge } from './options.ts';

const DEFAULT_LINES = 2000;
const DEFAULT_BYTES = 262_144;
/** Maximum bytes that one read can return, even without caps. */
const CEILING_BYTES = 16 * 1024 * 1024;

const PROPERTIES = {
  path: PATH_PROPERTY,
  offset: { type: 'integer', minimum: 1, description: 'First line to show. Default 1.' },
  limit: {
    type: 'integer',
    minimum: 0,
    description: `Lines to show, 0 for no cap. Default ${DEFAULT_LINES}.`,
  },
  from_byte: {
    type: 'integer',
    minimum: 0,
    description: 'First byte to show, instead of offset: pages through very long lines.',
  },
  maxBytes: {
    type: 'integer',
    minimum: 0,
    description: `Bytes to show, 0 for no cap. Default ${DEFAULT_BYTES}.`,
  },
} as const;

type ReadInput = FromSchema<{ type: 'object'; properties: typeof PROPERTIES; required: ['path'] }>;

/**
 * `rye/file-system/read` reads a slice of a text file. `data`: `path`, `content` (without line numbers), `offset`,
 * `lines` (number shown), `truncated`, `next_offset` if truncated, `bytes` (size of the file), `unchanged` if a stub
 * replaces the text.
 */
export function createReadTool(options: BuiltinOptions): Tool {
  return builtinTool({
    id: 'rye/file-system/read',
    description:
      'Reads a text file. Lines are numbered as `N<tab>text`; the numbers are not part of the file. Long files come in pages: the last line names the offset to continue with.',
    properties: PROPERTIES,
    required: ['path'],
    traits: READING_TRAITS,
    run: (input, context) => read(input, context, options),
  });
}

interface Slice {
  readonly offset: number;
  readonly limit: number;
  /** Bytes of the file that one page holds. */
  readonly maxBytes: number;
  /** Maximum bytes of a page, line numbers included. */
  readonly room: number;
  readonly fromByte: number | undefined;
  readonly numbered: boolean;
}

/** A page with its notice stays below the size at which a result would leave the context. */
function sliceOf(input: ReadInput, options: BuiltinOptions): Slice {
  const { maxResultBytes = 0, readLineNumbers: numbered = true } = options;
  const {
    offset = 1,
    limit = DEFAULT_LINES,
    from_byte: fromByte,
    maxBytes = DEFAULT_BYTES,
  } = input;
  const room =
    maxResultBytes === 0 ? CEILING_BYTES : Math.max(maxResultBytes - NOTICE_BYTES, NOTICE_BYTES);
  return {
    offset,
    limit,
    maxBytes: Math.min(maxBytes || CEILING_BYTES, room, CEILING_BYTES),
    room,
    fromByte,
    numbered,
  };
}

async function read(
  input: ReadInput,
  context: ToolContext,
  options: BuiltinOptions,
): Promise<ToolOutput> {
  const path = await confine(input.path, 'read', rulesOf(options, context));
  const { path: _, ...part } = input;
  if (options.whole && Object.keys(part).length === 0) return await readWhole(path, options);
  const slice = sliceOf(input, options);
  const handle = await openForRead(path);
  try {
    const { size } = await handle.stat();
    const isBinary = await startsBinary(handle);
    if (slice.fromByte !== undefined && !isBinary)
      return await readBytes(handle, path, { ...slice, size, fromByte: slice.fromByte });
    const shown = isBinary ? BINARY : await readSlice(handle, slice, context.signal);
    if (context.signal.aborted)
      return errorOutput('The read was cancelled.', { code: 'cancelled' });
    const facts = { path: path.shown, offset: slice.offset, bytes: size };
    if (shown.binary) {
      return textOutput(`[binary file: ${path.shown}, ${size} bytes; not shown]`, {
        ...facts,
        binary: true,
        lines: 0,
        truncated: false,
      });
    }
    if (shown.lines.length === 0 && slice.offset > 1) {
      return errorOutput(
        `offset ${slice.offset} is past the end: ${path.shown} has ${shown.counted} lines.`,
        { code: 'invalid_input' },
      );
    }
    const isUnchanged =
      options.memory?.recordRead(path.real, {
        slice: `${slice.offset}:${slice.limit}:${slice.maxBytes}`,
        sliceHash: createHash('sha256').update(shown.lines.join('\n')).digest('hex'),
        contentHash: size <= MAX_EDIT_BYTES ? await hashOf(handle) : undefined,
      }) === true;
    return present(shown, facts, isUnchanged, slice.numbered);
  } finally {
    await handle.close();
  }
}

/** The file as it is: `data.content` has its line endings. */
async function readWhole(
  path: ConfinedPath,
  { readLineNumbers: isNumbered = true }: BuiltinOptions,
): Promise<ToolOutput> {
  const size = path.stats?.size ?? 0;
  if (size > MAX_EDIT_BYTES) {
    return tooLarge(`${path.shown} has ${size} bytes`, 'Ask for a part with offset and limit.');
  }
  const { text, bytes } = await loadText(path);
  const lines = text.split('\n');
  if (lines.at(-1) === '') lines.pop();
  const shown = isNumbered ? lines.map((line, index) => `${index + 1}\t${line}`).join('\n') : text;
  return textOutput(lines.length === 0 ? `(${path.shown} is empty)` : shown, {
    path: path.shown,
    offset: 1,
    bytes: bytes.length,
    content: text,
    lines: lines.length,
    truncated: false,
  });
}

interface Shown {
  readonly lines: readonly string[];
  /** Number of lines that were read, shown or skipped. */
  readonly counted: number;
  readonly truncated: boolean;
  /** The only shown line was cut in the middle. */
  readonly cutLine: boolean;
  /** Byte of the file at which the page ends. */
  readonly position: number;
  readonly binary: boolean;
}

const BINARY: Shown = {
  lines: [],
  counted: 0,
  truncated: false,
  cutLine: false,
  position: 0,
  binary: true,
};

/** Returns a page by bytes, without line numbers: the only way through a line that is longer than a page. */
async function readBytes(
  handle: FileHandle,
  path: ConfinedPath,
  { size, fromByte, maxBytes }: { size: number; fromByte: number; maxBytes: number },
): Promise<ToolOutput> {
  if (fromByte >= size && size > 0) {
    return errorOutput(`from_byte ${fromByte} is past the end: ${path.shown} has ${size} bytes.`, {
      code: 'invalid_input',
    });
  }
  const page = Buffer.alloc(Math.min(maxBytes, size - fromByte));
  const { bytesRead } = await handle.read(page, 0, page.length, fromByte);
  const isLast = fromByte + bytesRead >= size;
  const shown = page.subarray(0, isLast ? bytesRead : wholeBytes(page.subarray(0, bytesRead)));
  const content = decodeCut(shown);
  const next = fromByte + shown.length;
  const notice = isLast
    ? `(bytes ${fromByte}-${size} of ${size} shown)`
    : `(bytes ${fromByte}-${next} of ${size} shown; continue with from_byte=${next})`;
  return textOutput(`${content}\n${notice}`, {
    path: path.shown,
    content,
    bytes: size,
    truncated: !isLast,
    ...(isLast ? {} : { next_byte: next }),
  });
}

async function readSlice(handle: FileHandle, slice: Slice, signal: AbortSignal): Promise<Shown> {
  const { maxBytes, room } = slice;
  const maxLines = slice.limit || Number.POSITIVE_INFINITY;
  const lines: string[] = [];
  let used = 0;
  let numbers = 0;
  let counted = 0;
  let truncated = false;
  let cutLine = false;
  let position = 0;
  for await (const line of readLines(handle, slice.offset, maxBytes)) {
    if (signal.aborted) break;
    if (line.number >= slice.offset) {
      numbers += slice.numbered ? String(line.number).length + 1 : 0;
      const bytes = used + line.length;
      const isFull = bytes > maxBytes || bytes + numbers > room;
      truncated = lines.length >= maxLines || (lines.length > 0 && isFull);
      if (truncated) break;
      if (line.bytes.includes(0)) return BINARY;
      lines.push(lineText(line.bytes, line.number));
      used = bytes;
      cutLine = line.cut;
      if (cutLine) position += wholeBytes(line.bytes);
    }
    counted = line.number;
    if (cutLine) break;
    position += line.length;
  }
  if (looksBinary(lines)) return BINARY;
  return { lines, counted, truncated: truncated || cutLine, cutLine, position, binary: false };
}

function lineText(bytes: Buffer, number: number): string {
  const line = decodeCut(bytes);
  const plain = number === 1 && line.startsWith('\u{FEFF}') ? line.slice(1) : line;
  return plain.endsWith('\r') ? plain.slice(0, -1) : plain;
}

/** True if the text has so many replacement characters that the bytes were not UTF-8. */
function looksBinary(lines: readonly string[]): boolean {
  let replaced = 0;
  let total = 0;
  for (const line of lines) {
    total += line.length;
    for (let at = line.indexOf('\u{FFFD}'); at !== -1; at = line.indexOf('\u{FFFD}', at + 1)) {
      replaced += 1;
    }
  }
  return replaced >= 4 && replaced * 10 > total;
}

async function hashOf(handle: FileHandle): Promise<string> {
  const hash = createHash('sha256');
  const chunk = Buffer.alloc(64 * 1024);
  for (let position = 0; ; ) {
    const { bytesRead } = await handle.read(chunk, 0, chunk.length, position);
    if (bytesRead === 0) return hash.digest('hex');
    hash.update(chunk.subarray(0, bytesRead));
    position += bytesRead;
  }
}

function present(
  shown: Shown,
  facts: JsonObject & { path: string; offset: number },
  isUnchanged: boolean,
  isNumbered: boolean,
): ToolOutput {
  const last = facts.offset + shown.lines.length - 1;
  const data = {
    ...facts,
    content: shown.lines.join('\n'),
    lines: shown.lines.length,
    truncated: shown.truncated,
    ...(shown.truncated ? { next_offset: last + 1 } : {}),
  };
  if (isUnchanged) {
    return textOutput(
      `Unchanged since the last read of ${facts.path} (lines ${facts.offset}-${last}): the earlier result still holds.`,
      { ...data, unchanged: true },
    );
  }
  if (shown.lines.length === 0) return textOutput(`(${facts.path} is empty)`, data);
  const body = shown.lines.map((line, index) =>
    isNumbered ? `${facts.offset + index}\t${line}` : line,
  );
  if (shown.cutLine) {
    body.push(
      `(line ${last} is longer than a page; continue with from_byte=${shown.position}, or with offset=${last + 1} for the next line)`,
    );
  } else if (shown.truncated) {
    body.push(
      `(lines ${facts.offset}-${last} shown; the file has more: continue with offset=${last + 1})`,
    );
  }
  return textOutput(body.join('\n'), data);
}
