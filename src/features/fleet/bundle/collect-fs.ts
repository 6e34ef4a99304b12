import { existsSync, lstatSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, sep } from 'node:path';
import { RyeError } from '../../../kernel/core/errors.ts';
import { isItemType, type SignableType, type Space } from '../../../kernel/core/ids.ts';
import { isRecord } from '../../../kernel/core/json.ts';
import type { PlanSource, ThreadPlan } from '../../../kernel/core/plan.ts';
import { detachedPath } from '../../../kernel/items/detached-fs.ts';
import {
  openSkillList,
  readSkillFiles,
  skillListPath,
} from '../../../kernel/items/skill-files-fs.ts';
import type { FoundFile, ListedItem } from '../../../kernel/items/spaces-fs.ts';
import {
  type VerifyContext,
  verifyFile,
  verifySignedSkill,
} from '../../../kernel/items/verified-fs.ts';
import { planHash, planText } from '../../../kernel/threads/stored-plan.ts';
import { type SigningKey, sha256Hex } from '../../../kernel/trust/keys.ts';
import { readLock } from '../../../kernel/trust/lock.ts';
import { faultError } from '../../../kernel/trust/policy.ts';
import { signatureStyle } from '../../../kernel/trust/signature-line.ts';
import { sealEnvelope } from './envelope.ts';
import { statedFiles, statementText } from './statement.ts';
import { type BundleFile, tarSize, writeTar } from './tar.ts';

export interface BundleRequest extends VerifyContext {
  readonly plan: ThreadPlan;
  /** The submitter's key. */
  readonly key: SigningKey;
  readonly ryeVersion: string;
  /** Returns the commit of the project if it holds these files as they are, else undefined. */
  readonly commitOf: (paths: readonly string[]) => Promise<string | undefined>;
}

/** The files that a thread may load on another machine, packed and signed. */
export interface Bundle {
  /** SHA-256 hex of `tar`. */
  readonly digest: string;
  readonly planSha256: string;
  readonly tar: Buffer;
  /** The DSSE envelope as JSON. */
  readonly envelope: string;
  /** Paths below `.ai`. */
  readonly paths: readonly string[];
  /** Files that are not in it because no trusted key signed them, or because they can't be read. */
  readonly skipped: readonly { readonly path: string; readonly code: string }[];
}

/** Bytes of a bundle, at most. */
const MAX_BUNDLE_BYTES = 8 * 1024 * 1024;
const TYPES = ['directive', 'tool', 'knowledge', 'rule', 'skill', 'config'] as const;
/** Exports of threads, which no thread needs. */
const EXPORTS = 'agent/threads';
/** Configuration of this machine, which may hold passwords, and all that tells whom to trust. */
const OWN_CONFIG: ReadonlySet<string> = new Set(['store', 'fleet', 'trust']);
const LOCK = 'lock.json';

/**
 * Packs the signed items of a project, and the items of the user space that the plan names. What no trusted key signed is left
 * out. Throws the fault of a file that the plan needs, `file_changed` if one is no longer what was planned, and
 * `item_too_large` above 8 MiB.
 */
export async function collectBundle(request: BundleRequest): Promise<Bundle> {
  const collected = new Collection(request);
  collected.addProject();
  collected.addNamed();
  collected.addPinned();
  collected.addLock();
  collected.assertPlanned();
  const files = [...collected.files.values()];
  assertSize(files);
  const tar = writeTar(files);
  const digest = sha256Hex(tar);
  const planSha256 = planHash(planText(request.plan));
  const paths = files.map(({ path }) => path).toSorted();
  const commit = await request.commitOf(paths.map((path) => `.ai/${path}`));
  const statement = statementText(digest, {
    files: [...statedFiles(sortedByBytes(files))],
    plan_sha256: planSha256,
    signers: [...collected.signers].toSorted(),
    git_commit: collected.isProjectOnly ? (commit ?? null) : null,
    rye_version: request.ryeVersion,
  });
  const envelope = sealEnvelope(statement, request.key);
  return { digest, planSha256, tar, envelope, paths, skipped: collected.skipped };
}

class Collection {
  readonly files = new Map<string, BundleFile>();
  readonly signers = new Set<string>();
  skipped: readonly { readonly path: string; readonly code: string }[] = [];
  /** False once a file of the user space is in it. */
  isProjectOnly = true;
  readonly #request: BundleRequest;

  constructor(request: BundleRequest) {
    this.#request = request;
  }

