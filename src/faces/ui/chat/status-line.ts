import { readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { onlyReads } from '../../cli/read-only-tools.ts';
import type { LineStyle } from '../render/echo.ts';
import { shortModel, shortUsd } from '../render/meters.ts';
import { displayWidth, truncate } from '../terminal-text.ts';
import { oneLine } from '../visible.ts';

/** The facts about a conversation that stay on the screen. */
export interface ChatSetting {
  /** ID of the model that answers next. */
  readonly model: string | undefined;
  /** Such as `~/proj (main)`. */
  readonly place: string;
  /** Such as `reads only`. */
  readonly rights: string;
  /** The spend limit of the conversation in USD. */
  readonly budget: number | undefined;
}

/** Formats the first line: `chat · sonnet-5.5 · ~/proj (main) · reads only · $2.00`. */
export function headLine(setting: ChatSetting, { colors, columns }: LineStyle): string {
  const { model, place, rights, budget } = setting;
  const parts = [
    ...(model === undefined ? [] : [shortModel(model)]),
    place,
    rights,
    ...(budget === undefined ? [] : [shortUsd(budget)]),
  ];
  const rest = truncate(oneLine(parts.join(' · ')), columns - 'chat · '.length);
  return `${colors.bold('chat')}${colors.dim(` · ${rest}`)}`;
}

/** Formats the line below the field, without what a narrow terminal has no room for. */
export function restLine(
  { model, place, rights, budget }: ChatSetting,
  now: { readonly spent: number; readonly context: string | undefined },
  { colors, columns }: LineStyle,
): string {
  const money = `${shortUsd(now.spent)}${budget === undefined ? '' : ` of ${shortUsd(budget)}`}`;
  const name = model === undefined ? [] : [shortModel(model)];
  const context = now.context === undefined ? [] : [now.context];
  const wishes = [
    [...name, place, rights, money, ...context],
    [...name, rights, money, ...context],
    [...name, rights, money],
    [...name, money],
  ].map((parts) => `  ${oneLine(parts.join(' · '))}`);
  const fits = wishes.find((line) => displayWidth(line) < columns) ?? wishes.at(-1) ?? '';
  return colors.dim(truncate(fits, columns - 1));
}

/** Returns in two words what the model may do with these capabilities. */
export function rightsOf(capabilities: readonly string[]): string {
  if (!capabilities.some((one) => one.startsWith('rye.execute.'))) return 'no tools';
  return capabilities.every(onlyReads) ? 'reads only' : 'may act';
}

/** Returns the folder as a shell shows it, with its git branch. */
export function placeOf(folder: string, home: string | undefined): string {
  const isHome = home !== undefined && (folder === home || folder.startsWith(`${home}${path.sep}`));
  const shown = isHome ? `~${folder.slice(home.length)}` : folder;
  const branch = branchOf(folder);
  return branch === undefined ? shown : `${shown} (${branch})`;
}

const HASH_CHARS = 7;

/** Returns the branch, or the start of the commit, that a folder's repository is on; undefined outside of one. */
function branchOf(folder: string): string | undefined {
  for (let at = folder; ; at = path.dirname(at)) {
    const head = headOf(path.join(at, '.git'));
    if (head !== undefined)
      return /^ref: refs\/heads\/(.+)/.exec(head)?.[1] ?? head.slice(0, HASH_CHARS);
    if (path.dirname(at) === at) return undefined;
  }
}

function headOf(git: string): string | undefined {
  try {
    // the folder of a worktree has a file that names its own
    const linked = statSync(git).isFile()
      ? /^gitdir: (.+)/.exec(readFileSync(git, 'utf8'))?.[1]
      : git;
    if (linked === undefined) return undefined;
    return readFileSync(path.join(path.resolve(path.dirname(git), linked), 'HEAD'), 'utf8').trim();
  } catch {
    return undefined;
  }
}
