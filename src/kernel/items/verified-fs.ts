import { dirname, join, relative, sep } from 'node:path';
import { RyeError } from '../core/errors.ts';
import { aliasOf, type ItemType, type SignableType } from '../core/ids.ts';
import { conflictLine } from '../core/text.ts';
import type { Integrity } from '../core/thread.ts';
import { type KeyLookup, sha256Hex } from '../trust/keys.ts';
import {
  checkSystemFile,
  decide,
  faultError,
  type Operation,
  type SystemManifest,
  type TrustPolicy,
} from '../trust/policy.ts';
import { checkDetached, checkText, type SignatureFault, type Verdict } from '../trust/signature.ts';
import { signatureStyle } from '../trust/signature-line.ts';
import { type DeclaredIdentity, displacedRecord, itemSubject, otherIdentity } from './binding.ts';
import { readDetached } from './detached-fs.ts';
import { parseDirective } from './directive.ts';
import { parseKnowledge } from './knowledge.ts';
import { parseYamlMapping } from './metadata.ts';
import { openSkillList, readSkillFiles, type SkillFile } from './skill-files-fs.ts';
import { normalizeNewlines } from './source.ts';
import { type FoundFile, itemNotFound, type Spaces } from './spaces-fs.ts';
import { readToolHeader, toolKind } from './tool-metadata.ts';

/** An item's file whose signature was checked and which the policy admits for the requested operation. */
export interface VerifiedItem extends FoundFile {
  /** `unverified` if it was admitted without a valid signature: a developer allowed it, or the policy only warns. */
  readonly integrity: Integrity;
  readonly verdict: Verdict;
  /** SHA-256 hex of `bytes`. */
  readonly sha256: string;
}

export interface VerifyContext {
  readonly spaces: Spaces;
  readonly keyring: KeyLookup;
  readonly manifest: SystemManifest;
}

export interface ItemsOptions extends VerifyContext {
  readonly policy: TrustPolicy;
  readonly allowUnsigned: boolean;
  /** Called with one line if the policy only warns. */
  readonly onNotice: (notice: string) => void;
}

export interface VerifiedItems {
  /**
   * Returns the item, checked for the operation. Throws `item_not_found`, the errors of `Spaces.find`, or the verdict's
   * code. `others` are ids of items without a file, for the hint.
   */
  load(
    type: SignableType,
    id: string,
    operation: Operation,
    others?: readonly string[],
  ): VerifiedItem;
  /** Applies the same checks to a file that is already read. */
  admit(found: FoundFile, operation: Operation): VerifiedItem;
  /** Applies the same checks to another file of a skill. */
  admitSkillFile(skill: FoundFile, file: SkillFile, operation: Operation): void;
  /**
   * Refuses a skill with changed or missing signed files and names them. A file that was never signed does not belong to
   * the skill.
   */
  admitSkill(skill: FoundFile, operation: Operation): void;
  /** Returns the state of a file's signature, for a skill that of all its files, regardless of policy. */
  check(found: FoundFile): Verdict;
}

/** Opens items with checked signatures: the only way to run items, to fetch them or to add them to a context. */
export function openItems(options: ItemsOptions): VerifiedItems {
  const warned = new Set<string>();

  function judge(found: FoundFile, verdict: Verdict, operation: Operation): void {
    const decision = decide(options.policy, {
      operation,
      space: found.space,
      verdict,
      allowUnsigned: options.allowUnsigned,
    });
    if (!verdict.ok && decision !== 'accept') {
      const error = faultError(found, verdict);
      if (decision === 'refuse') throw error;
      const notice = `${error.message} [${error.code}]`;
      if (!warned.has(notice)) options.onNotice(notice);
      warned.add(notice);
    }
  }

  function admit(found: FoundFile, operation: Operation): VerifiedItem {
    const verdict = verifyFile(found, options);
    judge(found, verdict, operation);
    const integrity = verdict.ok ? 'verified' : 'unverified';
    return { ...found, integrity, verdict, sha256: hashOf(found.bytes) };
  }

  return {
    admit,
    admitSkillFile: (skill, file, operation) => {
      const path = join(dirname(skill.path), file.path);
      judge({ ...skill, path }, verifySkillFile(skill, file, options), operation);
    },
    admitSkill: (skill, operation) => {
      const changed = changedSkillFiles(skill, options);
      const [first] = changed;
      if (first === undefined) return;
      const path = join(dirname(skill.path), first.path);
      const detail = changed.map(({ path: name, how }) => `${name} ${how}`).join(', ');
      judge({ ...skill, path }, { ...first.verdict, detail }, operation);
    },
    check: (found) =>
      found.type === 'skill' ? verifySkill(found, options) : verifyFile(found, options),
    load(type, id, operation, others = []) {
      const alias = aliasOf(type, id);
      const found =
        options.spaces.find(type, id) ??
        (alias === undefined ? undefined : options.spaces.find(type, alias));
      if (found !== undefined) return admit(found, operation);
      throw itemNotFound(type, id, [
        ...options.spaces.list(type).map((item) => item.id),
        ...others,
      ]);
    },
  };
}