  addProject(): void {
    const { spaces } = this.#request;
    for (const type of TYPES) {
      for (const item of spaces.list(type, { space: 'project', without: EXPORTS })) {
        if (type === 'config' && isOwnConfig(item.id)) continue;
        this.#tryItem(item);
      }
    }
  }

  /** Adds items of the user space whose ids are in the plan. The project has none of that id, else it would be used. */
  addNamed(): void {
    const { spaces, plan } = this.#request;
    const named = textsIn(plan);
    for (const type of TYPES) {
      if (type === 'config') continue;
      for (const item of spaces.list(type, { without: EXPORTS })) {
        const isUsed = item.space === 'user' && item.shadowedBy === null;
        if (isUsed && named.has(item.id)) this.#tryItem(item);
      }
    }
  }

  /** Adds files beside tools whose hashes are in a signed tool. */
  addPinned(): void {
    const pinned = new Set<string>();
    for (const [path, { bytes }] of this.files) {
      if (!path.startsWith('tools/')) continue;
      for (const [hash] of Buffer.from(bytes)
        .toString('latin1')
        .matchAll(/\b[0-9a-f]{64}\b/g))
        pinned.add(hash);
    }
    if (pinned.size === 0) return;
    for (const space of ['project', 'user'] as const) {
      const root = this.#request.spaces.root(space);
      if (root === undefined) continue;
      for (const path of filesBelow(join(root, 'tools'))) {
        const bytes = readFileSync(path);
        const name = nameBelow(root, path);
        if (!pinned.has(sha256Hex(bytes)) || this.files.has(name)) continue;
        this.#add(name, { bytes, path });
        this.skipped = this.skipped.filter((one) => one.path !== path);
        if (space === 'user') this.isProjectOnly = false;
      }
    }
  }

  /** Adds the lock unless it pins a file that is not in the bundle: that file would be missed on the other machine. */
  addLock(): void {
    const { spaces, keyring } = this.#request;
    const root = spaces.root('project');
    const path = root === undefined ? undefined : join(root, LOCK);
    if (path === undefined || !isFile(path)) return;
    const bytes = readFileSync(path);
    const found = readLock(bytes.toString('utf8'), keyring);
    if (found.state !== 'valid') return;
    const isWhole = found.lock.files.every(({ type, id }) => {
      const pinned = spaces.locate(type, id, 'project');
      return pinned !== undefined && this.files.has(nameBelow(root ?? '', pinned));
    });
    if (!isWhole) return;
    this.#add(LOCK, { bytes, path });
    this.signers.add(found.keyId);
  }

  /** Refuses a plan whose files are not in the bundle as they were planned. */
  assertPlanned(): void {
    const { plan, spaces } = this.#request;
    for (const source of [plan.directive, ...plan.chain, ...plan.context_sources])
      this.#assertSource(source);
    for (const { id } of plan.tools) {
      const found = spaces.locate('tool', id, 'project') ?? spaces.locate('tool', id, 'user');
      if (found !== undefined) this.#assertItem('tool', id);
    }
  }

