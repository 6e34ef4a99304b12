import { readFileSync } from 'node:fs';
import MarkdownIt from 'markdown-it';

/** A file that a page tells its reader to save. */
export interface PageFile {
  readonly kind: 'file';
  readonly path: string;
  readonly content: string;
}

/** A command line and the lines that the page shows below it. */
export interface PageCommand {
  readonly kind: 'command';
  readonly line: number;
  readonly command: string;
  readonly expected: readonly string[];
}

/**
 * What a page of documentation tells its reader to do, in order: fences with `file=PATH` in their info string are
 * files, `console` fences contain commands after `$ ` with fragments of their output below.
 */
export function readConsolePage(path: string): readonly (PageFile | PageCommand)[] {
  const fences = new MarkdownIt()
    .parse(readFileSync(path, 'utf8'), {})
    .filter(({ type }) => type === 'fence');
  return fences.flatMap(({ info, content, map }): readonly (PageFile | PageCommand)[] => {
    const file = /\bfile=(\S+)/.exec(info)?.[1];
    if (file !== undefined) return [{ kind: 'file', path: file, content }];
    return info.trim() === 'console' ? commandsOf(content, (map?.[0] ?? 0) + 2) : [];
  });
}

function commandsOf(content: string, firstLine: number): PageCommand[] {
  const commands: { kind: 'command'; line: number; command: string; expected: string[] }[] = [];
  for (const [index, line] of content.trimEnd().split('\n').entries()) {
    if (line.startsWith('$ ')) {
      commands.push({
        kind: 'command',
        line: firstLine + index,
        command: line.slice(2),
        expected: [],
      });
    } else {
      commands.at(-1)?.expected.push(line);
    }
  }
  return commands;
}

/** Returns the expected lines that the output lacks in this order; `…` in a line matches anything. */
export function missingLines(output: string, expected: readonly string[]): readonly string[] {
  const lines = output.split('\n');
  let from = 0;
  return expected.filter((wanted) => {
    const found = lines.findIndex((line, index) => index >= from && shows(line, wanted));
    if (found !== -1) from = found + 1;
    return found === -1;
  });
}

function shows(line: string, wanted: string): boolean {
  let from = 0;
  for (const part of wanted.split('…')) {
    const at = line.indexOf(part.trim(), from);
    if (at === -1) return false;
    from = at + part.trim().length;
  }
  return true;
}
