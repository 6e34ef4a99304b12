import { isJsonObject, type JsonObject } from '../../kernel/core/json.ts';

/**
 * The `details` of a summary of pi: its file lists under rye's names. What an extension of pi wrote stays as it is:
 * pi does not count its lists either, because they may mean anything.
 */
export function importedDetails({ details, fromHook }: JsonObject): { details?: JsonObject } {
  const given = isJsonObject(details) ? details : undefined;
  if (fromHook === true) return { details: { ...given, from_hook: true } };
  return given
    ? {
        details: renamed(given, [
          ['readFiles', 'read_files'],
          ['modifiedFiles', 'changed_files'],
        ]),
      }
    : {};
}

/** The reverse: members of an entry of pi. `fromHook` is only written for a summary of a hook. */
export function exportedDetails(details: JsonObject | undefined): {
  readonly details?: JsonObject;
  readonly fromHook?: true;
} {
  if (!details) return {};
  const { from_hook: fromHook, ...given } = details;
  if (fromHook === true) return { details: given, fromHook };
  return {
    details: renamed(given, [
      ['read_files', 'readFiles'],
      ['changed_files', 'modifiedFiles'],
    ]),
  };
}

function renamed(members: JsonObject, names: readonly (readonly [string, string])[]): JsonObject {
  const to = new Map(names);
  return Object.fromEntries(
    Object.entries(members).map(([name, value]) => [to.get(name) ?? name, value]),
  );
}
