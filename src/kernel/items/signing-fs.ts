import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { type ErrorInfo, RyeError, toRyeError } from '../core/errors.ts';
import type { SignableType, Space } from '../core/ids.ts';
import { compact } from '../core/json.ts';
import { writeInside } from '../disk/inside.ts';
import { readRegular } from '../disk/regular-file.ts';
import type { SigningKey } from '../trust/keys.ts';
import { hashOfText, type PowerFile } from '../trust/lock.ts';
import { faultError } from '../trust/policy.ts';
import {
  claimedSubject,
  detachedSignature,
  signText,
  type TextToSign,
  unsignedText,
} from '../trust/signature.ts';
import { type SignatureStyle, signatureStyle } from '../trust/signature-line.ts';
import { itemSubject } from './binding.ts';
import { isPowerFile } from './config.ts';
import { readDetached, removeDetached, writeDetached } from './detached-fs.ts';
import { signedSkillList, skillListPath } from './skill-files-fs.ts';
import {
  type FoundFile,
  type ItemPath,
  itemFolder,
  itemNotFound,
  type ListedItem,
  type Spaces,
} from './spaces-fs.ts';
import { type VerifyContext, verifyFile, verifySignedSkill, verifySkill } from './verified-fs.ts';

/** A problem found by validation before signing; lines and columns count from 1. */
export interface Problem {
  readonly severity: 'error' | 'warning';
  readonly code: string;
  readonly message: string;
  readonly path: string;
  readonly line: number | null;
  readonly column: number | null;
  /** A replacement to paste, possibly of several lines. */
  readonly hint?: string;
}

/** The outcome of signing one file. */
export interface SignOutcome {
  readonly type: SignableType;
  readonly id: string;
  readonly path: string;
  readonly status: 'signed' | 'unchanged' | 'would_sign' | 'failed';
  readonly problems: readonly Problem[];
}

/** The outcome of verifying one file; `error` has the code and the hint. */
export interface VerifyOutcome {
  readonly type: SignableType;
  readonly id: string;
  readonly space: Space;
  readonly path: string;
  readonly ok: boolean;
  readonly error?: ErrorInfo;
  readonly key_id?: string;
  /** 1 for a valid signature of version 1, which covers neither type nor id. */
  readonly signature_version?: 1 | 2;
  /** Time of signing, if the signature covers it. */
  readonly signed_at?: string;
  /** The thread whose model signed the knowledge; absent: a person did. */
  readonly signed_by_thread?: string;
}

export interface SignRequest {
  readonly type: SignableType;
  /** An id, or a glob over ids. */
  readonly pattern: string;
  readonly dryRun?: boolean;
}

/** In the first line of the file, or in a separate file below `.ai/signatures`. */
export type SigningMode = 'inline' | 'detached';

/** Compiles a glob to a test over ids; `*` matches no slash. */
export type GlobCompiler = (pattern: string) => Promise<(id: string) => boolean>;

export interface SignOptions {
  readonly spaces: Spaces;
  readonly compileGlob: GlobCompiler;
  /** Called for the first file that is valid. */
  readonly signer: () => SigningKey | Promise<SigningKey>;
  /** The thread whose model signs; absent: a person does. */
  readonly thread?: string | undefined;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** Returns the place of signatures in a space; default: inline. */
  readonly modeOf?: (space: Space) => Promise<SigningMode>;
  /** Returns the problems of a file; an `error` prevents signing. */
  readonly validate: (file: FoundFile) => readonly Problem[] | Promise<readonly Problem[]>;
}

/**
 * Signs the items that match a pattern in the project and user spaces, in place and atomically. Keeps each file's mode
 * and skips files that are already signed; replaces version 1 signatures. Throws `item_not_found`, or `read_only_space`
 * for system items.
 */
export async function signItems(
  { type, pattern, dryRun = false }: SignRequest,
  options: SignOptions,
): Promise<readonly SignOutcome[]> {
  const matches = layersOf(type, pattern, options) ?? (await matchItems(type, pattern, options));
  const writable = matches.filter(({ space }) => space !== 'system');
  const [first] = matches;
  if (first !== undefined && writable.length === 0) {
    if (options.spaces.isClone) throw partOfClone(first);
    throw new RyeError(
      'read_only_space',
      `the ${type} ${first.id} is in the system space, which is read-only`,
      {
        hint: `Copy it first: rye fetch ${type} ${first.id} --copy-to project`,
        details: { type, id: first.id, path: first.path },
      },
    );
  }
  const outcomes: SignOutcome[] = [];
  for (const { id, space, path } of writable) {
    try {
      const file = options.spaces.find(type, id, { space });
      if (file !== undefined) outcomes.push(await signOne(file, dryRun, options));
    } catch (error) {
      // one bad file must not stop the others; without a key none can be signed
      if (writable.length === 1 || !isAboutOneFile(error)) throw error;
      outcomes.push({ type, id, path, status: 'failed', problems: [problemOf(error, path)] });
    }
  }
  return outcomes;
}

