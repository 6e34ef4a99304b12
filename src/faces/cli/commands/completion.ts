import { resolve } from 'node:path';
import { EXIT, RyeError } from '../../../kernel/core/errors.ts';
import {
  type Argument,
  type Command,
  defineCommand,
  GLOBAL_OPTIONS,
  loadTree,
  type OptionSpec,
  optionSpecs,
} from '../command.ts';
import { printDocument } from '../output.ts';

const SHELLS = ['bash', 'zsh', 'fish'] as const;
type Shell = (typeof SHELLS)[number];

const SHELL: Argument<Shell> = {
  description: 'bash, zsh or fish',
  choices: SHELLS,
  read: ([word = '']) => {
    const shell = SHELLS.find((known) => known === word);
    if (shell !== undefined) return shell;
    throw new RyeError('usage', `unsupported shell ${JSON.stringify(word)}`, {
      hint: `Use one of: ${SHELLS.join(', ')}.`,
    });
  },
};

export const completion = defineCommand({
  arguments: { shell: SHELL },
  examples: ['rye completion bash > ~/.local/share/bash-completion/completions/rye'],
  run: async ({ args: { shell }, io, global, root }) => {
    if (global.project !== undefined) {
      const { assertFolder } = await import('../../../kernel/app/user-space.ts');
      assertFolder(resolve(io.cwd, global.project));
    }
    const script = completionScript(shell, await loadTree(root));
    if (global.json) printDocument(io, { success: true, shell, script });
    else io.stdout.writeRaw(script);
    return EXIT.ok;
  },
});

const GLOBALS = optionSpecs(GLOBAL_OPTIONS);

/** A position on a command line, such as `rye keys`, with the words that can follow. */
interface Place {
  /** Command words after `rye`, joined by a space. */
  readonly path: string;
  readonly commands: readonly Command[];
  readonly options: readonly OptionSpec[];
  readonly choices: readonly string[];
  /** The kind of words that `rye __complete` gives for the first argument; `item`: for the second, of the first's type. */
  readonly kind?: string;
}

/** Commands whose first argument is the ID of an item of one type. */
const KINDS: Readonly<Record<string, string>> = {
  run: 'directive',
  chat: 'directive',
  'execute directive': 'directive',
  'execute tool': 'tool',
  'hooks explain': 'directive',
  'models use': 'model',
};

function kindOf(path: string, { arguments: args }: Command): string | undefined {
  const [first, second] = args;
  if (KINDS[path] !== undefined) return KINDS[path];
  if (first?.isThread === true) return 'thread';
  return first?.choices?.includes('directive') === true && second ? 'item' : undefined;
}

/** Returns a completion script for the commands below a loaded `root`. */
export function completionScript(shell: Shell, root: Command): string {
  const places = placesOf(root, []);
  return shell === 'fish'
    ? fishScript(places)
    : `${shell === 'zsh' ? ZSH_HEAD : ''}${bashScript(places)}`;
}

// zsh runs bash completions through its own compatibility layer
const ZSH_HEAD = '#compdef rye\nautoload -U +X bashcompinit && bashcompinit\n';

function placesOf(spec: Command, path: readonly string[]): readonly Place[] {
  const commands = spec.commands ?? [];
  const implied = commands.find(({ name }) => name === spec.defaultCommand);
  const kind = kindOf(path.join(' '), spec);
  return [
    {
      ...(kind === undefined ? {} : { kind }),
      path: path.join(' '),
      commands,
      options: [...spec.options, ...(implied?.options ?? [])],
      choices: spec.arguments[0]?.choices ?? [],
    },
    ...commands.flatMap((child) => placesOf(child, [...path, child.name])),
  ];
}

function flagsOf({ name, short }: OptionSpec): readonly string[] {
  return short === undefined ? [`--${name}`] : [`--${name}`, `-${short}`];
}

