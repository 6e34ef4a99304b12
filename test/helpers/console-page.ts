import { readFileSync } from 'node:fs';
import MarkdownIt from 'markdown-it';

/** A file that a page tells its reader to save. */
export interface PageFile {
  readonly kind: 'file';
  readonly path: string;
  readonly content: string;
}

/** A command line and the lines that the page shows below it. `clone`: it is typed in a clone of rye. */
export interface PageCommand {
  readonly kind: 'command' | 'clone';
  readonly line: number;
  readonly command: string;
  readonly expected: readonly string[];
}

/** A comment of the page, unseen by its reader, where the commands that stay are interrupted. */
export interface PageInterrupt {
  readonly kind: 'interrupt';
}

export type PageStep = PageFile | PageCommand | PageInterrupt;

/** Fences whose lines are typed: `console` shows commands after `$ ` and their output, the others commands alone. */
const TYPED = new Set(['console', 'sh', 'bash', 'shell']);
/** The first words of a line that looks like a command. */
const COMMAND = /^(?:\$ |rye |npm |npx |git )/;

/**
 * What a page of documentation tells its reader to do, in order: fences with `file=PATH` in their info string are
 * files; the commands of `console` and `sh` fences are typed, and fragments of the output follow them; commands of `sh clone`
 * in a clone of rye. Throws if another fence contains a command, because no test would notice that it is wrong.
 */
export function readConsolePage(path: string): readonly PageStep[] {
  const blocks = new MarkdownIt({ html: true })
    .parse(readFileSync(path, 'utf8'), {})
    .filter(({ type }) => type === 'fence' || type === 'html_block');
  return blocks.flatMap(({ type, info, content, map }): readonly PageStep[] => {
    if (type === 'html_block') {
      return content.trim() === '<!-- Ctrl-C -->' ? [{ kind: 'interrupt' }] : [];
    }
    const file = /\bfile=(\S+)/.exec(info)?.[1];
    if (file !== undefined) return [{ kind: 'file', path: file, content }];
    const [language = '', place] = info.trim().split(' ');
    const firstLine = (map?.[0] ?? 0) + 2;
    if (TYPED.has(language)) {
      const commands = commandsOf(content, firstLine, language === 'console');
      return place === 'clone' ? commands.map((one) => ({ ...one, kind: 'clone' })) : commands;
    }
    const untried = content.split('\n').findIndex((line) => COMMAND.test(line));
    if (untried !== -1) {
      throw new Error(`${path}:${firstLine + untried}: a command in a block that is not typed`);
    }
    return [];
  });
}

function commandsOf(content: string, firstLine: number, showsOutput: boolean): PageCommand[] {
  const commands: { kind: 'command'; line: number; command: string; expected: string[] }[] = [];
  let continues = false;
  for (const [index, line] of content.trimEnd().split('\n').entries()) {
    const last = commands.at(-1);
    if (continues && last !== undefined) last.command += `\n${line}`;
    else if (!showsOutput || line.startsWith('$ ')) {
      const command = showsOutput ? line.slice(2) : line;
      commands.push({ kind: 'command', line: firstLine + index, command, expected: [] });
    } else {
      last?.expected.push(line);
      continue;
    }
    continues = line.endsWith('\\');
  }
  return commands.filter(({ command }) => !/^\s*(?:#|$)/.test(command));
}

/** A terminal breaks a long line into so many. */
const MAX_BROKEN_LINES = 4;

/**
 * Returns the expected lines that the output lacks in this order. `…` in a line matches anything, a number any number, the
 * end of a thread ID any other, and white space any amount.
 */
export function missingLines(
  lines: readonly string[],
  expected: readonly string[],
): readonly string[] {
  let from = 0;
  return expected.filter((wanted) => {
    for (let count = 1; count <= MAX_BROKEN_LINES; count += 1) {
      const found = lines.findIndex(
        (_, index) => index >= from && shows(lines.slice(index, index + count).join(' '), wanted),
      );
      if (found === -1) continue;
      from = found + count;
      return false;
    }
    return true;
  });
}

function shows(line: string, wanted: string): boolean {
  const shown = alike(line);
  let from = 0;
  for (const part of wanted.split('…')) {
    const at = shown.indexOf(alike(part), from);
    if (at === -1) return false;
    from = at + alike(part).length;
  }
  return true;
}

/** Replaces what differs between two runs of the same command. */
function alike(text: string): string {
  return text
    .trim()
    .replace(/-[\da-z]{4}\b/g, '-ID')
    .replace(/\d[\d.]*(?:ms|s)\b/g, '0s')
    .replace(/\d+(?:\.\d+)?/g, '0')
    .replace(/\s+/g, ' ');
}
