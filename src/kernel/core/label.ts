const MAX_LABEL = 80;
const MAX_VALUE = 40;
const ESCAPE = '\u001b';
/** Sequences that color text, move the cursor or set a title. */
const SEQUENCE = new RegExp(
  `${ESCAPE}(?:\\[[0-?]*[ -/]*[@-~]|\\][^\u0007${ESCAPE}]*(?:\u0007|${ESCAPE}\\\\)?)`,
  'g',
);
const CONTROL = /[\p{Cc}\u202a-\u202e\u2066-\u2069]/gu;

/** Shortens a text to a number of characters, with an ellipsis at the cut. */
function shorten(text: string, length: number): string {
  const characters = Array.from(text.slice(0, 2 * length + 2));
  return characters.length > length ? `${characters.slice(0, length - 1).join('')}…` : text;
}

/** Returns the label of a child without an own one: its directive and its inputs, shortened. Secret inputs must be masked. */
export function inputsLabel(directive: string, inputs: Readonly<Record<string, unknown>>): string {
  const texts = Object.values(inputs).map((value) =>
    shorten(typeof value === 'string' ? value : (JSON.stringify(value) ?? ''), MAX_VALUE),
  );
  return threadLabel([directive.split('/').at(-1), ...texts].join(' '));
}

/** Returns the label of a thread: one line of at most 80 characters without control characters. Empty: there is none. */
export function threadLabel(text: string): string {
  const line = text.replaceAll(SEQUENCE, '').replaceAll(/\s+/g, ' ').replaceAll(CONTROL, '');
  return shorten(line.trim(), MAX_LABEL);
}
