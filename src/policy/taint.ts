/** What a tool brings into a thread, as far as its traits and its id tell. */
export interface TaintedTool {
  readonly id: string;
  /** Reaches other systems, so it brings in text that anybody may have written, and can carry text out. */
  readonly network: boolean;
}

/** Built-in tools that show the model what is in files and knowledge. */
const READERS = new Set([
  'rye/file-system/read',
  'rye/file-system/grep',
  'rye/file-system/edit',
  'rye/search',
  'rye/bash',
]);

/** How such a sentence begins. */
const TAINT = 'taint: ';

/** Whether a warning of a plan is a taint note: what its author has chosen, not what went wrong. */
export function isTaintNote(warning: string): boolean {
  return warning.startsWith(TAINT);
}

/**
 * One sentence when a thread holds all of private data, untrusted content and an outward channel, else undefined:
 * whoever writes the untrusted text can then ask for the private data. (Known as the lethal trifecta, S. Willison.)
 */
export function taintNote(
  tools: readonly TaintedTool[],
  capabilities: readonly string[],
): string | undefined {
  const outward = tools.filter(({ network }) => network).map(({ id }) => id);
  const readers = tools.filter(({ id }) => READERS.has(id)).map(({ id }) => id);
  const fetches = capabilities.filter((one) => one === 'rye.*' || one.startsWith('rye.fetch.'));
  if (outward.length === 0 || (readers.length === 0 && fetches.length === 0)) return undefined;
  return `${TAINT}it reads private data (${shown([...readers, ...fetches])}), and through ${shown(outward)} it sees text that anybody may have written and can send data out; text that it reads could make it leak what it knows`;
}

function shown(names: readonly string[]): string {
  const unique = [...new Set(names)];
  const rest = unique.length - 3;
  return rest > 0 ? `${unique.slice(0, 3).join(', ')} and ${rest} more` : unique.join(', ');
}
