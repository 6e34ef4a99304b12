import { RyeError } from '../../kernel/core/errors.ts';
import { didYouMean } from '../../kernel/core/text.ts';

/** Short names of the tools of `rye ask` and `rye chat`. */
export const READ_ONLY_TOOLS = ['read', 'ls', 'glob', 'grep', 'search'] as const;

/** Returns the IDs of the tools that `--tools` names; all of them without the option. Throws `usage` for others. */
export function readOnlyTools(names: string | undefined, command: string): readonly string[] {
  const wanted =
    names === undefined ? READ_ONLY_TOOLS : names.split(',').map((name) => name.trim());
  for (const name of wanted) {
    if (READ_ONLY_TOOLS.some((known) => known === name)) continue;
    throw new RyeError('usage', `--tools: unknown tool ${JSON.stringify(name)}`, {
      hint:
        didYouMean(name, READ_ONLY_TOOLS) ??
        `${command} only reads. Use some of: ${READ_ONLY_TOOLS.join(', ')}.`,
    });
  }
  return wanted.map(idOf);
}

function idOf(name: string): string {
  return name === 'search' ? 'rye/search' : `rye/file-system/${name}`;
}

const ONLY_READ: ReadonlySet<string> = new Set(
  READ_ONLY_TOOLS.map((name) => `rye.execute.tool.${idOf(name).replaceAll('/', '.')}`),
);

/** True if a capability lets a model execute nothing but a tool that reads. */
export function onlyReads(capability: string): boolean {
  return !capability.startsWith('rye.execute.') || ONLY_READ.has(capability);
}
