/** Attributes of an element; an undefined one is omitted. */
export type Attributes = Readonly<Record<string, string | number | boolean | undefined>>;

/** Returns the members of an object that have a value. */
export function entries(value: Readonly<Record<string, unknown>>): [string, unknown][] {
  return Object.entries(value).filter(([, member]) => member !== undefined);
}

/** The text of a value in an attribute or element, which the parser types again. */
export function textOf(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}

export function opening(name: string, attributes: Attributes = {}): string {
  const written = Object.entries(attributes).flatMap(([key, value]) =>
    value === undefined ? [] : [` ${key}="${escaped(String(value))}"`],
  );
  return `<${name}${written.join('')}>`;
}

export function empty(name: string, attributes: Attributes): string {
  return `${opening(name, attributes).slice(0, -1)}/>`;
}

export function element(name: string, text: string, attributes: Attributes = {}): string {
  return `${opening(name, attributes)}${escaped(text)}</${name}>`;
}

/** Line breaks are escaped too: each element stays on its line and no text can close the fence. */
export function escaped(text: string): string {
  return text.replaceAll(/[&<>"'`\n\r\t]/g, (character) => `&#${character.charCodeAt(0)};`);
}
