// The script of an exported page. It sets or compares values from a log as text and never parses them as markup.

interface Entry {
  readonly id: string;
  readonly parent: number;
  readonly kind: string;
  readonly text: string;
  readonly label?: string;
}

interface View {
  /** Place and depth of each row, in turn. */
  readonly rows: readonly number[];
  readonly leaf: number;
}

interface PageData {
  readonly entries: readonly Entry[];
  readonly views: Readonly<Record<string, View>>;
  readonly leaf: number;
}

const PREFIX = '#entry-';
const SEARCH_DELAY_MS = 120;
const MAX_DEPTH_SHOWN = 12;

const data = JSON.parse(find('script.data').textContent ?? '') as PageData;
const articles = [...document.querySelectorAll<HTMLElement>('.entries > article')];
const places = new Map(
  data.entries.map(({ id }, place) => [id, place]).toReversed() as [string, number][],
);
const newestChild = new Map(data.entries.map(({ parent }, place) => [parent, place]));

const list = find('.rows');
const search = find('.search input') as HTMLInputElement;
const opener = find('.open-tree');
const branchBar = find('.branch-bar');
const end = document.querySelector<HTMLElement>('.end');

let openPath = pathThrough(data.leaf);
const leafPath = openPath;
let selected = -1;
let words: readonly string[] = [];
let texts: readonly string[] | undefined;

function find(selector: string): HTMLElement {
  const found = document.querySelector<HTMLElement>(selector);
  if (!found) throw new Error(`the page has no ${selector}`);
  return found;
}

/** Returns the entries from the root through one, and further along the newest branch. */
function pathThrough(place: number): ReadonlySet<number> {
  const path = new Set<number>();
  for (let at = place; at >= 0; at = data.entries[at]?.parent ?? -1) path.add(at);
  if (place === data.leaf) return path;
  for (let at = newestChild.get(place); at !== undefined; at = newestChild.get(at)) path.add(at);
  return path;
}

function showPath(path: ReadonlySet<number>): void {
  openPath = path;
  for (const [place, article] of articles.entries()) article.hidden = !path.has(place);
  branchBar.hidden = path === leafPath;
  // a branch that was left has not ended like this
  if (end) end.hidden = path !== leafPath;
}

/** Opens an entry: its branch, if another one is shown, and the entry itself. */
function select(place: number): void {
  const article = articles[place];
  if (!article) return;
  if (leafPath.has(place)) showPath(leafPath);
  else if (!openPath.has(place)) showPath(pathThrough(place));
  articles[selected]?.classList.remove('selected');
  article.classList.add('selected');
  selected = place;
  for (const fold of article.querySelectorAll('details')) fold.open = true;
  closeDrawer();
  article.scrollIntoView({ block: 'start' });
  article.focus({ preventScroll: true });
  markRow();
  markWords();
}

