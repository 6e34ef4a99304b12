import type { ArgumentSpec, CommandSpec, OptionSpec } from './spec.ts';
import { GLOBAL_OPTIONS } from './tree/global-options.ts';
import { ROOT } from './tree/root.ts';

/** docs/cli.md: every command with its arguments, options and examples, made from the command tree. */
export function cliPage(): string {
  return [
    '# Commands',
    '',
    '<!-- Made by `npm run docs:cli`: change src/cli/tree, not this page. -->',
    '',
    'Options of every command; they may stand before or after its name:',
    '',
    ...optionTable(GLOBAL_OPTIONS),
    '',
    'stdout carries the result, stderr everything else. A failure prints `rye: message [code]` and a `hint:`; with `--json` it is',
    'the document `{"success": false, "error": {"code", "message", "hint", "details"}}` on stdout.',
    '',
    '| exit | meaning |',
    '| --- | --- |',
    ...EXIT_MEANINGS.map(([code, meaning]) => `| ${code} | ${meaning} |`),
    ...(ROOT.commands ?? []).flatMap((command) => sections(command, [ROOT.name])),
    '',
  ].join('\n');
}

const EXIT_MEANINGS: readonly (readonly [number, string])[] = [
  [0, 'done; for a thread: completed, or continued to a thread that completed'],
  [1, 'the thread, or a child command, ended in an error'],
  [2, 'wrong usage, invalid input, an item or configuration that cannot be parsed'],
  [3, 'integrity: a missing, invalid or untrusted signature, tampered state'],
  [4, 'a permission or risk policy refused'],
  [5, 'a limit or budget was exceeded or cannot be granted'],
  [6, 'not found'],
  [7, 'the model provider refused or is unreachable after retries'],
  [130, 'cancelled'],
];

function sections(spec: CommandSpec, parents: readonly string[]): readonly string[] {
  const path = [...parents, spec.name];
  if (spec.commands !== undefined) {
    return spec.commands.flatMap((command) => sections(command, path));
  }
  const usage = [...path, ...(spec.arguments ?? []).map(argumentUsage)].join(' ');
  const options = spec.options ?? [];
  return [
    '',
    `## ${path.join(' ')}`,
    '',
    `\`${usage}\` — ${escapeCell(spec.summary)}.${spec.details === undefined ? '' : ` ${spec.details}`}`,
    ...(spec.arguments === undefined ? [] : ['', ...argumentTable(spec.arguments)]),
    ...(options.length === 0 ? [] : ['', ...optionTable(options)]),
    '',
    '```sh',
    ...spec.examples,
    '```',
  ];
}

function argumentUsage({ name, optional }: ArgumentSpec): string {
  return optional === true ? `[${name}]` : `<${name}>`;
}

function argumentTable(specs: readonly ArgumentSpec[]): readonly string[] {
  const rows = specs.map(
    ({ name, description }) => `| \`${escapeCell(name)}\` | ${escapeCell(description)} |`,
  );
  return ['| argument | |', '| --- | --- |', ...rows];
}

function optionTable(specs: readonly OptionSpec[]): readonly string[] {
  return ['| option | |', '| --- | --- |', ...specs.map(optionRow)];
}

function optionRow(spec: OptionSpec): string {
  const { name, short, choices, repeat, description } = spec;
  const value = spec.optional === true ? `[${spec.value}]` : spec.value;
  const flags = `${short === undefined ? '' : `-${short}, `}--${name}${value === undefined ? '' : ` ${value}`}`;
  const facts = [
    ...(choices === undefined ? [] : [choices.join(', ')]),
    ...(repeat === true ? ['repeatable'] : []),
  ];
  const suffix = facts.length === 0 ? '' : ` (${facts.join('; ')})`;
  return `| \`${escapeCell(flags)}\` | ${escapeCell(description + suffix)} |`;
}

function escapeCell(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll('<', '&lt;');
}
