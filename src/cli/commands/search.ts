import { EXIT, type ExitCode, RyeError } from '../../core/errors.ts';
import { SPACES } from '../../core/ids.ts';
import { compact } from '../../core/json.ts';
import { type SearchHit, SNIPPET_CLOSE, SNIPPET_OPEN } from '../../core/search.ts';
import { readNamedFile } from '../files.ts';
import {
  flagOption,
  type Invocation,
  numberOption,
  requiredArgument,
  textOption,
} from '../invocation.ts';
import type { Io } from '../io.ts';
import { parseSearchType } from '../item-arguments.ts';
import { colorsOf, count, displayPath, printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';
import { neutralise, oneLine } from '../terminal-text.ts';

const CONTEXT_LINES = 3;

/** `rye search <type|all> <query>`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const type = parseSearchType(requiredArgument(invocation, 0, 'type'));
  const query = requiredArgument(invocation, 1, 'query');
  const limit = numberOption(invocation, 'limit');
  if (limit === 0) throw new RyeError('usage', '--limit 0: at least one result must be asked for');
  const space = SPACES.find((name) => name === textOption(invocation, 'space'));
  const since = textOption(invocation, 'since');
  const { results, total } = await withRye(invocation, io, (rye) =>
    rye.items.search(type, query, compact({ limit, space, since })),
  );
  const wantsContext = flagOption(invocation, 'context');
  const contexts = await Promise.all(
    results.map(async (hit) => (wantsContext ? contextOf(hit, io) : undefined)),
  );
  if (invocation.global.json) {
    const documents = results.map((hit, index) =>
      compact({ ...hit, snippet: marked(hit.snippet, bold), context: contexts[index] }),
    );
    printDocument(io, { success: true, query, results: documents, total });
    return EXIT.ok;
  }
  const colors = colorsOf(io.stdout, io, invocation.global);
  for (const [index, hit] of results.entries()) {
    printLine(io, oneLine(`${hit.type} ${hit.id} (${hit.space}) ${hit.title}`));
    printLine(io, `  ${displayPath(hit.path, io)}`);
    const context = contexts[index];
    printLine(
      io,
      context === undefined
        ? `  ${marked(oneLine(hit.snippet), colors.isColorSupported ? colors.bold : bold)}`
        : indent(neutralise(context)),
    );
  }
  if (!invocation.global.quiet) io.stderr.write(`${count(total, 'result')}\n`);
  return EXIT.ok;
}

function bold(text: string): string {
  return `**${text}**`;
}

/** Replaces the private marks around matches by what a reader can see. */
function marked(snippet: string, mark: (text: string) => string): string {
  return snippet
    .split(SNIPPET_OPEN)
    .map((part, index) => {
      const end = part.indexOf(SNIPPET_CLOSE);
      if (index === 0 || end === -1) return part.replaceAll(SNIPPET_CLOSE, '');
      return mark(part.slice(0, end)) + part.slice(end + 1);
    })
    .join('');
}

/** The lines around the first match in the file; undefined where the file or the match is gone. */
async function contextOf(hit: SearchHit, io: Io): Promise<string | undefined> {
  const open = hit.snippet.indexOf(SNIPPET_OPEN);
  if (open === -1) return undefined;
  const match = hit.snippet.slice(open + 1, hit.snippet.indexOf(SNIPPET_CLOSE, open)).toLowerCase();
  const file = await readNamedFile(hit.path, hit.id, io).catch(() => undefined);
  const lines = file?.toString('utf8').split(/\r?\n/) ?? [];
  const at = lines.findIndex((line) => line.toLowerCase().includes(match));
  if (at === -1) return undefined;
  return lines.slice(Math.max(0, at - CONTEXT_LINES), at + CONTEXT_LINES + 1).join('\n');
}

function indent(text: string): string {
  return text
    .split('\n')
    .map((line) => `  ${line}`)
    .join('\n');
}