/**
 * Checks a file against the keyring, or a system file against the release manifest. A skill is signed by the list of its
 * files, else by a line in SKILL.md, which covers only that file.
 */
export function verifyFile(found: FoundFile, context: VerifyContext): Verdict {
  const { type, id, text, bytes, path, space, extension } = found;
  const { keyring: keys } = context;
  if (space === 'system') return verifySystemFile(path, bytes, context);
  const list = type === 'skill' ? openSkillList(dirname(path), id, keys) : undefined;
  if (list) return list.check({ path: SKILL, bytes });
  const style = signatureStyle(extension);
  if (style === undefined) return { ok: false, code: 'unsigned' };
  const expected = { text, style, keys, subject: itemSubject(found) };
  const inside = checkText(expected);
  const beside =
    inside.ok || inside.code !== 'unsigned'
      ? undefined
      : readDetached(found, style, context.spaces);
  const checked = beside === undefined ? inside : checkDetached(beside, expected);
  const conflict = checked.ok ? undefined : conflictLine(text);
  const verdict =
    conflict === undefined
      ? checked
      : { ...checked, detail: `line ${conflict} has a conflict marker of a merge` };
  if (!verdict.ok || verdict.by !== 'key' || verdict.version !== 1) return verdict;
  const fault = olderFormFault(found, {
    isShipped: () => context.spaces.find(type, id, { space: 'system' }) !== undefined,
  });
  return fault === undefined ? verdict : { ok: false, keyId: verdict.keyId, ...fault };
}

const SKILL = 'SKILL.md';

function verifySystemFile(
  path: string,
  bytes: Uint8Array,
  { spaces, manifest }: VerifyContext,
): Verdict {
  const root = `${spaces.root('system') ?? ''}${sep}`;
  const below = path.startsWith(root) ? path.slice(root.length) : relative(root, path);
  const name = below.split(sep).join('/');
  return checkSystemFile(manifest, name, hashOf(bytes));
}

const hashes = new WeakMap<Uint8Array, string>();

/** SHA-256 hex of a file's bytes, computed once for a file that is not read again. */
function hashOf(bytes: Uint8Array): string {
  const known = hashes.get(bytes);
  if (known !== undefined) return known;
  const hash = sha256Hex(bytes);
  hashes.set(bytes, hash);
  return hash;
}

/** Checks a file beside a skill's SKILL.md. */
function verifySkillFile(skill: FoundFile, file: SkillFile, context: VerifyContext): Verdict {
  const folder = dirname(skill.path);
  if (skill.space === 'system') {
    return verifySystemFile(join(folder, file.path), file.bytes, context);
  }
  const list = openSkillList(folder, skill.id, context.keyring);
  return (
    list?.check(file) ?? {
      ok: false,
      code: 'unsigned',
      detail: `no signed list contains ${file.path}`,
    }
  );
}

interface ChangedFile {
  readonly path: string;
  readonly how: string;
  readonly verdict: Extract<Verdict, { readonly ok: false }>;
}

/** Returns the changed and missing files of a skill, sorted by path. */
function changedSkillFiles(skill: FoundFile, context: VerifyContext): readonly ChangedFile[] {
  const folder = dirname(skill.path);
  const files = readSkillFiles(folder);
  const changed = files.flatMap((file): ChangedFile[] => {
    const verdict =
      file.path === SKILL ? verifyFile(skill, context) : verifySkillFile(skill, file, context);
    if (verdict.ok || verdict.code === 'unsigned') return [];
    return [{ path: file.path, how: 'was changed', verdict }];
  });
  const there = new Set(files.map(({ path }) => path));
  const signed = openSkillList(folder, skill.id, context.keyring)?.paths ?? [];
  const gone = signed.filter((path) => !there.has(path));
  const verdict = { ok: false, code: 'content_modified' } as const;
  return [...changed, ...gone.map((path) => ({ path, how: 'is missing', verdict }))];
}