/** The entry that the address names, by its whole id or the start of it. */
function selectAddress(): void {
  const { hash } = location;
  if (hash.length < 2) return;
  const text = hash.startsWith(PREFIX) ? hash.slice(PREFIX.length) : hash.slice(1);
  const id = decoded(text);
  const place = places.get(id) ?? data.entries.findIndex((entry) => entry.id.startsWith(id));
  if (place !== selected) select(place);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function goTo(place: number): void {
  const entry = data.entries[place];
  if (!entry) return;
  // at once: the next key may come before the browser tells of the new address
  select(place);
  location.hash = `${PREFIX}${encodeURIComponent(entry.id)}`;
}

function drawTree(): void {
  const filter = (find('.filters input:checked') as HTMLInputElement).value;
  const view = data.views[filter] ?? { rows: [], leaf: -1 };
  const rows: HTMLElement[] = [];
  for (let index = 0; index < view.rows.length; index += 2) {
    const place = view.rows[index] ?? -1;
    if (!matches(place)) continue;
    const row = rowOf(place, view.rows[index + 1] ?? 0);
    row.classList.toggle('leaf', place === view.leaf);
    rows.push(row);
  }
  list.replaceChildren(...rows);
  find('.count').textContent = `${rows.length} of ${data.entries.length} entries`;
  markRow();
}

function rowOf(place: number, depth: number): HTMLElement {
  const entry = data.entries[place];
  const link = document.createElement('a');
  link.href = `${PREFIX}${encodeURIComponent(entry?.id ?? '')}`;
  link.dataset['place'] = String(place);
  link.dataset['kind'] = entry?.kind ?? '';
  link.style.setProperty('--depth', String(Math.min(depth, MAX_DEPTH_SHOWN)));
  link.classList.toggle('off', !leafPath.has(place));
  if (entry?.label !== undefined) link.append(span('label', entry.label));
  link.append(span('kind', entry?.kind ?? ''), span('text', entry?.text ?? ''));
  const row = document.createElement('li');
  row.append(link);
  return row;
}

function span(name: string, text: string): HTMLElement {
  const made = document.createElement('span');
  made.className = name;
  made.textContent = text;
  return made;
}

function markRow(): void {
  for (const row of list.querySelectorAll('[aria-current]')) row.removeAttribute('aria-current');
  const row = list.querySelector(`[data-place="${selected}"]`);
  row?.setAttribute('aria-current', 'true');
  row?.scrollIntoView({ block: 'nearest' });
}

function matches(place: number): boolean {
  if (words.length === 0) return true;
  texts ??= articles.map((article, at) => {
    const { label = '', kind = '' } = data.entries[at] ?? {};
    return `${label} ${kind} ${article.textContent}`.toLowerCase();
  });
  const text = texts[place] ?? '';
  return words.every((word) => text.includes(word));
}

/** Marks what was searched for in the entry that is open. */
function markWords(): void {
  if (typeof Highlight === 'undefined') return;
  CSS.highlights.delete('found');
  const article = articles[selected];
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

function openDrawer(): void {
  document.body.classList.add('drawer');
  opener.setAttribute('aria-expanded', 'true');
  search.focus();
}

function closeDrawer(): void {
  if (!document.body.classList.contains('drawer')) return;
  document.body.classList.remove('drawer');
  opener.setAttribute('aria-expanded', 'false');
  opener.focus();
}

/** Opens all folds of these kinds, or closes them where all are open. */
function toggleFolds(kinds: readonly string[]): void {
  const folds = kinds.flatMap((kind) => [
    ...document.querySelectorAll<HTMLDetailsElement>(`details.${kind}`),
  ]);
  const isOpening = folds.some(({ open }) => !open);
  for (const fold of folds) fold.open = isOpening;
}

/** Returns the visible entry before or after the open one. */
function step(direction: 1 | -1): void {
  const start = selected < 0 && direction < 0 ? articles.length : selected;
  let place = start + direction;
  while (articles[place]?.hidden) place += direction;
  if (articles[place]) goTo(place);
}

function stepRow(from: HTMLElement, direction: 1 | -1): void {
  const row = from.closest('li');
  const next = direction === 1 ? row?.nextElementSibling : row?.previousElementSibling;
  next?.querySelector('a')?.focus();
}

const KEYS: Readonly<Record<string, () => void>> = {
  '/': () => {
    if (getComputedStyle(opener).display === 'none') search.focus();
    else openDrawer();
  },
  j: () => step(1),
  k: () => step(-1),
};

function onKey(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === 'Escape') {
    closeDrawer();
    search.blur();
    return;
  }
  const target = event.target instanceof HTMLElement ? event.target : undefined;
  if (target?.closest('input')) return;
  const direction = { ArrowDown: 1, ArrowUp: -1 }[event.key] as 1 | -1 | undefined;
  if (direction && target && list.contains(target)) {
    event.preventDefault();
    stepRow(target, direction);
    return;
  }
  const action = Object.hasOwn(KEYS, event.key) ? KEYS[event.key] : undefined;
  if (!action) return;
  event.preventDefault();
  action();
}

function listen(): void {
  let timer = 0;
  search.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      words = search.value
        .toLowerCase()
        .split(/\s+/)
        .filter((word) => word !== '');
      drawTree();
      markWords();
    }, SEARCH_DELAY_MS);
  });
  search.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter') return;
    list.querySelector('a')?.click();
  });
  find('.filters').addEventListener('change', drawTree);
  list.addEventListener('click', (event) => {
    const link = event.target instanceof Element ? event.target.closest('a') : null;
    if (!link) return;
    event.preventDefault();
    goTo(Number(link.dataset['place']));
  });
  for (const button of document.querySelectorAll<HTMLElement>('.to-leaf')) {
    button.addEventListener('click', () => goTo(data.leaf));
  }
  for (const button of document.querySelectorAll<HTMLElement>('.toggle')) {
    button.addEventListener('click', () => toggleFolds(button.dataset['folds']?.split(',') ?? []));
  }
  opener.addEventListener('click', openDrawer);
  find('.close-tree').addEventListener('click', closeDrawer);
  find('.shade').addEventListener('click', closeDrawer);
  document.addEventListener('keydown', onKey);
  addEventListener('hashchange', selectAddress);
}

document.documentElement.classList.add('scripts');
find('.bar-title').textContent = document.title;
listen();
drawTree();
selectAddress();
