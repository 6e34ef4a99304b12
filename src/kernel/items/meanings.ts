import process from 'node:process';
import { isDeepStrictEqual } from 'node:util';
import { isJsonObject, type JsonObject, type JsonValue } from '../core/json.ts';
import { sha256Hex } from '../trust/keys.ts';

/** The form that a text is read as: it means one thing as a configuration file, another as frontmatter. */
export type MeaningKind = 'config' | 'mapping' | 'rule';

/** A place where meanings outlive a process. Only this user can have written what it reads, and only this build of rye reads it. */
export interface MeaningStore {
  read(): string | undefined;
  /** Replaces everything that `read` returns. Never throws. */
  write(text: string): void;
}

/** The build and the test runner define it; see `scripts/define.mjs`. */
declare const __RYE_SYSTEM_MEANINGS__: string;

/** Characters of JSON of one meaning that is kept, and of all in the store. */
const MAX_LENGTH = 64 * 1024;
const MAX_STORED = 1024 * 1024;
/** Meanings in memory: a process may read files for weeks. */
const MAX_KNOWN = 2000;

let shipped: JsonObject | undefined;
const known = new Map<string, JsonValue>();
/** The keys that this process asked for, which the store must not lose. */
const used = new Set<string>();
let store: MeaningStore | undefined;
let isChanged = false;

/** Keeps meanings beyond the end of this process, which is one command. */
export function keepMeanings(given: MeaningStore): void {
  store = given;
  for (const [key, value] of Object.entries(parse(given.read()))) {
    if (value !== undefined) known.set(key, value);
  }
  process.once('exit', save);
}

/**
 * Returns what `read` returns for this text, without reading it again: to load a parser and to parse a file takes longer than
 * to start a thread. Do not change the value, others get the same one. What throws is read each time.
 */
export function meaningOf<T>(kind: MeaningKind, text: string, read: () => T): T {
  const before = knownMeaning(kind, text);
  if (before !== undefined) return before as T;
  const value = read();
  keep(keyOf(kind, text), value);
  return value;
}

/** Returns what was read of this text before; undefined if nothing was, or only by a process that kept nothing. */
export function knownMeaning(kind: MeaningKind, text: string): JsonValue | undefined {
  const key = keyOf(kind, text);
  const ofRye = shippedByKey(key);
  if (ofRye !== undefined) return ofRye;
  const value = known.get(key);
  if (value !== undefined) used.add(key);
  return value;
}

/** Returns what the build read of this text, if it is one of a file that rye ships. The build has checked it too. */
export function shippedMeaning(kind: MeaningKind, text: string): JsonValue | undefined {
  return shippedByKey(keyOf(kind, text));
}

/** The key of a text, for the build. */
export function keyOf(kind: MeaningKind, text: string): string {
  return `${kind}:${sha256Hex(text)}`;
}

function shippedByKey(key: string): JsonValue | undefined {
  if (typeof __RYE_SYSTEM_MEANINGS__ === 'undefined') return undefined;
  shipped ??= JSON.parse(__RYE_SYSTEM_MEANINGS__) as JsonObject;
  return Object.hasOwn(shipped, key) ? shipped[key] : undefined;
}

function keep(key: string, value: unknown): void {
  const json = JSON.stringify(value) as string | undefined;
  if (json === undefined || json.length > MAX_LENGTH) return;
  const copy = JSON.parse(json) as JsonValue;
  // not a number without JSON, such as .inf
  if (!isDeepStrictEqual(copy, value)) return;
  if (known.size >= MAX_KNOWN) {
    known.clear();
    used.clear();
  }
  known.set(key, copy);
  used.add(key);
  isChanged = true;
}

function save(): void {
  if (!isChanged) return;
  const [mine, others] = [true, false].map((isUsed) =>
    [...known].filter(([key]) => used.has(key) === isUsed),
  );
  let length = 0;
  const kept = [...(mine ?? []), ...(others ?? [])].filter(([key, value]) => {
    length += key.length + JSON.stringify(value).length;
    return length <= MAX_STORED;
  });
  store?.write(JSON.stringify(Object.fromEntries(kept)));
}

function parse(text: string | undefined): JsonObject {
  try {
    const value: unknown = JSON.parse(text ?? '{}');
    return isJsonObject(value) ? value : {};
  } catch {
    return {};
  }
}
