import { headChars } from '../../core/text.ts';

const MAX_LENGTH = 300;
const ERROR_LINE = /^(?:[\w.$]*(?:Error|Exception)\b|(?:fatal|panic|error)\b)/i;
const TRACEBACK = 'Traceback (most recent call last)';

/**
 * Returns what tells a person on one line why a program failed, from its output on stderr: the line that names the error,
 * which stack traces bury, else the text from its start. Cut between words; at most 300 characters.
 */
export function tellingWords(stderr: string): string {
  const lines = stderr
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');
  const errors = lines.filter((line) => ERROR_LINE.test(line));
  // Python prints the stack above the error, and the error that ended the program last
  const named = stderr.includes(TRACEBACK) ? errors.at(-1) : errors[0];
  return cut((named ?? lines.join(' ')).replaceAll(/\s+/g, ' '));
}

function cut(text: string): string {
  if (text.length <= MAX_LENGTH) return text;
  const head = headChars(text, MAX_LENGTH - 1);
  const space = head.lastIndexOf(' ');
  return `${space > 0 ? head.slice(0, space) : head}…`;
}
