import { existsSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { ignoredWarning, RyeError } from '../core/errors.ts';
import {
  ITEM_TYPES,
  type ItemType,
  isItemType,
  type SignableType,
  SPACES,
  type Space,
} from '../core/ids.ts';
import type { JsonObject } from '../core/json.ts';
import { writeInside } from '../disk/inside.ts';
import { readRegular } from '../disk/regular-file.ts';
import { signingMode } from '../items/config-fs.ts';
import { summarize } from '../items/metadata.ts';
import {
  type GlobCompiler,
  isPowerType,
  matchItems,
  partOfClone,
  signItems,
  verifyItems,
} from '../items/signing-fs.ts';
import { readSkillFiles, skillListPath } from '../items/skill-files-fs.ts';
import {
  type FoundFile,
  itemFolder,
  type ListedItem,
  type MisnamedFile,
  type Spaces,
} from '../items/spaces-fs.ts';
import type { VerifiedItems } from '../items/verified-fs.ts';
import type { Tool } from '../tools/tool.ts';
import { signatureState, type Verdict } from '../trust/signature.ts';
import type {
  FetchedItem,
  ItemSummary,
  ItemsService,
  LocatedItem,
  NewItem,
  NewType,
  Problem,
  SignOutcome,
  UnsignedItem,
  VerifyOutcome,
} from './api/items.ts';
import { featuresOf, searchOf, threadParts } from './feature.ts';
import { type ProgramItem, programItems } from './program/items.ts';
import { signingKey } from './signing-key.ts';
import type { Workspace } from './workspace.ts';

export const compileGlob: GlobCompiler = async (pattern) =>
  (await import('../tools/glob-pattern.ts')).compileGlob(pattern);

const noTools = (): Promise<readonly Tool[]> => Promise.resolve([]);

/** Listing, fetching, searching, validating, signing and verifying items. */
export class Items implements ItemsService {
  readonly #workspace: Workspace;
  /** Tools that are a part of the program: they have no file, and no file of the same id takes their place. */
  readonly #builtinTools: () => Promise<readonly Tool[]>;

  constructor(workspace: Workspace, builtinTools: () => Promise<readonly Tool[]> = noTools) {
    this.#workspace = workspace;
    this.#builtinTools = builtinTools;
  }

  async list(type: ItemType, options: { space?: Space } = {}): Promise<readonly ItemSummary[]> {
    const spaces = await this.#spaces(type);
    await this.#noticeChanges();
    const listed = spaces.list(type, options.space === undefined ? {} : { space: options.space });
    const found = await Promise.all(listed.map((item) => this.#summary(type, item, spaces)));
    for (const space of options.space === undefined
      ? (['project', 'user'] as const)
      : [options.space])
      this.#noticeMisnamed(type, space, spaces);
    const owner = type === 'tool' ? 'system' : 'project';
    const unfiled =
      type === 'tool'
        ? (await this.#builtinTools()).map(builtinSummary)
        : programItems(this.#workspace, type).map(programSummary);
    const taken = new Set(unfiled.map(({ id }) => id));
    // the id belongs to a part of rye or of the program, so the file is never used
    const items = found.map((item) =>
      taken.has(item.id) ? ({ ...item, shadowed_by: owner } as const) : item,
    );
    return (options.space ?? owner) === owner ? [...unfiled, ...items] : items;
  }

  async fetch(
    type: ItemType,
    id: string,
    options: { copyTo?: 'project' | 'user' } = {},
  ): Promise<FetchedItem> {
    const unfiled = await this.#unfiled(type, id);
    if (unfiled && options.copyTo !== undefined) {
      throw new RyeError('usage', `${id} is a part of ${unfiled.owner} and has no file to copy`, {
        hint: `Write a ${type} of your own under another id; see: rye list ${type}`,
      });
    }
    if (unfiled) return unfiled.item;
    const items = await this.#workspace.items(false);
    const spaces = await this.#spaces(type);
    const found = spaces.find(type, id);
    const item = found
      ? items.admit(found, 'fetch')
      : items.load(type, id, 'fetch', await this.#unfiledIds(type));
    const copiedTo =
      options.copyTo === undefined ? undefined : await this.#copy(item, options.copyTo, items);
    if (copiedTo !== undefined && options.copyTo !== item.space) {
      const copy = spaces.find(type, id, { space: options.copyTo ?? item.space });
      const state = copy && signatureState(items.check(copy));
      if (state !== 'signed' && state !== 'system')
        this.#workspace.notice(
          `the copy is ${state ?? 'invalid'}, so neither it nor what extends it runs yet. Review it, then run: rye sign ${type} ${id}`,
        );
    }
    return {
      type,
      id,
      space: item.space,
      path: item.path,
      signature: signatureState(item.verdict),
      metadata: metadataOf(item),
      content: item.text,
      ...(copiedTo === undefined ? {} : { copied_to: copiedTo }),
    };
  }

  async search(
    type: ItemType | 'all',
    query: string,
    options: { limit?: number; space?: Space; since?: string; contextLines?: number } = {},
  ) {
    return await (await searchOf(this.#workspace)).items({ type, query, ...options });
  }

  async validate(selector?: { type: SignableType; pattern: string }) {
    const spaces = await this.#readableSpaces(selector?.type ?? 'skill');
    const files = selector
      ? await matchItems(selector.type, selector.pattern, { spaces, compileGlob })
      : this.#projectFiles();
    const { ignoredConfig, problemsOf, toProblem } = await import('./validation.ts');
    const items = await this.#workspace.items(false);
    const problems: Problem[] = [];
    for (const { type, id, space, path } of files) {
      try {
        const found = spaces.find(type, id, { space });
        if (!found) continue;
        problems.push(
          ...(await problemsOf(found, spaces, featuresOf(this.#workspace))),
          ...(await this.#refused(found)),
        );
        const verdict = items.check(found);
        problems.push(...olderFormWarning(found, verdict));
        const ignored = ignoredConfig(found, verdict);
        // the person who names a file may be about to sign it
        if (selector && !selector.pattern.includes('*')) this.#noticeIgnored(ignored);
        else problems.push(...ignored);
      } catch (error) {
        // one file that cannot be read must not hide the problems of the others
        if (!(error instanceof RyeError)) throw error;
        problems.push(toProblem(error, path));
      }
    }
    for (const { type } of selector ? [selector] : ITEM_TYPES.map((each) => ({ type: each }))) {
      problems.push(...spaces.misnamed(type, 'project').map(misnamedProblem));
    }
    return { problems, checked: files.length };
  }

  async sign(
    type: SignableType,
    pattern: string,
    options: { dryRun?: boolean; pin?: boolean; thread?: string } = {},
  ): Promise<readonly SignOutcome[]> {
    const { clock } = this.#workspace;
    const spaces = await this.#spaces(type);
    if (pattern.includes('*')) this.#noticeMisnamed(type, 'project', spaces);
    const { problemsOf } = await import('./validation.ts');
    const outcomes = await signItems(
      { type, pattern, dryRun: options.dryRun ?? false },
      {
        spaces,
        compileGlob,
        signer: async () => await signingKey(this.#workspace, options),
        now: () => clock.now(),
        thread: options.thread,
        modeOf: async (space) => await signingMode(spaces, space),
        validate: async (file) => [
          ...(await problemsOf(file, spaces, featuresOf(this.#workspace), 'sign')),
          ...(await this.#refused(file)),
        ],
      },
    );
    if (options.pin !== false) await this.#pin(outcomes);
    return outcomes;
  }

  async create(type: NewType, id: string): Promise<NewItem> {
    const { writeNewItem } = await import('./new-item.ts');
    const { projectPath, env } = this.#workspace.options;
    const author = (env['USER'] ?? env['LOGNAME'] ?? '').replaceAll(/[^\w.@ -]/g, '');
    return await writeNewItem(
      { type, id, projectPath, author: author === '' ? 'unknown' : author },
      await this.#readableSpaces('skill'),
    );
  }

  async locate(id: string): Promise<readonly LocatedItem[]> {
    const spaces = await this.#readableSpaces('skill');
    return [...ITEM_TYPES, 'config' as const].flatMap((type) =>
      SPACES.flatMap((space) => {
        const path = spaces.locate(type, id, space);
        return path === undefined ? [] : [{ type, id, space, path }];
      }),
    );
  }

  /** A person who signs a power file accepts it: the lock file follows in the same step. */
  async #pin(outcomes: readonly SignOutcome[]): Promise<void> {
    const signed = outcomes.filter(
      ({ type, status }) => isPowerType(type) && (status === 'signed' || status === 'unchanged'),
    );
    if (signed.length === 0) return;
    const { pinSigned } = await import('./guards.ts');
    await pinSigned(this.#workspace, signed);
  }

  async verify(type: SignableType, pattern: string): Promise<readonly VerifyOutcome[]> {
    const spaces = await this.#spaces(type);
    await this.#noticeChanges();
    return await verifyItems(
      { type, pattern },
      { ...this.#workspace.verification, spaces, compileGlob },
    );
  }

  #noticeIgnored(problems: readonly Problem[]): void {
    for (const { path, message, code, hint } of problems)
      this.#workspace.notice(ignoredWarning({ message: `${path}: ${message}`, code, hint }));
  }

  async unsigned(type?: SignableType): Promise<readonly UnsignedItem[]> {
    const { unsignedItems } = await import('./unsigned-items.ts');
    return await unsignedItems(this.#workspace, type === undefined ? undefined : [type]);
  }

  #noticeMisnamed(type: SignableType, space: Space, spaces: Spaces): void {
    for (const { path, reason } of spaces.misnamed(type, space)) {
      this.#workspace.notice(`ignored: ${path} is no ${type}: ${reason}. Rename the file.`);
    }
  }

  /** Problems that depend on more than the file: on the tools that rye has, and on the keys that the user trusts. */
  async #refused(file: FoundFile): Promise<readonly Problem[]> {
    const { type, id, path, space } = file;
    if (type === 'config' && id === 'agent/approvals') {
      const { policyProblems } = await import('./approval-policies.ts');
      const { servers } = await threadParts(this.#workspace);
      const tools = (await this.#knownTools()).map((tool) => tool.id);
      const known = { tools, servers: await servers?.(this.#workspace).names() };
      return await policyProblems(file, this.#workspace.keyring, known);
    }
    if (type === 'config' && id === 'plugins') return await this.#pluginFaults(file);
    if (type === 'directive' && space !== 'system') return await this.#idleGrants(file);
    if (type !== 'tool' || space === 'system') return [];
    const isTaken = (await this.#builtinTools()).some((tool) => tool.id === id);
    const message = `the id ${id} is reserved for a tool that is a part of rye, so this file is never used; rename it`;
    return isTaken
      ? [{ severity: 'error', code: 'tool_id_reserved', message, path, line: 1, column: null }]
      : [];
  }

  /** Plug-ins that no run could load. A mistake in the form of the file is reported already. */
  async #pluginFaults(file: FoundFile): Promise<readonly Problem[]> {
    const { entryFaults } = await import('./plugins.ts');
    const { toProblem } = await import('./validation.ts');
    try {
      const faults = await entryFaults(file, this.#workspace);
      return faults.map((fault) => toProblem(fault, file.path));
    } catch (error) {
      if (error instanceof RyeError) return [];
      throw error;
    }
  }

  async #knownTools(): Promise<readonly { readonly id: string }[]> {
    return [...(await this.#builtinTools()), ...this.#workspace.spaces.list('tool', {})];
  }

  /** Warns of permissions for tools that nothing knows: a run is refused if it needs them. */
  async #idleGrants({ text, path }: FoundFile): Promise<readonly Problem[]> {
    const { idleGrants } = await import('./granted-tools.ts');
    const { readDirective } = await import('../items/directive.ts');
    const { toProblem } = await import('./validation.ts');
    let capabilities: readonly string[];
    try {
      ({ capabilities } = readDirective(text, path).directive.permissions);
    } catch {
      return []; // the checks of the file itself report what is malformed
    }
    const tools = await this.#knownTools();
    return idleGrants(capabilities, tools, () => tools).map(({ error }) => ({
      ...toProblem(error, path),
      severity: 'warning',
    }));
  }

  /** Also tells users who only read a project that its runs are refused. */
  async #noticeChanges(): Promise<void> {
    const { noticeChanges } = await import('./guards.ts');
    await noticeChanges(this.#workspace);
  }

  /** An item that is a part of rye or of the program. */
  async #unfiled(type: ItemType, id: string) {
    const tool = type === 'tool' && (await this.#builtinTools()).find((one) => one.id === id);
    if (tool) return { owner: 'rye', item: builtinItem(tool) };
    const own = programItems(this.#workspace, type).find((one) => one.id === id);
    return own && { owner: 'the program', item: programItem(own) };
  }

  async #unfiledIds(type: ItemType): Promise<readonly string[]> {
    const unfiled =
      type === 'tool' ? await this.#builtinTools() : programItems(this.#workspace, type);
    return unfiled.map(({ id }) => id);
  }

  async #spaces(type: SignableType): Promise<Spaces> {
    if (type !== 'skill') return this.#workspace.spaces;
    const { skillSpaces } = await import('./skill-spaces.ts');
    return await skillSpaces(this.#workspace);
  }

  /** Unreadable configuration is a separate problem and does not stop the check of items. */
  async #readableSpaces(type: SignableType): Promise<Spaces> {
    try {
      return await this.#spaces(type);
    } catch (error) {
      if (!(error instanceof RyeError) || error.code !== 'config_invalid') throw error;
      return this.#workspace.spaces;
    }
  }

  async #summary(type: ItemType, item: ListedItem, spaces: Spaces): Promise<ItemSummary> {
    const { id, space, path, shadowedBy } = item;
    const row = { type, id, space, path, shadowed_by: shadowedBy };
    try {
      const found = spaces.find(type, id, { space, path });
      if (!found) return { ...row, version: null, description: '', signature: 'invalid' };
      const items = await this.#workspace.items(false);
      const { version, description } = summarize(type, found.text);
      const verdict = items.check(found);
      return {
        ...row,
        version: version === '' ? null : version,
        description,
        signature: signatureState(verdict),
        ...(verdict.ok && verdict.by === 'key' ? { signature_version: verdict.version } : {}),
      };
    } catch (error) {
      if (!(error instanceof RyeError)) throw error;
      return { ...row, version: null, description: error.message, signature: 'invalid' };
    }
  }

  #projectFiles(): { type: SignableType; id: string; space: Space; path: string }[] {
    return [...ITEM_TYPES, 'config' as const].flatMap((type) =>
      this.#workspace.spaces
        .list(type, { space: this.#workspace.spaces.own })
        .filter(({ id }) => !(type === 'knowledge' && id.startsWith('agent/threads/')))
        .map(({ id, space, path }) => ({ type, id, space, path })),
    );
  }

  /** Copies byte for byte, so that a signature stays valid. An existing item is never overwritten. */
  async #copy(item: FoundFile, to: 'project' | 'user', items: VerifiedItems): Promise<string> {
    const { projectPath, userSpacePath } = this.#workspace.options;
    if (item.space === to) return item.path;
    if (to === 'project' && item.space === 'system' && this.#workspace.spaces.isClone)
      throw partOfClone(item);
    const root = join(to === 'project' ? projectPath : userSpacePath, '.ai');
    if (!isItemType(item.type)) throw new RyeError('usage', `a ${item.type} cannot be copied`);
    if (this.#workspace.spaces.find(item.type, item.id, { space: to })) {
      throw new RyeError(
        'already_exists',
        `the ${to} space has a ${item.type} ${item.id} already`,
        {
          hint: 'Remove it first, or edit it where it is.',
        },
      );
    }
    const folder = join(root, itemFolder(item.type));
    if (item.type === 'skill') {
      return await this.#copySkill(item, { target: join(folder, item.id), root, items });
    }
    const path = join(folder, `${item.id}${item.extension}`);
    writeInside(dirname(root), path, item.bytes);
    return path;
  }

  /** A skill is its whole folder, with the list that signs it. */
  async #copySkill(
    item: FoundFile,
    { target, root, items }: { target: string; root: string; items: VerifiedItems },
  ): Promise<string> {
    const from = dirname(item.path);
    const list = skillListPath(from);
    const files = [...readSkillFiles(from)];
    for (const file of files) items.admitSkillFile(item, file, 'fetch');
    if (existsSync(list)) files.push({ path: relative(from, list), bytes: readRegular(list) });
    for (const { path, bytes } of files) {
      const full = join(target, path);
      writeInside(dirname(root), full, bytes);
    }
    return join(target, 'SKILL.md');
  }
}

function misnamedProblem({ type, path, reason }: MisnamedFile): Problem {
  const message = `the file is no ${type}, because its name is not an id: ${reason}; rename it`;
  return { severity: 'warning', code: 'invalid_item_id', message, path, line: null, column: null };
}

function olderFormWarning({ type, id, path }: FoundFile, verdict: Verdict): readonly Problem[] {
  const isOlder = verdict.ok
    ? verdict.by === 'key' && verdict.version === 1
    : verdict.code === 'signature_outdated';
  if (!isOlder) return [];
  const message = `the signature has the older form, which does not name what it signs; run: rye sign ${type} ${id}`;
  const place = { path, line: 1, column: null };
  return [{ severity: 'warning', code: 'signature_outdated', message, ...place }];
}

function metadataOf({ type, text }: FoundFile): JsonObject {
  return isItemType(type) ? { ...summarize(type, text) } : {};
}

/** A row of a list for an item of the program. */
function programSummary({ type, id, space, path, text }: ProgramItem): ItemSummary {
  const { version, description } = summarize(type, text);
  return {
    type,
    id,
    space,
    path: type === 'directive' ? null : path,
    shadowed_by: null,
    version: version === '' ? null : version,
    description,
    signature: 'program',
  };
}

/** An item of the program for `rye fetch`. */
function programItem(item: ProgramItem): FetchedItem {
  const { type, id, space, path, signature } = programSummary(item);
  const metadata = { ...summarize(item.type, item.text) };
  return { type, id, space, path, signature, metadata, content: item.text };
}

/** A row of `rye list tool`. */
function builtinSummary({ id, description }: Tool): ItemSummary {
  const [first = ''] = description.split(/(?<=\.)\s/);
  const place = { space: 'system', path: null, shadowed_by: null } as const;
  return { type: 'tool', id, ...place, version: null, description: first, signature: 'builtin' };
}

/** A built-in tool for `rye fetch tool`. */
function builtinItem(tool: Tool): FetchedItem {
  const traits: JsonObject = { ...tool.traits };
  return {
    type: 'tool',
    id: tool.id,
    space: 'system',
    path: null,
    signature: 'builtin',
    metadata: { description: tool.description, traits },
    content: `${JSON.stringify(tool.inputSchema, null, 2)}\n`,
  };
}
