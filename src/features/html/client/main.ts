// The script of an exported page. It sets or compares values from a log as text and never parses them as markup.
import { articles, data, find, span } from './page.ts';
import { layOut, linksOf, type Row } from './rows.ts';
import { hasWord, isSearching, markWords, matches, setQuery } from './search.ts';

const PREFIX = '#entry-';
const SEARCH_DELAY_MS = 120;
const MAX_RAILS = 12;
const MARK_WORDS: Readonly<Record<string, string>> = {
  unsent: 'no longer sent',
  omitted: 'hidden from the model',
  replaced: 'edited for the model',
};

const places = new Map(
  data.entries.map(({ id }, place) => [id, place]).toReversed() as [string, number][],
);
const newestChild = new Map(data.entries.map(({ parent }, place) => [parent, place]));

const list = find('.rows');
const search = find('.search input') as HTMLInputElement;
const opener = find('.open-tree');
const branchBar = find('.branch-bar');
const help = find('.help') as HTMLDialogElement;
const end = document.querySelector<HTMLElement>('.end');

let openPath = pathThrough(data.leaf);
const leafPath = openPath;
let selected = -1;
/** Places whose branches are folded in the tree. */
const foldedPlaces = new Set<number>();

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
  for (const divider of document.querySelectorAll<HTMLElement>('.entries > .runs')) {
    divider.hidden = !path.has(Number(divider.dataset['place']));
  }
  for (const box of document.querySelectorAll<HTMLElement>('.loose')) {
    const results = box.dataset['results']?.split(' ') ?? [];
    box.hidden = results.some((place) => place !== '' && path.has(Number(place)));
  }
  const isLeft = path !== leafPath;
  branchBar.hidden = !isLeft;
  // a branch that was left has not ended like this
  if (end) end.hidden = isLeft;
  markArticles(isLeft ? Math.max(...path) : data.leaf);
  for (const link of list.querySelectorAll('a')) markOff(link);
}

/** Tags entries with what the model sees of them on the branch that ends at a place. */
function markArticles(tip: number): void {
  for (const tag of document.querySelectorAll('.tag.seen')) tag.remove();
  const marks = data.marks[tip] ?? [];
  for (let index = 0; index < marks.length; index += 2) {
    const article = articles[Number(marks[index])];
    const tag = span('tag seen', MARK_WORDS[String(marks[index + 1])] ?? '');
    article?.querySelector('.anchor')?.before(tag);
  }
}

/** Opens an entry: its branch, if another one is shown, and the entry itself. */
function select(place: number): void {
  const article = articles[place];
  if (!article) return;
  if (leafPath.has(place)) showPath(leafPath);
  else if (!openPath.has(place)) showPath(pathThrough(place));
  unfoldTo(place);
  articles[selected]?.classList.remove('selected');
  article.classList.add('selected');
  selected = place;
  for (const fold of article.querySelectorAll('details')) {
    if (isSearching() ? hasWord(fold) : fold.matches('.tool, .data:not(.directive)'))
      fold.open = true;
  }
  closeDrawer();
  article.scrollIntoView({ block: 'start' });
  article.focus({ preventScroll: true });
  markRow();
  markWords(articles[selected]);
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
  const shown = (data.views[filter] ?? []).filter(matches);
  const links = linksOf(data.entries, shown);
  const rows = layOut(links.children, leafPath, isFolded);
  const near = links.anchors[data.leaf] ?? -1;
  list.replaceChildren(...rows.map((row) => drawRow(row, near, links.sizes)));
  find('.count').textContent = `${shown.length} of ${data.entries.length} entries`;
  markRow();
}

/** A search shows all that it finds. */
function isFolded(place: number): boolean {
  return !isSearching() && foldedPlaces.has(place);
}

function drawRow({ place, rails, folds }: Row, near: number, sizes: Uint32Array): HTMLElement {
  const row = document.createElement('li');
  row.classList.toggle('folds', folds);
  if (place === data.leaf) {
    row.classList.add('leaf');
    row.title = 'The head: the conversation continues here';
  } else if (place === near) {
    row.classList.add('near');
    row.title = 'The head is after this entry; this filter hides it';
  }
  row.append(...rails.slice(-MAX_RAILS).map((rail) => span(`rail ${rail}`, '')));
  if (folds) row.append(foldButton(place, sizes[place] ?? 0));
  row.append(linkTo(place));
  if (folds && isFolded(place)) row.append(span('folded', `+${sizes[place]}`));
  return row;
}

function linkTo(place: number): HTMLElement {
  const { id = '', kind = '', label, text = '' } = data.entries[place] ?? {};
  const link = document.createElement('a');
  link.href = `${PREFIX}${encodeURIComponent(id)}`;
  link.dataset['place'] = String(place);
  link.dataset['kind'] = kind;
  markOff(link);
  if (label !== undefined) link.append(span('label', label));
  link.append(span('kind', kind), span('text', text));
  return link;
}

function markOff(link: HTMLElement): void {
  link.classList.toggle('off', !openPath.has(Number(link.dataset['place'])));
}

function foldButton(place: number, size: number): HTMLElement {
  const button = document.createElement('button');
  button.type = 'button';
  button.className = 'fold-row';
  button.tabIndex = -1;
  button.dataset['fold'] = String(place);
  button.setAttribute('aria-expanded', String(!isFolded(place)));
  button.setAttribute('aria-label', `${isFolded(place) ? 'Unfold' : 'Fold'} ${size} entries`);
  return button;
}

/** Folds or unfolds a row and keeps the focus on it. */
function foldRow(place: number, wanted = !foldedPlaces.has(place)): void {
  if (wanted) foldedPlaces.add(place);
  else foldedPlaces.delete(place);
  drawTree();
  list.querySelector<HTMLElement>(`[data-place="${place}"]`)?.focus({ preventScroll: true });
}

