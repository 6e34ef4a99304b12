import { EXIT, type ExitCode, RyeError } from '../../core/errors.ts';
import { SPACES } from '../../core/ids.ts';
import { compact } from '../../core/json.ts';
import { SNIPPET_CLOSE, SNIPPET_OPEN } from '../../core/search.ts';
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
  const contextLines = flagOption(invocation, 'context') ? CONTEXT_LINES : undefined;
  const { results, total, complete, notices } = await withRye(invocation, io, (rye) =>
    rye.items.search(type, query, compact({ limit, space, since, contextLines })),
  );
  if (invocation.global.json) {
    const documents = results.map((hit) => ({ ...hit, snippet: marked(hit.snippet, bold) }));
    printDocument(io, { success: true, query, results: documents, total, complete, notices });
    return EXIT.ok;
  }
  const colors = colorsOf(io.stdout, io, invocation.global);
  for (const { context, ...hit } of results) {
    const where = hit.verified ? hit.space : `${hit.space}, ${hit.signature}`;
    printLine(io, oneLine(`${hit.type} ${hit.id} (${where}) ${hit.title}`));
    printLine(io, `  ${displayPath(hit.path, io)}`);
    printLine(
      io,
      context === undefined
        ? `  ${marked(oneLine(hit.snippet), colors.isColorSupported ? colors.bold : bold)}`
        : indent(neutralise(context)),
    );
  }
  for (const notice of notices) io.stderr.write(`rye: warning: ${notice}\n`);
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

function indent(text: string): string {
  return text
    .split('\n')
    .map((line) => `  ${line}`)
    .join('\n');
}
