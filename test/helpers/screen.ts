const ESCAPE = '\u001b';
const TOKEN = new RegExp(`${ESCAPE}\\[([?\\d;]*)([A-Za-z])|\\n|\\r|[^\\n\\r${ESCAPE}]+`, 'g');

/** Returns the lines that a terminal shows after this output: it obeys line feeds, cursor moves up and right, and erasing. */
export function screenOf(output: string): readonly string[] {
  const lines: string[] = [''];
  let row = 0;
  let column = 0;
  for (const [token, argument = '', command] of output.matchAll(TOKEN)) {
    const count = Number(argument || 1);
    if (token === '\n') {
      row += 1;
      column = 0;
      lines[row] ??= '';
    } else if (token === '\r') column = 0;
    else if (command === 'A') row = Math.max(0, row - count);
    else if (command === 'B') row = Math.min(lines.length - 1, row + count);
    else if (command === 'C') column += count;
    else if (command === 'J') {
      lines.length = row + 1;
      lines[row] = (lines[row] ?? '').slice(0, column);
    } else if (command === 'K') lines[row] = '';
    else if (command === undefined) {
      const line = (lines[row] ?? '').padEnd(column);
      lines[row] = line.slice(0, column) + token + line.slice(column + token.length);
      column += token.length;
    }
  }
  return lines.map((line) => line.trimEnd());
}
