// Writes the man pages from the command tree, one for rye and one for each of its commands: `tsx scripts/man-pages.ts DIR`.
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import {
  type Command,
  GLOBAL_OPTIONS,
  loadTree,
  type OptionSpec,
  optionSpecs,
} from '../src/faces/cli/command.ts';
import { ROOT } from '../src/faces/cli/root.ts';

const [folder] = process.argv.slice(2);
if (folder === undefined) throw new Error('name the folder to write to');
mkdirSync(folder, { recursive: true });
for (const [name, text] of await manPages()) writeFileSync(path.join(folder, name), text);

/** Returns the pages by file name. */
async function manPages(): Promise<readonly (readonly [string, string])[]> {
  const root = await loadTree(ROOT);
  const { commands = [] } = root;
  return [
    ['rye.1', page('rye', root)],
    ...commands.map((command) => {
      return [`rye-${command.name}.1`, page(`rye ${command.name}`, command)] as const;
    }),
  ];
}

function page(title: string, command: Command): string {
  const { summary, details = '', commands = [], examples } = command;
  const isRoot = command.name === 'rye';
  const own = isRoot ? optionSpecs(GLOBAL_OPTIONS) : command.options;
  return [
    `.TH ${title.replaceAll(' ', '-').toUpperCase()} 1 "" rye rye`,
    '.SH NAME',
    `${escaped(title.replaceAll(' ', '-'))} \\- ${escaped(summary)}`,
    '.SH SYNOPSIS',
    `.B ${escaped(usageOf(title, command))}`,
    '.SH DESCRIPTION',
    escaped(details === '' ? `${summary}.` : `${summary}.\n${details}`),
    ...(commands.length === 0 ? [] : ['.SH COMMANDS']),
    ...commands.flatMap((child) => [
      ...entry(usageOf(child.name, child), child.summary),
      ...(isRoot ? [] : ['.RS', ...child.options.flatMap(optionEntry), '.RE']),
    ]),
    ...(own.length === 0 ? [] : ['.SH OPTIONS', ...own.flatMap(optionEntry)]),
    '.SH EXAMPLES',
    '.nf',
    ...examples.map(escaped),
    '.fi',
    '.SH SEE ALSO',
    isRoot ? commands.map(({ name }) => `\\fBrye\\-${name}\\fR(1)`).join(', ') : '\\fBrye\\fR(1)',
    '',
  ].join('\n');
}

function usageOf(words: string, { arguments: args, options, commands = [] }: Command): string {
  const placeholders = args.map(({ name, optional }) =>
    optional === true ? `[${name}]` : `<${name}>`,
  );
  return [
    words,
    ...(options.length === 0 ? [] : ['[options]']),
    ...(commands.length === 0 ? placeholders : ['<command>']),
  ].join(' ');
}

function optionEntry({ name, short, value, description }: OptionSpec): readonly string[] {
  const flags = short === undefined ? `--${name}` : `-${short}, --${name}`;
  return entry(value === undefined ? flags : `${flags} ${value}`, description);
}

function entry(term: string, text: string): readonly string[] {
  return ['.TP', `.B ${escaped(term)}`, escaped(text)];
}

/** Escapes what troff would read: backslashes, hyphens, and a dot or quotation mark at the start of a line. */
function escaped(text: string): string {
  return text
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replaceAll(/^(?=[.'])/gm, '\\&');
}