/** The refusal of a shipped item in the clone of rye that it belongs to. */
export function partOfClone({ type, id, path }: ItemPath): RyeError {
  return new RyeError(
    'read_only_space',
    `the ${type} ${id} ships with rye, and this is its clone`,
    {
      hint: `Edit ${path} itself, then run: npm run build`,
      details: { type, id, path },
    },
  );
}

/** Returns the files of a configuration name that count together; undefined for what one file decides. */
function layersOf(
  type: SignableType,
  id: string,
  { spaces }: Pick<SignOptions, 'spaces'>,
): readonly ItemPath[] | undefined {
  if (type !== 'config' || GLOB.test(id)) return undefined;
  const found = (['project', 'user'] as const).flatMap((space) => {
    const file = spaces.find(type, id, { space });
    return file?.space === space ? [file] : [];
  });
  const paths = new Set(found.map(({ path }) => path));
  return paths.size > 1 ? found : undefined;
}

const GLOB = /[*?[\]{}]/;

/** Checks the signatures of the items that match a pattern in all spaces; throws `item_not_found`. */
export async function verifyItems(
  { type, pattern }: Pick<SignRequest, 'type' | 'pattern'>,
  context: VerifyContext & Pick<SignOptions, 'compileGlob'>,
): Promise<readonly VerifyOutcome[]> {
  const matches = await matchItems(type, pattern, context);
  return matches.map((item) => verifyOne(item, context));
}

function isAboutOneFile(error: unknown): error is RyeError {
  return error instanceof RyeError && !error.code.startsWith('key_');
}

function problemOf({ code, message, hint }: RyeError, path: string): Problem {
  const problem = { severity: 'error', code, message, path, line: null, column: null } as const;
  return hint === undefined ? problem : { ...problem, hint };
}

async function signOne(
  file: FoundFile,
  dryRun: boolean,
  options: SignOptions,
): Promise<SignOutcome> {
  const { type, id, path, extension, text } = file;
  const style = signatureStyle(extension);
  const problems = [...(await options.validate(file)), ...movedWarning(file, style)];
  const outcome = { type, id, path, problems };
  if (outcome.problems.some(({ severity }) => severity === 'error'))
    return { ...outcome, status: 'failed' };
  if (type === 'skill') return { ...outcome, status: await signSkill(file, dryRun, options) };
  if (style === undefined) {
    throw new RyeError('usage', `files with the extension ${extension} cannot be signed`, {
      location: { path },
    });
  }
  const signing = {
    subject: itemSubject(file),
    key: await options.signer(),
    now: options.now(),
    thread: options.thread,
  };
  const mode = (await options.modeOf?.(file.space)) ?? 'inline';
  const write = mode === 'detached' ? signBeside : signInside;
  return { ...outcome, status: write(file, { text, style, ...signing }, { ...options, dryRun }) };
}

/** Returns the folder with the `.ai` of a space; no signature is written outside it. */
function rootOf(
  { space, path }: Pick<FoundFile, 'space' | 'path'>,
  spaces: Pick<Spaces, 'root'>,
): string {
  return dirname(spaces.root(space) ?? path);
}

interface Writing extends Pick<SignOptions, 'spaces'> {
  readonly dryRun: boolean;
}

function signInside(
  file: FoundFile,
  content: TextToSign,
  { spaces, dryRun }: Writing,
): SignOutcome['status'] {
  const signed = signText(content);
  if (dryRun) return signed === file.text ? 'unchanged' : 'would_sign';
  if (signed !== file.text) writeInside(rootOf(file, spaces), file.path, signed);
  const removed = removeDetached(file, spaces);
  return signed === file.text && removed === 0 ? 'unchanged' : 'signed';
}

/** Writes the signature first: until the file is written, the line in it still counts. */
function signBeside(
  file: FoundFile,
  content: TextToSign,
  { spaces, dryRun }: Writing,
): SignOutcome['status'] {
  const bare = unsignedText(file.text, content.style);
  const present = readDetached({ ...file, text: bare }, content.style, spaces);
  const { signature, hash } = detachedSignature({ ...content, text: bare }, present);
  if (bare === file.text && signature === present) return 'unchanged';
  if (dryRun) return 'would_sign';
  writeDetached(file, signature, hash, spaces);
  if (bare !== file.text) writeInside(rootOf(file, spaces), file.path, bare);
  return 'signed';
}

/** Warns the signer that the file was signed as another item. */
function movedWarning(file: FoundFile, style: SignatureStyle | undefined): readonly Problem[] {
  const { path, text } = file;
  const claimed = style === undefined ? undefined : claimedSubject(text, style);
  const { kind, id } = itemSubject(file);
  if (claimed === undefined || (claimed.kind === kind && claimed.id === id)) return [];
  const message = `the file was signed as ${claimed.kind} ${claimed.id}; the new signature is for ${kind} ${id}`;
  return [{ severity: 'warning', code: 'item_moved', message, path, line: 1, column: null }];
}

/**
 * Signs a skill as a whole with a list beside SKILL.md: a signature line would hide the frontmatter from other programs
 * that read skills.
 */
