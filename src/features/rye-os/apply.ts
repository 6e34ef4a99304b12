import { existsSync, readFileSync, realpathSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { parseDocument } from 'yaml';
import type { Rye } from '../../kernel/app/api/rye.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import type { SignableType } from '../../kernel/core/ids.ts';
import {
  createInside,
  placeInside,
  readTextInside,
  writeInside,
} from '../../kernel/disk/inside.ts';
import { PLACEHOLDER } from '../../kernel/items/tool-advice.ts';
import { blankSignatureLine, signatureStyle } from '../../kernel/trust/signature-line.ts';
import { type Examined, FOLDERS, faultOf, sampleInputs } from './review.ts';

/** A file of the project that an import reads or writes. */
export interface AppliedFile {
  readonly type: SignableType;
  readonly id: string;
  /** Relative to the project. */
  readonly path: string;
  /**
   * `written`: it is new. `changed`: it was imported in place. `unchanged`: the project has it. `kept`: the project has
   * another file with this id, which stays.
   */
  readonly action: 'written' | 'changed' | 'unchanged' | 'kept';
  /** A module that a tool imports: the signature of the tool covers it. */
  readonly is_pinned?: true;
}

/** An item that is not imported, and why. */
export interface SkippedItem {
  readonly type: SignableType;
  readonly id: string;
  readonly path: string;
  readonly reason: string;
}

export interface AppliedImport {
  readonly files: readonly AppliedFile[];
  readonly skipped: readonly SkippedItem[];
  /** Places that a person has to fill in before they can be used, as `file: member`. */
  readonly to_fill_in: readonly string[];
}

/** The whole result of an import, with its signatures and the dry run of every directive. */
export interface AppliedReport extends AppliedImport {
  readonly signed: number;
  /** One line for each file that can't be signed. */
  readonly not_signed: readonly string[];
  readonly directives: readonly DryRunRow[];
  readonly planned: number;
}

/** A file that the project is to have. */
interface Wanted {
  readonly type: SignableType;
  readonly id: string;
  readonly extension: string;
  readonly text: string;
  readonly isPinned?: boolean;
  /** The file that it comes from; absent for configuration that replaces manifests. */
  readonly source?: string;
}

/**
 * Writes the items of a reviewed tree into a project, unsigned. An item that rye ships, that can't be signed or whose
 * manifest becomes configuration is skipped. Files of the project with other contents stay, unless they are the tree's own.
 * Throws `path_denied` before anything is written if a link would lead out of the project.
 */
export function applyRyeOs(
  { files, added }: Examined,
  { dir, projectPath, systemPath, toolIds }: Places,
): AppliedImport {
  const skipped: SkippedItem[] = [];
  const wanted = new Map<string, Wanted>();
  const isShipped = (one: Omit<Wanted, 'text'>): boolean =>
    existsSync(join(systemPath, placeOf(one))) || (one.type === 'tool' && toolIds.has(one.id));
  const pinned = pinnedPaths(files, isShipped);
  for (const file of files) {
    const isPinned = pinned.has(file.path);
    const reason = isPinned ? undefined : whySkipped(file, isShipped(file));
    // what is pinned by its hash stays as it is
    const text = isPinned ? file.text : file.after;
    const one = { ...file, text, isPinned, source: join(dir, file.path) };
    const { type, id, path } = file;
    if (reason !== undefined) skipped.push({ type, id, path, reason });
    else if (!wanted.has(placeOf(one))) wanted.set(placeOf(one), one);
  }
  for (const one of configuration(added)) {
    if (!isShipped(one) && !wanted.has(placeOf(one))) wanted.set(placeOf(one), one);
  }
  for (const place of wanted.keys()) placeInside(projectPath, join(projectPath, place));
  const applied = [...wanted].map(([place, one]): AppliedFile => {
    const { type, id, isPinned = false } = one;
    const action = put(projectPath, join(projectPath, place), one);
    return { type, id, path: place, action, ...(isPinned ? { is_pinned: true } : {}) };
  });
  const toFillIn = [...wanted].filter(
    ([place, { type, text }]) =>
      type === 'config' &&
      text.includes(`//${PLACEHOLDER}/`) &&
      readFileSync(join(projectPath, place), 'utf8').includes(`//${PLACEHOLDER}/`),
  );
  return { files: applied, skipped, to_fill_in: toFillIn.map(([place]) => `${place}: base_url`) };
}

/** The paths of the modules that imported tools pin. */
function pinnedPaths(
  files: Examined['files'],
  isShipped: (file: Examined['files'][number]) => boolean,
): ReadonlySet<string> {
  const tools = files.filter(
    (file) => file.type === 'tool' && whySkipped(file, isShipped(file)) === undefined,
  );
  return new Set(
    tools.flatMap(({ path, after }) => {
      const [, pins = ''] = /^__files__ = \{([^}]*)\}/m.exec(after) ?? [];
      return [...pins.matchAll(/"([^"]+)": "[0-9a-f]{64}"/g)].map(([, name = '']) =>
        join(dirname(path), name),
      );
    }),
  );
}

