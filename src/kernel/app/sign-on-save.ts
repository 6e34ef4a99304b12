import { existsSync, type FSWatcher, lstatSync, readdirSync, watch } from 'node:fs';
import { join, sep } from 'node:path';
import { RyeError } from '../core/errors.ts';
import type { SignableType } from '../core/ids.ts';
import type { SignOutcome } from './api/items.ts';
import type { Rye } from './api/rye.ts';

/** A saved file. `skipped` explains why it was left as it is. */
export type SavedItem =
  | { readonly outcome: SignOutcome }
  | { readonly type: SignableType; readonly id: string; readonly skipped: string };

export interface SignOnSaveOptions {
  readonly projectPath: string;
  /** Ends the watch. */
  readonly signal: AbortSignal;
  /** Only files that this accepts are signed. */
  readonly accepts: (type: SignableType, id: string) => boolean;
  /** Opens the project as it is now. */
  readonly open: <T>(action: (rye: Pick<Rye, 'items' | 'keys'>) => Promise<T>) => Promise<T>;
  /** Called once every folder is watched. */
  readonly ready: () => void;
  readonly report: (saved: SavedItem) => void;
}

/** Editors write a file in several steps. */
const SETTLE_MS = 150;

/**
 * Validates and signs items of the project whenever they are saved, until the signal aborts. Signs only what the user's key
 * signed before, and new files: a file that someone else signed is left as it is.
 */
export async function signOnSave(options: SignOnSaveOptions): Promise<void> {
  const { projectPath, signal } = options;
  const root = join(projectPath, '.ai');
  if (!existsSync(root)) {
    throw new RyeError('usage', `${projectPath} has no .ai folder`, { hint: 'Run: rye init' });
  }
  const changed = new Map<string, { readonly type: SignableType; readonly id: string }>();
  let timer: NodeJS.Timeout | undefined;
  let work = Promise.resolve();
  const settle = async (): Promise<void> => {
    const batch = [...changed.values()];
    changed.clear();
    for (const { type, id } of batch) {
      if (signal.aborted) return;
      const saved = await signSaved(type, id, options);
      if (saved !== undefined) options.report(saved);
    }
  };
  await new Promise<void>((resolve, reject) => {
    const watcher = new FolderWatch(root, reject, (name) => {
      const item = itemAt(root, name);
      if (item === undefined || !options.accepts(item.type, item.id)) return;
      changed.set(`${item.type}:${item.id}`, item);
      clearTimeout(timer);
      timer = setTimeout(() => {
        work = work.then(settle);
        work.catch(reject);
      }, SETTLE_MS);
    });
    const end = (): void => {
      clearTimeout(timer);
      watcher.close();
      resolve();
    };
    if (signal.aborted) end();
    else signal.addEventListener('abort', end, { once: true });
    options.ready();
  });
  await work;
}

/**
 * Watches the folders of items, and those that are made later. Node's recursive watch loses a file that is replaced by a
 * rename, which is how editors and rye write.
 */
class FolderWatch {
  readonly #root: string;
  readonly #fail: (error: unknown) => void;
  readonly #changed: (name: string) => void;
  readonly #watchers = new Map<string, FSWatcher>();

  constructor(root: string, fail: (error: unknown) => void, changed: (name: string) => void) {
    this.#root = root;
    this.#fail = fail;
    this.#changed = changed;
    this.#add('');
  }

  close(): void {
    for (const watcher of this.#watchers.values()) watcher.close();
    this.#watchers.clear();
  }

  #add(folder: string): void {
    const path = join(this.#root, folder);
    const isFolder = lstatSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
    if (!isFolder || this.#watchers.has(folder)) return;
    const watcher = watch(path, (_, name) => {
      if (name !== null) this.#look(join(folder, name));
    });
    watcher.on('error', (error) => this.#lost(folder, error));
    this.#watchers.set(folder, watcher);
    for (const entry of readdirSync(path, { withFileTypes: true })) {
      const inside = join(folder, entry.name);
      if (entry.isDirectory() && mayHoldItems(inside)) this.#add(inside);
    }
  }

  #look(name: string): void {
    const isFolder = lstatSync(join(this.#root, name), { throwIfNoEntry: false })?.isDirectory();
    if (isFolder !== true) this.#changed(name);
    else if (mayHoldItems(name) && !this.#watchers.has(name)) {
      this.#add(name);
      // files that were there before the watch began
      for (const file of readdirSync(join(this.#root, name), { recursive: true, encoding: 'utf8' }))
        this.#changed(join(name, file));
    }
  }

  /** A folder that was removed is no error. */
  #lost(folder: string, error: unknown): void {
    this.#watchers.get(folder)?.close();
    this.#watchers.delete(folder);
    if (existsSync(join(this.#root, folder))) this.#fail(error);
  }
}

function mayHoldItems(name: string): boolean {
  const [folder = ''] = name.split(sep);
  return Object.hasOwn(FOLDERS, folder) && !name.startsWith(join('config', 'keys'));
}

async function signSaved(
  type: SignableType,
  id: string,
  { open }: SignOnSaveOptions,
): Promise<SavedItem | undefined> {
  try {
    return await open(async ({ items, keys }) => {
      const [state] = await items.verify(type, id);
      if (state === undefined || state.ok || state.space !== 'project') return undefined;
      const own = await keys.export();
      if (state.key_id !== undefined && state.key_id !== own.key_id) {
        const skipped = `key ${state.key_id} signed it before. Review it, then run: rye sign ${type} ${id}`;
        return { type, id, skipped };
      }
      const [outcome] = await items.sign(type, id);
      return outcome && { outcome };
    });
  } catch (error) {
    if (!(error instanceof RyeError)) throw error;
    // the file may be gone again, as temporary files of editors are
    return error.code === 'item_not_found' ? undefined : { type, id, skipped: error.message };
  }
}

const FOLDERS: Readonly<Record<string, SignableType>> = {
  directives: 'directive',
  tools: 'tool',
  knowledge: 'knowledge',
  rules: 'rule',
  skills: 'skill',
  config: 'config',
};

/** Returns the item of a path below `.ai`; undefined for what no key signs, such as state, keys and thread exports. */
function itemAt(
  root: string,
  name: string,
): { readonly type: SignableType; readonly id: string } | undefined {
  const [folder = '', ...rest] = name.split(sep);
  const type = Object.hasOwn(FOLDERS, folder) ? FOLDERS[folder] : undefined;
  const path = rest.join('/');
  if (type === undefined || rest.some((part) => part.startsWith('.'))) return undefined;
  if (type === 'config' && path.startsWith('keys/')) return undefined;
  if (type === 'knowledge' && path.startsWith('agent/threads/')) return undefined;
  if (type === 'skill') {
    const depth = rest.findIndex((_, index) =>
      existsSync(join(root, folder, ...rest.slice(0, index), 'SKILL.md')),
    );
    return depth < 1 ? undefined : { type, id: rest.slice(0, depth).join('/') };
  }
  const id = path.replace(/\.[a-z]+$/, '');
  return id === path ? undefined : { type, id };
}
