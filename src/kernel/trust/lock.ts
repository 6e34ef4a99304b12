import type { RyeError } from '../core/errors.ts';
import type { SignableType } from '../core/ids.ts';
import { isRecord, type JsonObject, parseJson } from '../core/json.ts';
import { type KeyLookup, type SigningKey, sha256Hex } from './keys.ts';
import { checkDocument, type SignatureFault, signDocument } from './signature.ts';
import type { SignedSubject } from './signature-line.ts';

/** The subject of a lock file's signature: no other signed document passes as a lock. */
const SUBJECT: SignedSubject = { kind: 'lock', id: 'project' };
const FORMAT = 1;

/** An accepted power file. */
export interface Pin {
  readonly type: SignableType;
  readonly id: string;
  /** SHA-256 hex of the text with LF line endings; for a skill, of the signed list of its files. */
  readonly sha256: string;
  readonly key_id: string;
}

/** Content of a lock file. `serial` counts its versions, to detect an older one. */
export interface Lock {
  readonly serial: number;
  readonly files: readonly Pin[];
}

/** The state of a project's lock file. `sha256` is the hash of its text. */
export type FoundLock =
  | { readonly state: 'absent' }
  | {
      readonly state: 'valid';
      readonly lock: Lock;
      readonly sha256: string;
      readonly keyId: string;
    }
  /** Unsigned, or signed by a key that the user does not trust: it pins nothing. */
  | { readonly state: 'untrusted'; readonly sha256: string; readonly keyId: string }
  | { readonly state: 'invalid'; readonly sha256: string; readonly reason: string };

/** The user space's copy of a project's pins, with the hash of the lock file they came from. */
export interface Memory extends Lock {
  /** Null if the project has no lock file: the first run pinned its power files. */
  readonly lock_sha256: string | null;
}

/** The current state of a power file. */
export interface PowerFile {
  readonly type: SignableType;
  readonly id: string;
  readonly path: string;
  /** Null if the file cannot be read. */
  readonly sha256: string | null;
  /** Null: a key that the user trusts signed it. */
  readonly fault: SignatureFault | 'unreadable' | null;
  /** A clause that completes the fault, such as the changed files of a skill. */
  readonly detail: string | null;
  readonly keyId: string | null;
  /** The proven subject of its signature, if it was signed as another file. */
  readonly signedAs: SignedSubject | null;
  /** The fault as other commands report it. */
  readonly error: RyeError | null;
  /** True if it counts only while it is signed. */
  readonly needsSignature: boolean;
}

/** One difference between accepted and current power files. */
export interface GuardChange {
  /** Null for the lock file itself. */
  readonly type: SignableType | null;
  readonly id: string | null;
  readonly change:
    | 'changed'
    | 'added'
    | 'gone'
    | 'unsigned'
    | 'untrusted'
    | 'damaged'
    | 'lock_gone'
    | 'lock_changed'
    | 'lock_rolled_back'
    | 'lock_damaged';
  /** A clause that describes the change. */
  readonly detail: string;
}

/** Renders a lock file signed by the user's key. */
export function lockText(lock: Lock, key: SigningKey, now: number): string {
  const document: JsonObject = {
    format: FORMAT,
    serial: lock.serial,
    files: lock.files.map((pin) => ({ ...pin })),
  };
  return `${JSON.stringify(signDocument(document, { subject: SUBJECT, key, now }), null, 2)}\n`;
}

/** Parses a lock file and checks its signature. */
export function readLock(text: string | undefined, keys: KeyLookup): FoundLock {
  if (text === undefined) return { state: 'absent' };
  const sha256 = hashOfText(text);
  const document = parseJson(text);
  const verdict = checkDocument(document, { keys, subject: SUBJECT });
  if (!verdict.ok) {
    return verdict.code === 'key_untrusted' || verdict.code === 'key_out_of_scope'
      ? { state: 'untrusted', sha256, keyId: verdict.keyId ?? 'unknown' }
      : { state: 'invalid', sha256, reason: LOCK_FAULTS[verdict.code] ?? verdict.code };
  }
  // version 1 signatures have no subject
  const lock = verdict.by === 'key' && verdict.version !== 1 ? readPins(document) : undefined;
  if (lock === undefined) return { state: 'invalid', sha256, reason: 'it is not a lock file' };
  return { state: 'valid', lock, sha256, keyId: verdict.by === 'key' ? verdict.keyId : '' };
}

const LOCK_FAULTS: Partial<Record<SignatureFault, string>> = {
  unsigned: 'it is not signed',
  content_modified: 'it was edited after it was signed',
  key_revoked: 'its key was revoked',
  signature_invalid: 'its signature is invalid',
  item_moved: 'it was signed as something else',
};

/** Parses the serial and pins of a lock or a user-space copy; undefined for anything else. */
export function readPins(document: unknown): Lock | undefined {
  if (!isRecord(document)) return undefined;
  const { format, serial, files } = document;
  if (format !== FORMAT || typeof serial !== 'number' || !Array.isArray(files)) return undefined;
  const pins = files.filter(isPin);
  return pins.length === files.length ? { serial, files: pins } : undefined;
}

function isPin(value: unknown): value is Pin {
  if (!isRecord(value)) return false;
  return ['type', 'id', 'sha256', 'key_id'].every((name) => typeof value[name] === 'string');
}

/** Returns SHA-256 hex of a text with LF line endings, because version control may change them. */
export function hashOfText(text: string): string {
  return sha256Hex(text.replaceAll('\r\n', '\n'));
}

/** The input for comparing a project's power files with the accepted ones. */
export interface GuardState {
  readonly lock: FoundLock;
  readonly memory: Memory | undefined;
  readonly files: readonly PowerFile[];
}

