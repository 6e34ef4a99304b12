import { withoutControls } from '../core/text.ts';

/** Carriage returns end a line in Markdown too; control characters would reach the terminal of whoever prints the file. */
function plain(value: unknown): string {
  // a log may come from elsewhere: what should be a text need not be one
  const text = typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
  return withoutControls(text);
}

/** A code fence that the text cannot close (CommonMark 4.5: a closing fence is at least as long as the opening one). */
export function fence(text: string, info: string): string {
  const inner = plain(text);
  const ticks = '`'.repeat(Math.max(3, longestRun(inner) + 1));
  return `${ticks}${info}\n${inner}\n${ticks}`;
}

/**
 * Somebody else's Markdown as a block quote: whatever it opens (a fence, a heading, an HTML comment) ends with the
 * quote, so it cannot pass for a part of the document around it.
 */
export function quote(text: string): string {
  return plain(text)
    .trim()
    .split('\n')
    .map((line) => (line === '' ? '>' : `> ${line}`))
    .join('\n');
}

/** Inline code of one line, which a backtick in the text cannot end. */
export function inlineCode(text: string): string {
  const line = plain(text).replaceAll(/\s+/g, ' ').trim();
  const ticks = '`'.repeat(longestRun(line) + 1);
  return line.includes('`') || line === '' ? `${ticks} ${line} ${ticks}` : `\`${line}\``;
}

function longestRun(text: string): number {
  return Math.max(0, ...[...text.matchAll(/`+/g)].map(([run]) => run.length));
}
