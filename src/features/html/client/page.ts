// The parts of the exported page.

interface Entry {
  readonly id: string;
  readonly parent: number;
  readonly kind: string;
  readonly text: string;
  readonly label?: string;
}

export interface PageData {
  readonly entries: readonly Entry[];
  /** By filter: the places that it shows. */
  readonly views: Readonly<Record<string, readonly number[]>>;
  readonly leaf: number;
  /** By the place where a branch ends: place and mark, in turn. */
  readonly marks: Readonly<Record<string, readonly (number | string)[]>>;
}

export const data = JSON.parse(find('script.data').textContent ?? '') as PageData;
export const articles = [...document.querySelectorAll<HTMLElement>('.entries > article')];
export function find(selector: string): HTMLElement {
  const found = document.querySelector<HTMLElement>(selector);
  if (!found) throw new Error(`the page has no ${selector}`);
  return found;
}

export function span(name: string, text: string): HTMLElement {
  const made = document.createElement('span');
  made.className = name;
  made.textContent = text;
  return made;
}