/** Checks the files that a skill's signature covers. A file added later is refused only when it is used. */
export function verifySignedSkill(skill: FoundFile, context: VerifyContext): Verdict {
  const own = verifyFile(skill, context);
  const changed = own.ok ? changedSkillFiles(skill, context) : [];
  const [first] = changed;
  if (first === undefined) return own;
  return { ...first.verdict, detail: changed.map(({ path, how }) => `${path} ${how}`).join(', ') };
}

/** Checks a skill with all of its files and returns the first fault. */
export function verifySkill(skill: FoundFile, context: VerifyContext): Verdict {
  const own = verifyFile(skill, context);
  if (!own.ok) return own;
  const folder = dirname(skill.path);
  const files = readSkillFiles(folder).filter(({ path }) => path !== SKILL);
  const verdicts = files.map((file) => verifySkillFile(skill, file, context));
  const there = new Set(files.map(({ path }) => path));
  const signed = openSkillList(folder, skill.id, context.keyring)?.paths ?? [];
  const gone = signed.find((path) => path !== SKILL && !there.has(path));
  const missing: Verdict[] =
    gone === undefined ? [] : [{ ok: false, code: 'content_modified', detail: `${gone} is gone` }];
  return [...verdicts, ...missing].find(({ ok }) => !ok) ?? own;
}

/** The reason why a valid version 1 signature is not enough for a file. */
interface OlderFormFault {
  readonly code: Extract<SignatureFault, 'signature_outdated' | 'item_moved'>;
  readonly detail: string;
}

/**
 * Returns the reason why a valid version 1 signature is not enough, else undefined. Version 1 proves the text and its
 * signer, but not the item that was signed. So the text itself must declare its type and id, which configuration, rules
 * and skills never do.
 */
function olderFormFault(
  found: FoundFile,
  {
    isShipped,
  }: { /** True if the system space has an item of this id. */ isShipped: () => boolean },
): OlderFormFault | undefined {
  const { type, id, text } = found;
  if (type === 'config' || type === 'rule' || type === 'skill')
    return outdated(`a ${type} file needs one that does`);
  const displaced = displacedRecord(type, id, text);
  if (displaced !== undefined) return { code: 'item_moved', detail: displaced };
  // A thread export declares its place with thread_id and directive, which were compared above.
  if (type === 'knowledge' && isExport(found)) return undefined;
  const fault = compare(id, type, declaredIdentity(found));
  if (fault !== undefined || type !== 'tool' || !isShipped()) return fault;
  return outdated('it would replace a tool that rye ships');
}

/** Returns the declared identity; undefined if the text is not an item of its type. */
function declaredIdentity(found: FoundFile): DeclaredIdentity | undefined {
  const { type, text, path } = found;
  try {
    if (type === 'directive') return parseDirective(text, path);
    if (type === 'tool') return declaredTool(normalizeNewlines(text), path);
    const { name, category, entryType } = parseKnowledge(text, path);
    return entryType === undefined ? undefined : { name, category };
  } catch (error) {
    if (error instanceof RyeError) return undefined;
    throw error;
  }
}

/** Only a header or a manifest can name a tool; constants in a script cannot. */
function declaredTool(text: string, path: string): DeclaredIdentity | undefined {
  const header = readToolHeader(text, path);
  const isManifest = header === undefined && toolKind(path) === 'manifest';
  const source = { path, text, line: 1, column: 1 };
  const raw = isManifest ? parseYamlMapping(source, 'tool_malformed') : header;
  if (raw === undefined) return undefined;
  const { name, category } = raw.value;
  return {
    name: typeof name === 'string' ? name : undefined,
    category: typeof category === 'string' ? category : undefined,
  };
}

function compare(
  id: string,
  type: ItemType,
  declared: DeclaredIdentity | undefined,
): OlderFormFault | undefined {
  if (declared === undefined) return outdated(`its text does not declare a ${type} either`);
  const other = otherIdentity(id, declared);
  if (other !== undefined) return { code: 'item_moved', detail: other };
  if (declared.name === undefined) return outdated('its text declares no name');
  return declared.category === undefined ? outdated('its text declares no category') : undefined;
}

function isExport({ text, path }: FoundFile): boolean {
  try {
    return typeof parseKnowledge(text, path).metadata['thread_id'] === 'string';
  } catch (error) {
    if (error instanceof RyeError) return false;
    throw error;
  }
}

function outdated(detail: string): OlderFormFault {
  return { code: 'signature_outdated', detail };
}
