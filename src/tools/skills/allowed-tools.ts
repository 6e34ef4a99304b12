/** Tools of other programs, by the names that skills use for them. */
const FOREIGN: Readonly<Record<string, string>> = {
  Bash: 'rye/bash',
  Read: 'rye/file-system/read',
  Write: 'rye/file-system/write',
  Edit: 'rye/file-system/edit',
  MultiEdit: 'rye/file-system/multi_edit',
  LS: 'rye/file-system/ls',
  Glob: 'rye/file-system/glob',
  Grep: 'rye/file-system/grep',
};

/**
 * The tool that an entry such as `Read`, `Bash(git:*)`, `mcp__memory__read_graph` or `rye/bash` means; undefined for
 * tools that rye does not have. What stands in parentheses narrows how another program asks, and names no other tool.
 */
function toolIdOf(entry: string): string | undefined {
  const name = entry.replace(/\(.*$/, '');
  if (Object.hasOwn(FOREIGN, name)) return FOREIGN[name];
  const [, server, tool] = /^mcp__([^_](?:.*?[^_])?)__(.+)$/.exec(name) ?? [];
  if (server !== undefined && tool !== undefined) return `mcp/${server}/${tool}`;
  return name.includes('/') ? name : undefined;
}

/** The tools that a list of entries means, each once. */
export function toolIdsOf(entries: readonly string[]): readonly string[] {
  return [...new Set(entries.flatMap((entry) => toolIdOf(entry) ?? []))];
}