interface Places {
  /** The reviewed tree. */
  readonly dir: string;
  readonly projectPath: string;
  readonly systemPath: string;
  /** Ids of the tools that are a part of rye. */
  readonly toolIds: ReadonlySet<string>;
}

/** Configuration of a person's own; the other files of Rye OS configure its runtime. */
const OWN_CONFIG: ReadonlySet<string> = new Set([
  'agent/agent',
  'agent/coordination',
  'agent/hooks',
  'agent/resilience',
]);

function whySkipped(
  { type, id, signs, fault, isMoved }: Examined['files'][number],
  isShipped: boolean,
): string | undefined {
  if (isMoved) return 'it becomes configuration';
  if (type === 'config' && !OWN_CONFIG.has(id)) return 'it configures the runtime of Rye OS';
  if (isShipped && type !== 'config') return 'rye ships its own';
  return signs ? undefined : (fault?.message ?? 'it cannot be signed');
}

function placeOf({ type, id, extension }: Omit<Wanted, 'text'>): string {
  return `.ai/${FOLDERS[type] ?? type}/${id}${extension}`;
}

/** The added configuration of all roots of the tree, one file for each id. */
function configuration(added: Examined['added']): readonly Wanted[] {
  const byId = new Map<string, Wanted>();
  for (const { path, after } of added) {
    const [, id] = /(?:^|\/)config\/(.+)\.yaml$/.exec(path) ?? [];
    if (id === undefined || after === undefined) continue;
    const before = byId.get(id);
    // servers of several roots share one file
    const rest = before === undefined ? after : after.replace(/^servers:\n/, '');
    const text = `${before?.text ?? ''}${rest}`;
    byId.set(id, { type: 'config', id, extension: '.yaml', text });
  }
  return [...byId.values()];
}

function put(
  projectPath: string,
  path: string,
  { text, source, extension }: Wanted,
): AppliedFile['action'] {
  if (createInside(projectPath, path, text)) return 'written';
  const there = readFileSync(path, 'utf8').replaceAll('\r\n', '\n');
  if (contentOf(there, extension) === contentOf(text, extension)) return 'unchanged';
  if (source === undefined || realpathSync(source) !== realpathSync(path)) return 'kept';
  writeInside(projectPath, path, text);
  return 'changed';
}

/** A text without its signature, and without the blank line that a signature leaves. */
function contentOf(text: string, extension: string): string {
  const style = signatureStyle(extension);
  return style === undefined ? text : blankSignatureLine(text, style).replace(/^\n/, '');
}

/** The result of a dry run of one directive. */
export interface DryRunRow {
  readonly id: string;
  readonly plans: boolean;
  readonly code: string | null;
  readonly reason: string | null;
}

/** Plans directives with made-up inputs; nothing runs, and no model or server is asked. */
export async function dryRun(
  rye: Pick<Rye, 'threads' | 'items'>,
  ids: readonly string[],
): Promise<readonly DryRunRow[]> {
  const rows: DryRunRow[] = [];
  for (const id of ids) {
    try {
      const { path, content } = await rye.items.fetch('directive', id);
      await rye.threads.plan({ directiveId: id, inputs: sampleInputs(content, path ?? id) });
      rows.push({ id, plans: true, code: null, reason: null });
    } catch (error) {
      const { code, message } = faultOf(error);
      rows.push({ id, plans: false, code, reason: message });
    }
  }
  return rows;
}

export const RISKS_ID = 'agent/capability_risk';

/** Writes into the project's configuration that elevated tools need no acknowledgement; returns the file. */
export function allowElevated(projectPath: string): string {
  const place = `.ai/config/${RISKS_ID}.yaml`;
  const path = join(projectPath, place);
  if (createInside(projectPath, path, 'risk_levels:\n  elevated: allow\n')) return path;
  const document = parseDocument(readTextInside(projectPath, path) ?? '');
  if (document.errors.length > 0) {
    throw new RyeError('config_invalid', 'the file cannot be parsed', {
      location: { path },
      hint: `Correct it first: rye validate config ${RISKS_ID}`,
    });
  }
  document.setIn(['risk_levels', 'elevated'], 'allow');
  writeInside(projectPath, path, String(document));
  return path;
}