function bashScript(places: readonly Place[]): string {
  const globals = ['--help', ...GLOBALS.flatMap(flagsOf)];
  const valueOptions = [...GLOBALS, ...places.flatMap(({ options }) => options)].filter(
    ({ value }) => value !== undefined,
  );
  const words = places.map(({ path, commands, options, choices }) => {
    const all = [
      ...commands.map(({ name }) => name),
      ...choices,
      ...options.flatMap(flagsOf),
      ...globals,
    ];
    return `    '${path}') fixed='${all.join(' ')}' ;;\n`;
  });
  const values = places.flatMap(({ path, options }) =>
    options.flatMap(({ name, choices }) =>
      choices === undefined ? [] : [`    '${path} --${name}') fixed='${choices.join(' ')}' ;;\n`],
    ),
  );
  const paths = places.map(({ path }) => `'${path}'`).join('|');
  const kinds = places.flatMap(({ path, kind }) =>
    kind === undefined ? [] : [`    '${path}') kind=${kind} ;;\n`],
  );
  // zsh has its own meaning for the names path and words
  return `_rye() {
  local word place='' next offered='' fixed='' skip='' first='' count=0 kind='' newline=$'\\n'
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD-1]}
  for word in "\${COMP_WORDS[@]:1:$((COMP_CWORD - 1))}"; do
    if [ -n "$skip" ]; then skip=''; continue; fi
    case "$word" in
      ${[...new Set(valueOptions.flatMap(flagsOf))].join('|')}) skip=1; continue ;;
      -*) continue ;;
    esac
    next="\${place:+$place }$word"
    case "$next" in
      ${paths}) place=$next first='' count=0 ;;
      *) first=\${first:-$word} count=$((count + 1)) ;;
    esac
  done
  case "$place $previous" in
${values.join('')}    *' --model') offered=$(rye __complete model "$current" 2>/dev/null) ;;
    *' --input')
      offered=$(rye __complete input "$current" "$first" 2>/dev/null)
      compopt -o nospace 2>/dev/null ;;
  esac
  if [ -n "$skip" ] && [ -z "$offered$fixed" ]; then return; fi
  case "$place" in
${kinds.join('')}  esac
  if [ "$kind" = item ] && [ "$count" = 1 ]; then
    kind=$first count=0
  fi
  if [ -z "$offered$fixed" ] && [ -n "$kind" ] && [ "$count" = 0 ]; then
    case "$kind $current" in
      'item '*|*' -'*) ;;
      *) offered=$(rye __complete "$kind" "$current" 2>/dev/null) ;;
    esac
  fi
  if [ -z "$offered$fixed" ]; then
  case "$place" in
${words.join('')}  esac
  fi
  # compgen -W would run what is in the words
  COMPREPLY=()
  while IFS= read -r word; do
    case "$word" in
      ''|*[!A-Za-z0-9_./:@=+-]*) ;;
      "$current"*) COMPREPLY+=("$word") ;;
    esac
  done <<< "$offered$newline\${fixed// /$newline}"
}
complete -o default -F _rye rye
`;
}

function fishScript(places: readonly Place[]): string {
  const lines = places.flatMap(({ path, commands, options, choices, kind }) => {
    const when = fishCondition(path, commands);
    return [
      ...(kind === undefined || kind === 'item'
        ? []
        : [`${when} -f -a '(rye __complete ${kind} (commandline -ct) 2>/dev/null)'`]),
      ...commands.map(({ name, summary }) => `${when} -f -a ${name} -d ${quote(summary)}`),
      ...choices.map((choice) => `${when} -f -a ${choice}`),
      ...options.map((option) => `${when} ${fishOption(option)}`),
    ];
  });
  const globals = GLOBALS.map((option) => `complete -c rye ${fishOption(option)}`);
  return `${[...globals, ...lines].join('\n')}\n`;
}

function fishCondition(path: string, commands: readonly Command[]): string {
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
  if (name === 'model')
    return `${flags} -x -a '(rye __complete model (commandline -ct) 2>/dev/null)' -d ${quote(description)}`;
  const requires = value === undefined || choices !== undefined ? '' : ' -r';
  return `${flags}${requires}${values} -d ${quote(description)}`;
}

function quote(text: string): string {
  return `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
}
