import { mkdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import writeFileAtomic from 'write-file-atomic';
import { RyeError } from '../core/errors.ts';
import type { ItemType, SignableType, Space } from '../core/ids.ts';
import { isItemType } from '../core/ids.ts';
import type { JsonObject } from '../core/json.ts';
import { matchItems, signItems, verifyItems } from '../items/signing-fs.ts';
import { type FoundFile, itemFolder, type ListedItem } from '../items/spaces-fs.ts';
import { summarize } from '../items/summary.ts';
import type { Verdict } from '../trust/signature.ts';
import { signatureState } from '../trust/signature.ts';
import type { Foundation } from './foundation.ts';
import type {
  FetchedItem,
  ItemSummary,
  ItemsService,
  Problem,
  SignatureState,
  SignOutcome,
  VerifyOutcome,
} from './rye.ts';

/** Listing, fetching, searching, validating, signing and verifying items. */
export class Items implements ItemsService {
  readonly #base: Foundation;

  constructor(base: Foundation) {
    this.#base = base;
  }

  async list(type: ItemType, options: { space?: Space } = {}): Promise<readonly ItemSummary[]> {
    const listed = this.#base.spaces.list(
      type,
      options.space === undefined ? {} : { space: options.space },
    );
    return await Promise.all(listed.map((item) => this.#summary(type, item)));
  }

  async fetch(
    type: ItemType,
    id: string,
    options: { copyTo?: 'project' | 'user' } = {},
  ): Promise<FetchedItem> {
    const items = await this.#base.items(false);
    const item = items.load(type, id, 'fetch');
    const copiedTo =
      options.copyTo === undefined ? undefined : await this.#copy(item, options.copyTo);
    return {
      type,
      id,
      space: item.space,
      path: item.path,
      signature: stateOf(item.verdict),
      metadata: metadataOf(item),
      content: item.text,
      ...(copiedTo === undefined ? {} : { copied_to: copiedTo }),
    };
  }

  async search(
    type: ItemType | 'all',
    query: string,
    options: { limit?: number; space?: Space; since?: string } = {},
  ) {
    const { searchItems } = await import('./search.ts');
    return await searchItems(this.#base, { type, query, ...options });
  }

  async validate(selector?: { type: ItemType; pattern: string }) {
    const { spaces } = this.#base;
    const files = selector
      ? await matchItems(selector.type, selector.pattern, spaces)
      : this.#projectFiles();
    const { problemsOf } = await import('./validation.ts');
    const problems: Problem[] = [];
    for (const { type, id, space } of files) {
      const found = spaces.find(type, id, { space });
      if (found) problems.push(...(await problemsOf(found)));
    }
    return { problems, checked: files.length };
  }

  async sign(
    type: SignableType,
    pattern: string,
    options: { dryRun?: boolean } = {},
  ): Promise<readonly SignOutcome[]> {
    const { spaces, keyring, clock } = this.#base;
    const { problemsOf } = await import('./validation.ts');
    return await signItems(
      { type, pattern, dryRun: options.dryRun ?? false },
      {
        spaces,
        signer: () => keyring.signer(),
        now: () => clock.now(),
        validate: (file) => problemsOf(file),
      },
    );
  }

  async verify(type: SignableType, pattern: string): Promise<readonly VerifyOutcome[]> {
    return await verifyItems({ type, pattern }, this.#base.verification);
  }

  async #summary(type: ItemType, item: ListedItem): Promise<ItemSummary> {
    const { id, space, path, shadowedBy } = item;
    const row = { type, id, space, path, shadowed_by: shadowedBy };
    try {
      const found = this.#base.spaces.find(type, id, { space });
      if (!found) return { ...row, version: null, description: '', signature: 'invalid' };
      const items = await this.#base.items(false);
      const { version, description } = summarize(type, found.text);
      return {
        ...row,
        version: version === '' ? null : version,
        description,
        signature: stateOf(items.check(found)),
      };
    } catch (error) {
      if (!(error instanceof RyeError)) throw error;
      return { ...row, version: null, description: error.message, signature: 'invalid' };
    }
  }

  #projectFiles(): { type: ItemType; id: string; space: Space }[] {
    return (['directive', 'tool', 'knowledge', 'rule', 'skill'] as const).flatMap((type) =>
      this.#base.spaces
        .list(type, { space: 'project' })
        .filter(({ id }) => !(type === 'knowledge' && id.startsWith('agent/threads/')))
        .map(({ id, space }) => ({ type, id, space })),
    );
  }

  /** Copies byte for byte, so that a signature stays valid. An existing item is never overwritten. */
  async #copy(item: FoundFile, to: 'project' | 'user'): Promise<string> {
    const { projectPath, userSpacePath } = this.#base.options;
    if (item.space === to) return item.path;
    const root = join(to === 'project' ? projectPath : userSpacePath, '.ai');
    if (!isItemType(item.type)) throw new RyeError('usage', `a ${item.type} cannot be copied`);
    if (this.#base.spaces.find(item.type, item.id, { space: to })) {
      throw new RyeError(
        'already_exists',
        `the ${to} space has a ${item.type} ${item.id} already`,
        {
          hint: 'Remove it first, or edit it where it is.',
        },
      );
    }
    const tail = item.type === 'skill' ? `${item.id}/SKILL.md` : `${item.id}${item.extension}`;
    const path = join(root, itemFolder(item.type), tail);
    await mkdir(dirname(path), { recursive: true });
    await writeFileAtomic(path, Buffer.from(item.bytes));
    return path;
  }
}

function stateOf(verdict: Verdict): SignatureState {
  return signatureState(verdict);
}

function metadataOf({ type, text }: FoundFile): JsonObject {
  return isItemType(type) ? { ...summarize(type, text) } : {};
}
