/** The task of a directive, extracted from the text that is sent as the first message. */
export interface Task {
  readonly name: string;
  /** The body; the description of a directive without one. */
  readonly text: string;
}

const DIRECTIVE = /(?:^|\n)<directive name="([^"\n]{0,200})">\n/;
const END = '\n</directive>';
/** The sentence with which instructions for the outputs begin. */
const RETURN = '\nWhen you have completed all steps, call the `rye_directive_return` tool';

/** Extracts the task from a message that carries a directive; undefined for any other message. */
export function taskOf(text: string): Task | undefined {
  const opening = DIRECTIVE.exec(text);
  if (!opening) return undefined;
  const start = opening.index + opening[0].length;
  const end = text.lastIndexOf(END);
  if (end < start - 1) return undefined;
  let body = text.slice(start, Math.max(start, end));
  const description = /^<description>([\s\S]*?)<\/description>\n?/.exec(body);
  body = body.slice(description?.[0].length ?? 0);
  body = body.replace(/^<permissions\b[^>]*\/>\n?|^<permissions\b[\s\S]*?<\/permissions>\n?/, '');
  const returns = `\n${body}`.lastIndexOf(RETURN);
  if (returns >= 0) body = body.slice(0, Math.max(0, returns - 1));
  const task = body.trim();
  return { name: opening[1] ?? '', text: task === '' ? (description?.[1] ?? '').trim() : task };
}
