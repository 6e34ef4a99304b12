import type { CommandSpec, OptionSpec } from './spec.ts';
import { GLOBAL_OPTIONS } from './tree/global-options.ts';

export const SHELLS = ['bash', 'zsh', 'fish'] as const;
export type Shell = (typeof SHELLS)[number];

/** One place on a command line, such as `rye keys`, with the words that can follow. */
interface Place {
  /** Command words after `rye`, joined by a space. */
  readonly path: string;
  readonly commands: readonly CommandSpec[];
  readonly options: readonly OptionSpec[];
  readonly choices: readonly string[];
}

/** A completion script for the commands below `root`. */
export function completionScript(shell: Shell, root: CommandSpec): string {
  const places = placesOf(root, []);
  return shell === 'fish'
    ? fishScript(places)
    : `${shell === 'zsh' ? ZSH_HEAD : ''}${bashScript(places)}`;
}

// zsh runs bash completions through its own compatibility layer
const ZSH_HEAD = '#compdef rye\nautoload -U +X bashcompinit && bashcompinit\n';

function placesOf(spec: CommandSpec, path: readonly string[]): readonly Place[] {
  const commands = spec.commands ?? [];
  const implied = commands.find(({ name }) => name === spec.defaultCommand);
  return [
    {
      path: path.join(' '),
      commands,
      options: [...(spec.options ?? []), ...(implied?.options ?? [])],
      choices: spec.arguments?.[0]?.choices ?? [],
    },
    ...commands.flatMap((child) => placesOf(child, [...path, child.name])),
  ];
}

function flagsOf({ name, short }: OptionSpec): readonly string[] {
  return short === undefined ? [`--${name}`] : [`--${name}`, `-${short}`];
}

function bashScript(places: readonly Place[]): string {
  const globals = ['--help', ...GLOBAL_OPTIONS.flatMap(flagsOf)];
  const valueOptions = [...GLOBAL_OPTIONS, ...places.flatMap(({ options }) => options)].filter(
    ({ value }) => value !== undefined,
  );
  const words = places.map(({ path, commands, options, choices }) => {
    const all = [
      ...commands.map(({ name }) => name),
      ...choices,
      ...options.flatMap(flagsOf),
      ...globals,
    ];
    return `    '${path}') words='${all.join(' ')}' ;;\n`;
  });
  const values = places.flatMap(({ path, options }) =>
    options.flatMap(({ name, choices }) =>
      choices === undefined ? [] : [`    '${path} --${name}') words='${choices.join(' ')}' ;;\n`],
    ),
  );
  const paths = places.map(({ path }) => `'${path}'`).join('|');
  return `_rye() {
  local word path='' next words='' skip=''
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD-1]}
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    if [ -n "$skip" ]; then skip=''; continue; fi
    case "$word" in
      ${[...new Set(valueOptions.flatMap(flagsOf))].join('|')}) skip=1; continue ;;
      -*) continue ;;
    esac
    next="\${path:+$path }$word"
    case "$next" in ${paths}) path=$next ;; esac
  done
  case "$path $previous" in
${values.join('')}    *) if [ -n "$skip" ]; then return; fi ;;
  esac
  if [ -z "$words" ]; then
  case "$path" in
${words.join('')}  esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _rye rye
`;
}

function fishScript(places: readonly Place[]): string {
  const lines = places.flatMap(({ path, commands, options, choices }) => {
    const when = fishCondition(path, commands);
    return [
      ...commands.map(({ name, summary }) => `${when} -f -a ${name} -d ${quote(summary)}`),
      ...choices.map((choice) => `${when} -f -a ${choice}`),
      ...options.map((option) => `${when} ${fishOption(option)}`),
    ];
  });
  const globals = GLOBAL_OPTIONS.map((option) => `complete -c rye ${fishOption(option)}`);
  return `${[...globals, ...lines].join('\n')}\n`;
}

function fishCondition(path: string, commands: readonly CommandSpec[]): string {
  const seen =
    path === '' ? [] : path.split(' ').map((word) => `__fish_seen_subcommand_from ${word}`);
  const names = commands.map(({ name }) => name).join(' ');
  const unseen = commands.length === 0 ? [] : [`not __fish_seen_subcommand_from ${names}`];
  const condition = [...seen, ...unseen].join('; and ');
  return `complete -c rye -n ${quote(condition)}`;
}

function fishOption({ name, short, value, choices, description }: OptionSpec): string {
  const flags = short === undefined ? `-l ${name}` : `-l ${name} -s ${short}`;
  const values = choices === undefined ? '' : ` -x -a ${quote(choices.join(' '))}`;
  const requires = value === undefined || choices !== undefined ? '' : ' -r';
  return `${flags}${requires}${values} -d ${quote(description)}`;
}

function quote(text: string): string {
  return `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
}
