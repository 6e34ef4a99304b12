import { wrapText } from '../ui/terminal-text.ts';

type Row = readonly [names: string, text: string];

/** The commands by what a person wants to do; each command is in one row. */
const GROUPS: Readonly<Record<string, readonly Row[]>> = {
  Start: [
    ['init', 'Create .ai/ in this folder, and a signing key'],
    ['ask, chat', 'Ask one question, or talk; both only read'],
    ['run', 'Run a directive: rye run hello --input who=Ada'],
  ],
  Watch: [
    ['ps, tree', 'List threads, or draw them with their children'],
    ['show, logs', 'Show the state of a thread, or its log'],
    ['attach, open', 'Watch a running thread; browse its session'],
    ['resume, stop', 'Continue a thread, or end it'],
    ['threads, search', 'All about threads; search them and the items'],
  ],
  Decide: [
    ['approvals', 'List requests that wait for a decision'],
    ['approve, deny, answer', 'Decide, with your signature'],
  ],
  Write: [['new, edit, validate, list, fetch, execute, rules, hooks, import', '']],
  Trust: [['sign, verify, keys, lock, git', '']],
  Operate: [['schedule, models, mcp, config, doctor, fleet, worker, completion', '']],
};

const USAGE = 'Usage: rye [options] [command]';
const OPTIONS = 'Options: -C DIR, --user-space DIR, -c KEY=VALUE, --json, -q, -v, --no-color';
const MORE = 'One command: rye help <command>. All commands and options: rye help --all';

const TITLE_WIDTH = 9;
const NAMES_WIDTH = 23;
const LEAST_TEXT = 24;

/** Returns the help that fits a small terminal. */
export function shortHelp(summary: string, columns: number): string {
  const rows = Object.entries(GROUPS).flatMap(([title, group]) =>
    group.flatMap(([names, text], index) => {
      const start = `  ${(index === 0 ? title : '').padEnd(TITLE_WIDTH)}`;
      const indent = start.length + (text === '' ? 0 : NAMES_WIDTH);
      if (columns - indent < LEAST_TEXT) return wrapText(`${start}${names}`, columns);
      const [first = '', ...rest] = wrapText(text === '' ? names : text, columns - indent);
      const head = text === '' ? start : `${start}${names.padEnd(NAMES_WIDTH)}`;
      return [`${head}${first}`, ...rest.map((line) => `${' '.repeat(indent)}${line}`)];
    }),
  );
  return [
    `${summary}.`,
    '',
    USAGE,
    '',
    ...rows,
    '',
    ...wrapText(OPTIONS, columns),
    ...wrapText(MORE, columns),
    '',
  ].join('\n');
}

/** Returns the names of all commands in the help, for a comparison with the command tree. */
export function helpedCommands(): readonly string[] {
  return Object.values(GROUPS).flatMap((rows) => rows.flatMap(([names]) => names.split(', ')));
}
