import { existsSync, readFileSync, realpathSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { ignoredWarning, messageOf, RyeError, systemCodeOf, toRyeError } from '../core/errors.ts';
import type { SignableType } from '../core/ids.ts';
import { isRecord, parseJson } from '../core/json.ts';
import { makeFolders } from '../disk/folders.ts';
import { placeInside } from '../disk/inside.ts';
import { writeWhole } from '../disk/whole-file.ts';
import { ignoredFile } from '../items/config-fs.ts';
import { readPowerFiles } from '../items/signing-fs.ts';
import type { Guards } from '../threads/ports.ts';
import { sha256Hex } from '../trust/keys.ts';
import {
  acceptedPins,
  currentPins,
  type GuardChange,
  type GuardState,
  guardChanges,
  hashOfText,
  isSame,
  type Lock,
  lockText,
  type Memory,
  type Pin,
  type PowerFile,
  readLock,
  readPins,
} from '../trust/lock.ts';
import { TRUST_HINT } from '../trust/policy.ts';
import { diffsOf, keepTexts } from './accepted-texts.ts';
import type { AcceptedLock, LockReport } from './api/items.ts';
import { assertApprovalPolicies } from './approval-policies.ts';
import { exclusively } from './exclusive.ts';
import { threadParts } from './feature.ts';
import { readySigner } from './signing-key.ts';
import { skillSpaces } from './skill-spaces.ts';
import type { Workspace } from './workspace.ts';

/** The file in a project that pins its power files. */
export const LOCK_FILE = '.ai/lock.json';

/** The guards of a project as threads meet them. */
export function projectGuards(workspace: Workspace, allowUnsigned: boolean): Guards {
  let checked: GuardState | undefined;
  return {
    async check() {
      const facts = await readFacts(workspace);
      checked = facts;
      const refusal = refusalOf(facts);
      if (refusal) throw refusal;
      // what an approval policy would ask must not run unasked
      await assertApprovalPolicies(workspace, await threadParts(workspace));
      const ignored = [
        ...(await workspace.policyWarnings()),
        ...ignoredFiles(facts, allowUnsigned),
      ];
      for (const warning of ignored) workspace.notice(warning);
      return ignored;
    },
    async remember() {
      // the thread obeys the files as they were checked: those are the ones to remember
      const facts = checked ?? (await readFacts(workspace));
      if (guardChanges(facts).length === 0) await remember(workspace, facts);
      adoptStatements(workspace);
    },
  };
}

/** The lock, what differs from it and what is ignored; changes nothing. */
export async function reportGuards(workspace: Workspace): Promise<LockReport> {
  const facts = await readFacts(workspace);
  const { lock } = facts;
  return {
    path: lockPath(workspace),
    state: lock.state,
    serial: lock.state === 'valid' ? lock.lock.serial : null,
    key_id: lock.state === 'valid' || lock.state === 'untrusted' ? lock.keyId : null,
    files: acceptedPins(facts),
    changes: guardChanges(facts),
    diffs: diffsOf(textsFolder(workspace), guardChanges(facts), {
      files: facts.files,
      pins: acceptedPins(facts),
    }),
    ignored: ignoredFiles(facts, false),
    refusal: refusalOf(facts)?.toJSON() ?? null,
  };
}

/** Tells a person who only looks at the project that its runs are refused. */
export async function noticeChanges(workspace: Workspace): Promise<void> {
  const refusal = await readFacts(workspace).then(refusalOf, toRyeError);
  if (refusal) workspace.notice(`runs are refused: ${refusal.message} [${refusal.code}]`);
}

/**
 * Pins the project's power files as they are now, under the user's key: what is signed is in force, what is unsigned, foreign
 * or gone is given up. Refuses a damaged file, because nothing could obey it.
 */
export async function acceptGuards(workspace: Workspace): Promise<AcceptedLock> {
  return await alone(workspace, () => acceptAll(workspace));
}

async function acceptAll(workspace: Workspace): Promise<AcceptedLock> {
  const facts = await readFacts(workspace);
  const changes = guardChanges(facts);
  const damaged = changes.filter(({ change }) => change === 'damaged');
  if (damaged.length > 0) throw refused(damaged);
  await readySigner(workspace);
  const files = currentPins(facts.files);
  const serial = writeLock(workspace, facts, files);
  return { path: lockPath(workspace), serial, files, changes };
}

/**
 * Pins the power files that the user has just signed, and leaves every other pin as it was. The first lock of a project
 * pins all of its power files.
 */
export async function pinSigned(
  workspace: Workspace,
  signed: readonly { readonly type: SignableType; readonly id: string }[],
): Promise<void> {
  await alone(workspace, () => pinAlone(workspace, signed));
}

/** Reads and writes the lock and the memory alone: `rye sign` in two processes pins the files of both. */
async function alone<T>({ options, clock }: Workspace, change: () => Promise<T> | T): Promise<T> {
  const folder = join(options.projectPath, '.ai', 'state');
  return await exclusively({ folder, clock }, change);
}

async function pinAlone(
  workspace: Workspace,
  signed: Parameters<typeof pinSigned>[1],
): Promise<void> {
  const facts = await readFacts(workspace);
  const { lock, memory } = facts;
  const now = currentPins(facts.files);
  const own = now.filter((pin) => signed.some((one) => isSame(one, pin)));
  if (own.length === 0) return;
  if (lock.state === 'invalid' && memory === undefined) {
    workspace.notice(
      `the lock file was not updated: ${lock.reason}. Review it, then run: rye lock accept`,
    );
    return;
  }
  const isFirst = lock.state !== 'valid' && (memory === undefined || memory.lock_sha256 === null);
  const kept = [...acceptedPins(facts), ...(isFirst ? now : [])];
  const pins = new Map([...kept.toReversed(), ...own].map((pin) => [`${pin.type}:${pin.id}`, pin]));
  const files = [...pins.values()];
  if (lock.state === 'valid' && isCurrent(facts) && hasPins(lock.lock, files)) return;
  writeLock(workspace, facts, files);
}

/** Takes a file that rye itself has removed out of the lock. */
export async function unpin(
  workspace: Workspace,
  file: { readonly type: SignableType; readonly id: string },
): Promise<void> {
  await alone(workspace, async () => {
    const facts = await readFacts(workspace);
    const pins = acceptedPins(facts);
    const kept = pins.filter((pin) => !isSame(file, pin));
    if (facts.lock.state === 'valid' && kept.length < pins.length)
      writeLock(workspace, facts, kept);
  });
}

function isCurrent({ lock, memory }: GuardState): boolean {
  return lock.state === 'valid' && memory?.lock_sha256 === lock.sha256;
}

function hasPins({ files }: Lock, pins: readonly Pin[]): boolean {
  return JSON.stringify(sorted(files)) === JSON.stringify(sorted(pins));
}

function sorted(pins: readonly Pin[]): readonly Pin[] {
  return pins
    .map(({ type, id, sha256, key_id }) => ({ type, id, sha256, key_id }))
    .toSorted((a, b) => (`${a.type} ${a.id}` < `${b.type} ${b.id}` ? -1 : 1));
}

async function readFacts(workspace: Workspace): Promise<GuardState> {
  // with configuration that cannot be read, skills of other programs are not looked for
  const spaces = await skillSpaces(workspace).catch(() => workspace.spaces);
  return {
    lock: readLock(textOf(lockPath(workspace)), workspace.keyring),
    memory: readMemory(workspace),
    files: readPowerFiles(workspace.verification, spaces),
  };
}

/** The refusal of a run: it lists every file with what happened, and names the commands that accept that. */
function refusalOf(facts: GuardState): RyeError | undefined {
  const changes = guardChanges(facts);
  return changes.length === 0 ? undefined : refused(changes);
}

function refused(changes: readonly GuardChange[]): RyeError {
  const list = changes.map((one) =>
    one.type === null ? one.detail : `${one.type} ${one.id} ${one.detail}`,
  );
  return new RyeError(
    'guard_changed',
    `power files of this project differ from the accepted ones: ${list.join('; ')}`,
    { hint: hintFor(changes), details: { changes } },
  );
}

/** Every command that it names lets the next run start, once the file has been reviewed. */
function hintFor(changes: readonly GuardChange[]): string {
  const signing = (wanted: GuardChange['change']): string =>
    changes
      .filter(({ change }) => change === wanted)
      .map(({ type, id }) => `rye sign ${type} ${id}`)
      .join('; ');
  const damaged = signing('damaged');
  const unsigned = signing('unsigned');
  const rest = changes.filter(({ change }) => change !== 'damaged').length;
  const first = damaged === '' ? '' : `Review what changed, or restore it, then run: ${damaged}`;
  if (rest === 0) return first;
  const accept =
    unsigned === ''
      ? 'To accept the change, review it and run: rye lock accept'
      : `To obey an unsigned file as it is, review it and run: ${unsigned}; to run without it: rye lock accept`;
  return [first, accept].filter((part) => part !== '').join('. ');
}

/** Configuration and rules that are not obeyed because their signatures do not count, one sentence each. */
function ignoredFiles({ lock, files }: GuardState, allowUnsigned: boolean): readonly string[] {
  const ignored = files.flatMap(({ type, id, fault, error, needsSignature }) => {
    if (error === null || fault === null || !needsSignature) return [];
    if (type === 'rule' && allowUnsigned && fault === 'unsigned') return [];
    // a trust policy counts where it is stricter, and a skill is reported to the threads that may use it
    return type === 'skill' || id === 'trust' ? [] : [ignoredFile(id, error)];
  });
  if (lock.state !== 'untrusted') return ignored;
  const message = `${LOCK_FILE} is signed by untrusted key ${lock.keyId}`;
  const hint = `${TRUST_HINT} Or pin the files yourself: rye lock accept`;
  return [...ignored, ignoredWarning({ message, code: 'key_untrusted', hint })];
}

function writeLock(workspace: Workspace, facts: GuardState, pins: readonly Pin[]): number {
  const { lock, memory } = facts;
  const before = Math.max(lock.state === 'valid' ? lock.lock.serial : 0, memory?.serial ?? 0);
  const next: Lock = { serial: before + 1, files: sorted(pins) };
  const text = lockText(next, workspace.keyring.signer(), workspace.clock.now());
  const path = lockPath(workspace);
  // the lock itself is replaced if it is a link
  placeInside(workspace.options.projectPath, dirname(path));
  makeFolders(dirname(path));
  writeWhole(path, text, { follow: false });
  writeMemory(workspace, { ...next, lock_sha256: hashOfText(text) });
  keepPinned(workspace, facts.files, next.files);
  return next.serial;
}

/** Keeps the statements of the project about keys. A machine whose user space cannot be written reads it again each time. */
function adoptStatements({ keyring, notice, isGuest }: Workspace): void {
  if (isGuest) return;
  try {
    keyring.adopt();
  } catch (error) {
    notice(`the statements about keys are not remembered: ${messageOf(error)}`);
  }
}

/** Keeps in the user space what is in force, so that it cannot be taken away unnoticed. */
async function remember(workspace: Workspace, facts: GuardState): Promise<void> {
  if (toRemember(facts) === undefined || workspace.isGuest) return;
  const write = (): void => {
    const next = toRemember({ ...facts, memory: readMemory(workspace) });
    if (!next) return;
    writeMemory(workspace, next);
    keepPinned(workspace, facts.files, next.files);
  };
  try {
    await alone(workspace, write);
  } catch (error) {
    if (error instanceof RyeError && error.code === 'guard_changed') throw error;
    // a project that can't be written, or a lock that is held for long, keeps no thread from its start
    write();
  }
}

/** Returns what is in force; undefined if the memory has it, or something newer. */
function toRemember({ lock, memory, files }: GuardState): Memory | undefined {
  const obeyed = lock.state === 'valid' ? lock.lock.files : currentPins(files);
  const known = acceptedPins({ lock, memory });
  const added = obeyed.filter((pin) => !known.some((one) => isSame(one, pin)));
  const next: Memory = {
    serial: lock.state === 'valid' ? lock.lock.serial : (memory?.serial ?? 0),
    files: sorted([...known, ...added]),
    lock_sha256: lock.state === 'valid' ? lock.sha256 : (memory?.lock_sha256 ?? null),
  };
  const isKnown = memory !== undefined && JSON.stringify(memory) === JSON.stringify(next);
  const isEmpty = next.files.length === 0 && next.lock_sha256 === null;
  return isKnown || isEmpty || (memory?.serial ?? 0) > next.serial ? undefined : next;
}

function readMemory(workspace: Workspace): Memory | undefined {
  const path = memoryPath(workspace);
  const text = textOf(path);
  if (text === undefined) return undefined;
  const document = parseJson(text);
  const pins = readPins(document);
  const sha256 = isRecord(document) ? document['lock_sha256'] : undefined;
  if (pins !== undefined && (sha256 === null || typeof sha256 === 'string')) {
    return { serial: pins.serial, files: sorted(pins.files), lock_sha256: sha256 };
  }
  throw new RyeError('guard_changed', 'the memory of this project in your user space is damaged', {
    location: { path },
    hint: `Remove the file ${path}, review the project's power files, then run: rye lock accept`,
  });
}

/** A machine whose user space cannot be written still has the lock file. */
function writeMemory(workspace: Workspace, memory: Memory): void {
  if (workspace.isGuest) return;
  const path = memoryPath(workspace);
  const document = { format: 1, project: workspace.options.projectPath, ...memory };
  try {
    makeFolders(dirname(path), 0o700);
    writeWhole(path, `${JSON.stringify(document, null, 2)}\n`, { mode: 0o600, follow: false });
  } catch (error) {
    workspace.notice(`the power files of this project are not remembered: ${messageOf(error)}`);
  }
}

/** Keeps the texts that are in force, so that a later change can be shown. */
function keepPinned(workspace: Workspace, files: readonly PowerFile[], pins: readonly Pin[]): void {
  if (workspace.isGuest) return;
  const pinned = files.filter((file) => pins.some(({ sha256 }) => sha256 === file.sha256));
  keepTexts(textsFolder(workspace), pinned, workspace.notice);
}

function textsFolder(workspace: Workspace): string {
  const { userSpacePath } = workspace.options;
  const name = basename(memoryPath(workspace), '.json');
  return join(userSpacePath, '.ai', 'state', 'accepted', name);
}

function lockPath(workspace: Workspace): string {
  return join(workspace.options.projectPath, LOCK_FILE);
}

/** One file for each project, by its real path: a copy of the project is another one. */
function memoryPath(workspace: Workspace): string {
  const { projectPath, userSpacePath } = workspace.options;
  const real = existsSync(projectPath) ? realpathSync(projectPath) : projectPath;
  const name = sha256Hex(real).slice(0, 32);
  return join(userSpacePath, '.ai', 'state', 'projects', `${name}.json`);
}

/** The text of a file; undefined if there is none. What cannot be read is no absence. */
function textOf(path: string): string | undefined {
  try {
    // a named pipe would wait for a writer for ever
    if (!statSync(path).isFile()) throw new Error('it is not a file');
    return readFileSync(path, 'utf8');
  } catch (error) {
    const code = systemCodeOf(error);
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
    throw new RyeError('guard_changed', `${path} cannot be read: ${messageOf(error)}`, {
      hint: 'Check its owner and permissions.',
      cause: error,
    });
  }
}
