import { expect, it } from 'vitest';
import { readShellLine, textOf } from '../../src/kernel/policy/shell-words.ts';

it.each<[string, readonly (string | null)[]]>([
  ['ls a.txt', ['ls', 'a.txt']],
  ['ls \'a b\' "c d" e\\ f', ['ls', 'a b', 'c d', 'e f']],
  ['ls *', ['ls', null]],
  ['ls ?', ['ls', null]],
  ['ls a?b', ['ls', null]],
  ['ls a*', ['ls', null]],
  ['ls [ab]', ['ls', null]],
  ['ls a[b]', ['ls', null]],
  ['ls \'*\' "?" \\*', ['ls', '*', '?', '*']],
  ['[ -f a ]', ['[', '-f', 'a', ']']],
  ['find . -exec rm {} +', ['find', '.', '-exec', 'rm', '{}', '+']],
  ['echo {a,b}', ['echo', null]],
  ['echo $HOME a$(id)', ['echo', null, null]],
  ['echo `id`', ['echo', null]],
  ['echo "a $HOME"', ['echo', null]],
  ["echo '$HOME'", ['echo', '$HOME']],
])('%s: a word that the shell changes has no text', (line, words) => {
  const commands = readShellLine(line) ?? [];
  // commands of its substitutions come before it
  expect(commands.at(-1)?.words.map(textOf)).toEqual(words);
});