async function signSkill(
  { id, path, space }: FoundFile,
  dryRun: boolean,
  { signer, now, thread, spaces }: SignOptions,
): Promise<SignOutcome['status']> {
  const folder = dirname(path);
  const list = signedSkillList(folder, id, { key: await signer(), now: now(), thread });
  if (list === undefined) return 'unchanged';
  if (dryRun) return 'would_sign';
  writeInside(rootOf({ space, path }, spaces), skillListPath(folder), list);
  return 'signed';
}

/** Checks the signature of one file. */
export function verifyOne(
  { type, id, space, path }: ItemPath,
  context: VerifyContext,
): VerifyOutcome {
  const outcome = { type, id, space, path };
  let found: FoundFile | undefined;
  try {
    found = context.spaces.find(type, id, { space });
  } catch (error) {
    return { ...outcome, ok: false, error: toRyeError(error).toJSON() };
  }
  if (found === undefined)
    return { ...outcome, ok: false, error: itemNotFound(type, id, []).toJSON() };
  const verdict = type === 'skill' ? verifySkill(found, context) : verifyFile(found, context);
  if (!verdict.ok) {
    const key = verdict.keyId === undefined ? {} : { key_id: verdict.keyId };
    return { ...outcome, ok: false, error: faultError(found, verdict).toJSON(), ...key };
  }
  if (verdict.by === 'manifest') return { ...outcome, ok: true };
  const { keyId: key_id, version: signature_version, signedAt: signed_at, thread } = verdict;
  return compact({
    ...outcome,
    ok: true,
    key_id,
    signature_version,
    signed_at,
    signed_by_thread: thread,
  });
}

/**
 * Returns the item that an id resolves to, or every item whose id matches a glob; a duplicate id counts once. In a glob
 * without a slash `*` crosses folders, so that `*` alone means all.
 */
export async function matchItems(
  type: SignableType,
  pattern: string,
  { spaces, compileGlob }: Pick<SignOptions, 'spaces' | 'compileGlob'>,
): Promise<readonly ItemPath[]> {
  if (!GLOB.test(pattern)) {
    const found = spaces.find(type, pattern);
    if (found !== undefined) return [found];
    throw itemNotFound(
      type,
      pattern,
      spaces.list(type).map(({ id }) => id),
    );
  }
  const matches = await compileGlob(pattern);
  const isFlat = !pattern.includes('/');
  const unique = new Map<string, ItemPath>();
  for (const item of spaces.list(type)) {
    const key = `${item.space}:${item.id}`;
    if (matches(isFlat ? item.id.replaceAll('/', ' ') : item.id) && !unique.has(key))
      unique.set(key, item);
  }
  if (unique.size > 0) return [...unique.values()];
  throw new RyeError('item_not_found', `no ${type} matches ${pattern}`, {
    hint: '`*` matches within one folder; use `**` to match nested folders.',
    details: { type, pattern },
  });
}

/** Types of items that affect every run of a project. */
const POWER_TYPES = ['config', 'rule', 'skill'] as const satisfies readonly SignableType[];

export function isPowerType(type: SignableType): boolean {
  return (POWER_TYPES as readonly SignableType[]).includes(type);
}

/**
 * Reads a project's power files (configuration, rules and skills) with the state of their signatures.
 */
export function readPowerFiles(
  context: VerifyContext,
  skills: Spaces = context.spaces,
): readonly PowerFile[] {
  return POWER_TYPES.flatMap((type) => {
    const spaces = type === 'skill' ? skills : context.spaces;
    // a project without the folder skips the walk through the other spaces
    const root = context.spaces.root('project');
    const isThere = root !== undefined && existsSync(join(root, itemFolder(type)));
    if (!isThere && skills === context.spaces) return [];
    return spaces
      .list(type, { space: 'project' })
      .map((item) => powerFile(item, spaces, { ...context, spaces }));
  });
}

function powerFile(item: ListedItem, spaces: Spaces, context: VerifyContext): PowerFile {
  const { type, id, path } = item;
  const needsSignature = type !== 'config' || isPowerFile(id);
  const file = { type, id, path, needsSignature };
  try {
    const found = spaces.find(type, id, { space: 'project', path });
    if (found === undefined) throw new RyeError('item_not_found', `${path} is gone`);
    const verdict =
      type === 'skill' ? verifySignedSkill(found, context) : verifyFile(found, context);
    const sha256 = hashOfText(pinnedText(found));
    if (!verdict.ok) {
      const { code: fault, keyId = null, signedAs = null, detail = null } = verdict;
      return { ...file, sha256, fault, detail, keyId, signedAs, error: faultError(found, verdict) };
    }
    const keyId = verdict.by === 'key' ? verdict.keyId : null;
    return { ...file, sha256, fault: null, detail: null, keyId, signedAs: null, error: null };
  } catch (error) {
    if (!(error instanceof RyeError)) throw error;
    const nothing = { sha256: null, detail: null, keyId: null, signedAs: null };
    return { ...file, ...nothing, fault: 'unreadable', error };
  }
}

/** Returns the text that a pin covers: for a skill the signed list of its files. */
function pinnedText({ type, path, text }: FoundFile): string {
  const list = skillListPath(dirname(path));
  return type === 'skill' && existsSync(list) ? readRegular(list).toString('utf8') : text;
}