/** Makes the row of an entry visible. */
function unfoldTo(place: number): void {
  let isChanged = false;
  for (let at = data.entries[place]?.parent ?? -1; at >= 0; at = data.entries[at]?.parent ?? -1) {
    isChanged = foldedPlaces.delete(at) || isChanged;
  }
  if (isChanged) drawTree();
}

function markRow(): void {
  for (const row of list.querySelectorAll('[aria-current]')) row.removeAttribute('aria-current');
  const row = list.querySelector(`[data-place="${selected}"]`);
  row?.setAttribute('aria-current', 'true');
  row?.scrollIntoView({ block: 'nearest' });
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

/** Opens all folds of a kind, or closes them if all are open. */
function toggleFolds(kind: string): void {
  const folds = [...document.querySelectorAll<HTMLDetailsElement>(`main details.${kind}`)];
  const isOpening = folds.some(({ open }) => !open);
  for (const fold of folds) fold.open = isOpening;
}

function toggleDetails(): void {
  const isShown = document.body.classList.toggle('details');
  find('.show-details').setAttribute('aria-pressed', String(isShown));
}

/** Saves the entries that the page has; nothing is loaded. */
function save(): void {
  const text = find('script.lines').textContent ?? '';
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text.trimStart()], { type: 'application/x-ndjson' }));
  link.download = `${document.title.replaceAll(/[^\w.-]+/g, '-').slice(0, 80)}.jsonl`;
  link.click();
  URL.revokeObjectURL(link.href);
}

function isSkipped(article: HTMLElement): boolean {
  const isDetail = article.classList.contains('detail');
  return article.hidden !== false || (isDetail && !document.body.classList.contains('details'));
}

/** Goes to the visible entry before or after the open one. */
function step(direction: 1 | -1): void {
  const start = selected < 0 && direction < 0 ? articles.length : selected;
  let place = start + direction;
  for (let at = articles[place]; at && isSkipped(at); at = articles[place]) place += direction;
  if (articles[place]) goTo(place);
}

const KEYS: Readonly<Record<string, () => void>> = {
  '/': () => {
    if (getComputedStyle(opener).display === 'none') search.focus();
    else openDrawer();
  },
  '?': () => help.showModal(),
  j: () => step(1),
  k: () => step(-1),
  h: () => goTo(data.leaf),
  t: () => toggleFolds('thinking'),
  o: () => toggleFolds('more'),
  d: toggleDetails,
};

function onKey(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === 'Escape') {
    closeDrawer();
    search.blur();
    return;
  }
  const target = event.target instanceof HTMLElement ? event.target : undefined;
  if (target?.closest('input, dialog')) return;
  const row = target && list.contains(target) ? target.closest('li') : null;
  if (row && onRowKey(event.key, row)) {
    event.preventDefault();
    return;
  }
  const key = event.key.toLowerCase();
  const action = Object.hasOwn(KEYS, key) ? KEYS[key] : undefined;
  if (!action) return;
  event.preventDefault();
  action();
}

/** ↑ ↓ move in the tree, ← folds a row or goes to one that folds, → unfolds it. */
function onRowKey(key: string, row: HTMLElement): boolean {
  const button = row.querySelector<HTMLElement>('.fold-row');
  const isOpen = button?.getAttribute('aria-expanded') === 'true';
  const place = Number(button?.dataset['fold'] ?? -1);
  if (key === 'ArrowDown') focusRow(row.nextElementSibling);
  else if (key === 'ArrowUp') focusRow(row.previousElementSibling);
  else if (key === 'ArrowRight') {
    if (button && !isOpen) foldRow(place, false);
  } else if (key === 'ArrowLeft') {
    if (isOpen) foldRow(place, true);
    else focusRow(foldAbove(row));
  } else return false;
  return true;
}

function focusRow(row: Element | null): void {
  row?.querySelector('a')?.focus();
}

function depthOf(row: Element): number {
  return row.querySelectorAll('.rail').length;
}

/** The nearest row above that folds and is not deeper. */
function foldAbove(from: HTMLElement): Element | null {
  let row = from.previousElementSibling;
  while (row && (depthOf(row) > depthOf(from) || !row.querySelector('.fold-row')))
    row = row.previousElementSibling;
  return row;
}

function runSearch(): void {
  setQuery(search.value);
  drawTree();
  markWords(articles[selected]);
}

function listen(): void {
  let timer = 0;
  search.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(runSearch, SEARCH_DELAY_MS);
  });
  search.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter') return;
    clearTimeout(timer);
    runSearch();
    list.querySelector('a')?.click();
  });
  find('.filters').addEventListener('change', drawTree);
  list.addEventListener('click', (event) => {
    const button = event.target instanceof Element ? event.target.closest('.fold-row') : null;
    if (button instanceof HTMLElement) foldRow(Number(button.dataset['fold']));
    const link = event.target instanceof Element ? event.target.closest('a') : null;
    if (!link) return;
    event.preventDefault();
    goTo(Number(link.dataset['place']));
  });
  for (const button of document.querySelectorAll<HTMLElement>('.to-leaf')) {
    button.addEventListener('click', () => goTo(data.leaf));
  }
  for (const button of document.querySelectorAll<HTMLElement>('.toggle')) {
    button.addEventListener('click', () => toggleFolds(button.dataset['folds'] ?? ''));
  }
  find('.show-details').addEventListener('click', toggleDetails);
  find('.save').addEventListener('click', save);
  find('.show-help').addEventListener('click', () => help.showModal());
  find('.close-help').addEventListener('click', () => help.close());
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