  #assertSource({ type, id, space, sha256 }: PlanSource): void {
    // every machine with rye has them, and a program brings its own
    if (space === 'system' || !isItemType(type)) return;
    const found = this.#assertItem(type, id);
    if (found === undefined || sha256Hex(found.bytes) === sha256) return;
    throw new RyeError('file_changed', `${found.path} has changed since the thread was planned`, {
      hint: 'Start the thread again.',
      location: { path: found.path },
    });
  }

  #assertItem(type: SignableType, id: string): FoundFile | undefined {
    const { spaces } = this.#request;
    const found = spaces.find(type, id);
    if (found === undefined) {
      throw new RyeError('item_not_found', `the plan needs the ${type} ${id}, which is gone`, {
        hint: 'Start the thread again.',
      });
    }
    if (found.space === 'system') return undefined;
    const verdict = this.#verdictOf(found);
    if (!verdict.ok) throw faultError(found, verdict);
    if (this.files.has(this.#nameOf(found))) return found;
    throw new RyeError('path_denied', `${found.path} can't be in a bundle: it is a link`, {
      hint: 'Replace the link with the file.',
      location: { path: found.path },
    });
  }

  /** Adds an item with its signature; skips one that can't be used. */
  #tryItem({ type, id, space, path }: ListedItem): void {
    if (!isFile(path)) {
      this.#skip(path, 'path_denied');
      return;
    }
    try {
      const found = this.#request.spaces.find(type, id, { space, path });
      if (found === undefined) return;
      const verdict = this.#verdictOf(found);
      if (verdict.ok) this.#addItem(found);
      else this.#skip(path, verdict.code);
      if (verdict.ok && verdict.by === 'key') this.signers.add(verdict.keyId);
    } catch (error) {
      if (!(error instanceof RyeError)) throw error;
      this.#skip(path, error.code);
    }
  }

  #skip(path: string, code: string): void {
    this.skipped = [...this.skipped, { path, code }];
  }

  #verdictOf(found: FoundFile) {
    const check = found.type === 'skill' ? verifySignedSkill : verifyFile;
    return check(found, this.#request);
  }

  #addItem(found: FoundFile): void {
    const { spaces } = this.#request;
    if (found.space === 'user') this.isProjectOnly = false;
    this.#add(this.#nameOf(found), found);
    if (found.type === 'skill') this.#addSkillFiles(found);
    const style = signatureStyle(found.extension);
    const beside = style && detachedPath(found, style, spaces);
    if (beside === undefined || !isFile(beside)) return;
    this.#add(nameBelow(this.#root(found.space), beside), {
      bytes: readFileSync(beside),
      path: beside,
    });
  }

  /** Adds the files that the signed list of a skill names, and the list. */
  #addSkillFiles(skill: FoundFile): void {
    const folder = dirname(skill.path);
    const list = openSkillList(folder, skill.id, this.#request.keyring);
    if (!list) return;
    const place = (path: string): string => nameBelow(this.#root(skill.space), path);
    for (const file of readSkillFiles(folder)) {
      const path = join(folder, file.path);
      if (list.check(file).ok) this.#add(place(path), { bytes: file.bytes, path });
    }
    const listed = skillListPath(folder);
    this.#add(place(listed), { bytes: readFileSync(listed), path: listed });
  }

  #add(name: string, { bytes, path }: { readonly bytes: Uint8Array; readonly path: string }): void {
    const isExecutable = (lstatSync(path).mode & 0o111) !== 0;
    this.files.set(name, { path: name, bytes, isExecutable });
  }

  #nameOf({ space, path }: Pick<FoundFile, 'space' | 'path'>): string {
    return nameBelow(this.#root(space), path);
  }

  #root(space: Space): string {
    return this.#request.spaces.root(space) ?? '';
  }
}

function isOwnConfig(id: string): boolean {
  const [first = ''] = id.split('/', 1);
  return OWN_CONFIG.has(first);
}

/** Every text in a value, at any depth. */
function textsIn(value: unknown, found = new Set<string>()): ReadonlySet<string> {
  if (typeof value === 'string') found.add(value);
  else if (Array.isArray(value)) for (const one of value) textsIn(one, found);
  else if (isRecord(value)) for (const one of Object.values(value)) textsIn(one, found);
  return found;
}

function nameBelow(root: string, path: string): string {
  return relative(root, path).split(sep).join('/');
}

function isFile(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false })?.isFile() === true;
}

/** Folders of package managers, interpreters and version control. */
const FOREIGN: ReadonlySet<string> = new Set(['node_modules', '__pycache__', '.git']);

/** Paths of the regular files below a folder that a bundle can hold; follows no link. */
function filesBelow(folder: string): readonly string[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return FOREIGN.has(entry.name) ? [] : filesBelow(path);
    return entry.isFile() && lstatSync(path).size <= MAX_BUNDLE_BYTES ? [path] : [];
  });
}

function sortedByBytes(files: readonly BundleFile[]): readonly BundleFile[] {
  return files.toSorted((one, other) =>
    Buffer.compare(Buffer.from(one.path), Buffer.from(other.path)),
  );
}

const NAMED = 5;

function assertSize(files: readonly BundleFile[]): void {
  const size = tarSize(files);
  if (size <= MAX_BUNDLE_BYTES) return;
  const largest = files
    .toSorted((one, other) => other.bytes.length - one.bytes.length)
    .slice(0, NAMED)
    .map(({ path, bytes }) => `${path} (${bytes.length} bytes)`);
  throw new RyeError(
    'item_too_large',
    `the items of the project take ${size} bytes, and a bundle ${MAX_BUNDLE_BYTES}; the largest: ${largest.join(', ')}`,
    {
      hint: 'Move files that threads on other machines do not need out of .ai.',
      details: { bytes: size },
    },
  );
}
