// The search of the exported page: over labels, kinds, names of tools and the whole text of entries.
import { articles, data } from './page.ts';

let words: readonly string[] = [];
let texts: readonly string[] | undefined;

/** Replaces the query by the words of a text. */
export function setQuery(text: string): void {
  words = text
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== '');
}

/** True if there is a query. */
export function isSearching(): boolean {
  return words.length > 0;
}

/** True if an entry has all words of the query. */
export function matches(place: number): boolean {
  if (words.length === 0) return true;
  texts ??= articles.map((article, at) => {
    const { label = '', kind = '' } = data.entries[at] ?? {};
    // the whole name of a tool is in a title
    const tool = article.querySelector<HTMLElement>('.tool .name')?.title ?? '';
    return `${label} ${kind} ${tool} ${article.textContent}`.toLowerCase();
  });
  const text = texts[place] ?? '';
  return words.every((word) => text.includes(word));
}

/** True if an element has a word of the query. */
export function hasWord(element: Element): boolean {
  const text = element.textContent?.toLowerCase() ?? '';
  return words.some((word) => text.includes(word));
}

/** Marks the words of the query in an entry. */
export function markWords(article: HTMLElement | undefined): void {
  if (typeof Highlight === 'undefined') return;
  CSS.highlights.delete('found');
  if (!article || words.length === 0) return;
  const found = new Highlight();
  const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const text = node.textContent?.toLowerCase() ?? '';
    for (const word of words) {
      for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + word.length)) {
        const range = new Range();
        range.setStart(node, at);
        range.setEnd(node, Math.min(at + word.length, node.textContent?.length ?? 0));
        found.add(range);
      }
    }
  }
  CSS.highlights.set('found', found);
}
