import { type SignableType, SPACES, type Space } from '../core/ids.ts';
import type { FindOptions, FoundFile, ListedItem, ListOptions, Spaces } from './spaces-fs.ts';

/** Skills of this id that are not used; they are not read, for one of them may be broken. */
function shadowsIn(
  places: readonly { readonly space: Space; readonly each: Spaces }[],
  id: string,
): FoundFile['shadows'] {
  return places.flatMap(({ space, each }) =>
    each
      .list('skill', { space })
      .filter((item) => item.id === id)
      .map(({ path }) => ({ space, path })),
  );
}

/**
 * The spaces with the skills of another program beside rye's own. In each space rye's own come first, so a project's
 * skill shadows a user's wherever the two stand.
 */
export function withForeignSkills(own: Spaces, foreign: Spaces): Spaces {
  const find = (
    type: SignableType,
    id: string,
    options: FindOptions = {},
  ): FoundFile | undefined => {
    if (type !== 'skill') return own.find(type, id, options);
    const spaces = options.space === undefined ? SPACES : [options.space];
    const places = spaces.flatMap((space) => [own, foreign].map((each) => ({ space, each })));
    for (const [index, { space, each }] of places.entries()) {
      const found = each.find(type, id, { space });
      const isWanted = options.path === undefined || found?.path === options.path;
      if (found && isWanted) return { ...found, shadows: shadowsIn(places.slice(index + 1), id) };
    }
    return undefined;
  };
  const list = (type: SignableType, options: ListOptions = {}): readonly ListedItem[] => {
    if (type !== 'skill') return own.list(type, options);
    const { space, ...rest } = options;
    const all = SPACES.flatMap((each) => [
      ...own.list(type, { ...rest, space: each }),
      ...foreign.list(type, { ...rest, space: each }),
    ]);
    const winners = new Map<string, Space>();
    const listed = all.map((item): ListedItem => {
      const winner = winners.get(item.id);
      if (winner === undefined) winners.set(item.id, item.space);
      return { ...item, shadowedBy: winner ?? null };
    });
    return listed
      .filter((item) => space === undefined || item.space === space)
      .toSorted((a, b) => (a.id === b.id ? 0 : a.id < b.id ? -1 : 1));
  };
  return {
    root: (space) => own.root(space),
    find,
    list,
    locate: (type, id, space) =>
      own.locate(type, id, space) ??
      (type === 'skill' ? foreign.locate(type, id, space) : undefined),
    misnamed: (type, space) => own.misnamed(type, space),
  };
}