/**
 * Returns all differences from the accepted pins: the pins of the user space, else of a lock signed by a trusted key. Files
 * that were never pinned may be unsigned or foreign, because they do not count; a damaged one is a change.
 */
export function guardChanges({ lock, memory, files }: GuardState): readonly GuardChange[] {
  const accepted = acceptedPins({ lock, memory });
  const isLocked = lock.state === 'valid' || typeof memory?.lock_sha256 === 'string';
  const pinned = accepted.flatMap((pin) =>
    pinChange(
      pin,
      files.find((one) => isSame(one, pin)),
    ),
  );
  const others = files
    .filter((file) => !accepted.some((pin) => isSame(file, pin)))
    .flatMap((file) => otherChange(file, isLocked));
  return [...lockChange(lock, memory), ...pinned, ...others];
}

/** Returns the pins that count now. */
export function acceptedPins({
  lock,
  memory,
}: Pick<GuardState, 'lock' | 'memory'>): readonly Pin[] {
  const locked = lock.state === 'valid' ? lock.lock.files : [];
  if (memory === undefined) return locked;
  if (memory.lock_sha256 !== null) return memory.files;
  // the first lock file of a project that ran without one
  return [...locked, ...memory.files.filter((pin) => !locked.some((one) => isSame(one, pin)))];
}

/** Returns pins for the current power files that a trusted key signed. */
export function currentPins(files: readonly PowerFile[]): readonly Pin[] {
  return files.flatMap(({ type, id, sha256, keyId, fault }) =>
    fault === null && sha256 !== null && keyId !== null
      ? [{ type, id, sha256, key_id: keyId }]
      : [],
  );
}

export function isSame(
  one: { readonly type: string; readonly id: string },
  other: { readonly type: string; readonly id: string },
): boolean {
  return one.type === other.type && one.id === other.id;
}

function lockChange(lock: FoundLock, memory: Memory | undefined): readonly GuardChange[] {
  const own = { type: null, id: null };
  if (lock.state === 'invalid')
    return [
      { ...own, change: 'lock_damaged', detail: `the lock file is not valid: ${lock.reason}` },
    ];
  if (memory === undefined || memory.lock_sha256 === null) return [];
  if (lock.state === 'absent')
    return [{ ...own, change: 'lock_gone', detail: 'the lock file is missing' }];
  if (lock.sha256 === memory.lock_sha256) return [];
  if (lock.state === 'untrusted') {
    const detail = `the lock file was replaced with one signed by untrusted key ${lock.keyId}`;
    return [{ ...own, change: 'lock_changed', detail }];
  }
  const { serial } = lock.lock;
  if (serial < memory.serial) {
    const detail = `the lock file was rolled back from version ${memory.serial} to ${serial}`;
    return [{ ...own, change: 'lock_rolled_back', detail }];
  }
  const detail = `the lock file differs from the accepted one: version ${serial}, signed by key ${lock.keyId}`;
  return [{ ...own, change: 'lock_changed', detail }];
}

function pinChange(pin: Pin, file: PowerFile | undefined): readonly GuardChange[] {
  const { type, id } = pin;
  if (file === undefined) return [{ type, id, change: 'gone', detail: 'is missing' }];
  if (file.fault === null) {
    if (file.sha256 === pin.sha256) return [];
    const by = file.keyId === pin.key_id ? '' : `, signed by key ${file.keyId ?? 'unknown'}`;
    return [{ type, id, change: 'changed', detail: `differs from the accepted version${by}` }];
  }
  return [faultChange(file, file.fault)];
}

const FOREIGN: ReadonlySet<PowerFile['fault']> = new Set([
  'unsigned',
  'key_untrusted',
  'key_out_of_scope',
  'unreadable',
]);

function otherChange(file: PowerFile, isLocked: boolean): readonly GuardChange[] {
  const { type, id, fault, needsSignature } = file;
  if (fault === null) {
    return isLocked ? [{ type, id, change: 'added', detail: 'is not in the lock file' }] : [];
  }
  const isForeign = FOREIGN.has(fault);
  return isForeign || !needsSignature ? [] : [faultChange(file, fault)];
}

function faultChange(
  { type, id, keyId, signedAs, detail: because, error }: PowerFile,
  fault: NonNullable<PowerFile['fault']>,
): GuardChange {
  if (fault === 'unsigned') return { type, id, change: 'unsigned', detail: 'is no longer signed' };
  if (fault === 'key_untrusted') {
    const detail = `is signed by untrusted key ${keyId ?? 'unknown'}`;
    return { type, id, change: 'untrusted', detail };
  }
  if (fault === 'key_out_of_scope') {
    const detail = `is signed by key ${keyId ?? 'unknown'}, which you trust for less`;
    return { type, id, change: 'untrusted', detail };
  }
  if (signedAs !== null) {
    const detail = `was signed as ${signedAs.kind} ${signedAs.id}`;
    return { type, id, change: 'damaged', detail };
  }
  const what = FAULTS[fault] ?? `cannot be used: ${error?.message ?? fault}`;
  const detail = fault === 'content_modified' && because !== null ? `${what} (${because})` : what;
  return { type, id, change: 'damaged', detail };
}

const FAULTS: Partial<Record<NonNullable<PowerFile['fault']>, string>> = {
  content_modified: 'was modified after it was signed',
  key_revoked: 'is signed by a revoked key',
  signature_invalid: 'has an invalid signature',
  signature_outdated: 'has a version 1 signature, which does not cover its type and id',
  item_moved: 'was signed as another file',
  signed_by_thread: 'was signed by a thread, not by a person',
};
