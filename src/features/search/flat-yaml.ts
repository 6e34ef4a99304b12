import type { JsonObject, JsonValue } from '../../kernel/core/json.ts';

type Scalar = string | number;

/** Words, a path or a time. No first character, colon or number sign gives it another meaning, and no YAML word is one. */
const PLAIN =
  /^(?!(?:true|false|null)$)(?:\.?[A-Za-z]|\d+\.\d+\.\d+$)[\w./+,!?()-]*(?: [\w./+,!?()-]+)*$/i;
/** An item between brackets, where commas end it. */
const FLOW_ITEM = /^[\w./+ -]+$/;
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z$/;
const NUMBER = /^(?:0|[1-9]\d{0,14})(?:\.\d{1,15})?$/;
const SPECIAL = /^\.(?:inf|nan)$/i;
// no quotation marks, backslashes, control characters and separators of lines
const QUOTED = /^"(?:[ !#-[\]-~\u00a0-\u2027\u202a-\uffff]|\\["\\nt])*"$/;
/** No word of YAML, and no member that every object has. */
const KEY = /^(?!(?:__proto__|true|false|null)$)[a-z_]\w*$/i;
const [SPACE, QUOTE, ZERO, NINE, COLON, BRACKET] = [0x20, 0x22, 0x30, 0x39, 0x3a, 0x5b];

/**
 * Reads the YAML that rye itself writes above an export: members with a plain scalar or a list between brackets, and one level
 * of members or list items indented by two spaces. Returns exactly what a YAML parser returns, about fifty times faster, or undefined for any
 * other text, also for YAML that it does not know.
 */
export function parseFlatYaml(text: string): JsonObject | undefined {
  const members: Members = {};
  let block: Block | undefined;
  for (const line of text.split('\n')) {
    if (line.startsWith('  ')) {
      if (block === undefined || !addLine(block, line.slice(2))) return undefined;
      continue;
    }
    if (block !== undefined && !close(block, members)) return undefined;
    block = undefined;
    const key = keyOf(line, members);
    if (key === undefined) return undefined;
    if (line.length === key.length + 1) block = { key };
    else if (!addScalar(members, key, line)) return undefined;
  }
  return block === undefined || close(block, members) ? members : undefined;
}

type Members = Record<string, JsonValue>;

/** The indented lines below a key: items or members. */
interface Block {
  readonly key: string;
  items?: Scalar[];
  members?: Members;
}

/** Returns the key of a member that is not there yet. */
function keyOf(line: string, members: Members): string | undefined {
  const key = line.slice(0, line.indexOf(':'));
  const isKey = isFlatKey(key) && line.charCodeAt(key.length) === COLON;
  return isKey && !(key in members) ? key : undefined;
}

function addScalar(members: Members, key: string, line: string): boolean {
  const start = key.length + 2;
  if (line.charCodeAt(start - 1) !== SPACE) return false;
  const text = line.slice(start);
  const value = text.charCodeAt(0) === BRACKET ? readFlow(text) : readFlatScalar(text);
  if (value !== undefined) members[key] = value;
  return value !== undefined;
}

/** Reads a list of plain scalars between brackets. */
function readFlow(text: string): Scalar[] | undefined {
  if (!text.endsWith(']')) return undefined;
  const scalars: Scalar[] = [];
  for (const item of text.slice(1, -1).split(', ')) {
    const scalar = FLOW_ITEM.test(item) ? readFlatScalar(item) : undefined;
    if (scalar === undefined) return undefined;
    scalars.push(scalar);
  }
  return scalars;
}

function addLine(block: Block, line: string): boolean {
  if (line.startsWith('- ')) {
    const item = block.members === undefined ? readFlatScalar(line.slice(2)) : undefined;
    if (item !== undefined) (block.items ??= []).push(item);
    return item !== undefined;
  }
  if (block.items !== undefined) return false;
  block.members ??= {};
  const key = keyOf(line, block.members);
  return key !== undefined && addScalar(block.members, key, line);
}

/** Sets the member whose block ends; false if it has no lines. */
function close({ key, items, members: nested }: Block, members: Members): boolean {
  const value = items ?? nested;
  if (value !== undefined) members[key] = value;
  return value !== undefined;
}

/** True for a name that means itself in every YAML file. */
function isFlatKey(name: string): boolean {
  return KEY.test(name);
}

/** Reads a plain word, path, time or number, or a text in double quotes; undefined for anything else. */
function readFlatScalar(text: string): Scalar | undefined {
  // most values are words, and each test costs
  const first = text.charCodeAt(0);
  if (first === QUOTE) return QUOTED.test(text) ? (JSON.parse(text) as string) : undefined;
  if (first >= ZERO && first <= NINE) {
    if (NUMBER.test(text)) return Number(text);
    if (TIME.test(text)) return text;
  }
  return PLAIN.test(text) && !SPECIAL.test(text) ? text : undefined;
}
