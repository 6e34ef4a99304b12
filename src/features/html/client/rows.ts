// The rows of the tree: which entries, in which order, with which lines.

/** A row of the tree. */
export interface Row {
  readonly place: number;
  /** The lines before it: `pass` │, `tee` ├, `last` └, `gap`. */
  readonly rails: readonly string[];
  /** True for a row at which a person can fold the tree. */
  readonly folds: boolean;
}

/** Hangs each shown entry on the nearest shown one before it. */
export function linksOf(entries: readonly { readonly parent: number }[], shown: readonly number[]) {
  const isShown = new Uint8Array(entries.length);
  for (const place of shown) isShown[place] = 1;
  const anchors: number[] = [];
  const children = new Map<number, number[]>();
  const sizes = new Uint32Array(entries.length);
  for (const [place, { parent }] of entries.entries()) {
    const above = anchors[parent] ?? -1;
    anchors.push(isShown[place] === 1 ? place : above);
    if (isShown[place] !== 1) continue;
    const siblings = children.get(above);
    if (siblings) siblings.push(place);
    else children.set(above, [place]);
  }
  for (let place = entries.length - 1; place >= 0; place -= 1) {
    const below = children.get(place) ?? [];
    sizes[place] = below.reduce((sum, child) => sum + (sizes[child] ?? 0) + 1, 0);
  }
  return { anchors, children, sizes };
}

/** The rows depth first, the branch of the head first at each fork. */
export function layOut(
  children: ReadonlyMap<number, readonly number[]>,
  leafPath: ReadonlySet<number>,
  isFolded: (place: number) => boolean,
): readonly Row[] {
  const rows: Row[] = [];
  const stack: { place: number; rails: readonly string[]; rail: string; isRoot: boolean }[] = [];
  const push = (parent: number, rails: readonly string[]): void => {
    const below = children.get(parent) ?? [];
    const sorted = [
      ...below.filter((place) => leafPath.has(place)),
      ...below.filter((place) => !leafPath.has(place)),
    ];
    const isFork = sorted.length > 1 && parent >= 0;
    for (const [index, place] of sorted.entries()) {
      const rail = !isFork ? '' : index === sorted.length - 1 ? 'last' : 'tee';
      stack.push({ place, rails, rail, isRoot: parent < 0 });
    }
    // the first sibling has to be on top
    stack.push(...stack.splice(stack.length - sorted.length).toReversed());
  };
  push(-1, []);
  for (let next = stack.pop(); next; next = stack.pop()) {
    const { place, rails, rail, isRoot } = next;
    const below = children.get(place) ?? [];
    const isEdge = rail !== '' || isRoot || below.length > 1;
    const own = rail === '' ? rails : [...rails, rail];
    rows.push({ place, rails: own, folds: isEdge && below.length > 0 });
    if (isFolded(place)) continue;
    push(place, rail === '' ? rails : [...rails, rail === 'tee' ? 'pass' : 'gap']);
  }
  return rows;
}
