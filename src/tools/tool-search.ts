import { wireName } from '../core/ids.ts';
import type { JsonObject } from '../core/json.ts';
import { didYouMean, escapeXml } from '../core/text.ts';
import type { DisclosableTool } from './disclosure.ts';
import type { Tool, ToolOutput } from './tool.ts';
import { errorOutput, textOutput } from './tool.ts';

export const TOOL_SEARCH_ID = 'tool_search';
const DEFAULT_LIMIT = 5;

/**
 * `tool_search`: finds deferred tools by wire name or id, by words or by MCP server, unlocks them for the run and returns their
 * schemas. `unlocked` holds canonical ids; the run owns it and its gate reads it. `aliases` are the names
 * that the model knows them by. `data`: `tools` (wire names).
 */
export function createToolSearch(
  deferred: readonly DisclosableTool[],
  unlocked: Set<string>,
  aliases: ReadonlyMap<string, string> = new Map(),
): Tool {
  return {
    id: TOOL_SEARCH_ID,
    description:
      'Loads the schemas of deferred tools, by names, by words of a query or by their server. A deferred tool can be called afterwards.',
    inputSchema: {
      type: 'object',
      properties: {
        names: { type: 'array', items: { type: 'string' }, description: 'Names as listed.' },
        query: { type: 'string', description: 'Words to look for in names and descriptions.' },
        server: { type: 'string', description: 'An MCP server: only its tools are looked at.' },
        limit: {
          type: 'integer',
          minimum: 1,
          maximum: 50,
          description: `Default ${DEFAULT_LIMIT}.`,
        },
      },
      additionalProperties: false,
    },
    traits: {
      reads_only: true,
      idempotent: true,
      network: false,
      sequential: false,
      timeout_seconds: 10,
    },
    execute: (input) => Promise.resolve(search({ deferred, unlocked, aliases }, input)),
  };
}

interface Searched {
  readonly deferred: readonly DisclosableTool[];
  readonly unlocked: Set<string>;
  readonly aliases: ReadonlyMap<string, string>;
}

function search({ deferred, unlocked, aliases }: Searched, input: JsonObject): ToolOutput {
  const { names, query, server, limit } = input;
  const wanted = Array.isArray(names) ? names.filter((name) => typeof name === 'string') : [];
  const words = typeof query === 'string' ? wordsOf(query) : [];
  const isOfServer = typeof server === 'string';
  if (wanted.length === 0 && words.length === 0 && !isOfServer) {
    return errorOutput('Provide names, query or server.', { code: 'invalid_input' });
  }
  const named = deferred.filter(({ name }) =>
    wanted.some((want) => wireName(want) === name || want === aliases.get(name)),
  );
  const searched = isOfServer
    ? deferred.filter(({ id }) => id.startsWith(`mcp/${server}/`))
    : deferred;
  const isWhole = isOfServer && words.length === 0 && wanted.length === 0;
  const ranked = searched
    .map((tool) => ({ tool, score: isWhole ? 1 : scoreOf(tool, words) }))
    .filter(({ tool, score }) => score > 0 && !named.includes(tool))
    .toSorted((a, b) => b.score - a.score)
    .slice(0, typeof limit === 'number' ? limit : DEFAULT_LIMIT);
  const found = [...named, ...ranked.map(({ tool }) => tool)];
  if (found.length === 0) {
    const near = didYouMean(
      wanted[0] ?? words[0] ?? '',
      searched.map(({ name }) => name),
    );
    return errorOutput(['No deferred tool matches.', near].filter(Boolean).join(' '), {
      code: 'item_not_found',
    });
  }
  for (const { id } of found) unlocked.add(id);
  const shown = found.map((tool) => ({ ...tool, name: aliases.get(tool.name) ?? tool.name }));
  return textOutput(render(shown), { tools: found.map(({ name }) => name) });
}

function wordsOf(text: string): string[] {
  return text
    .toLowerCase()
    .split(/[^\p{L}\p{N}]+/u)
    .filter((word) => word !== '');
}

/** Words in the name weigh twice. */
function scoreOf({ name, description }: DisclosableTool, words: readonly string[]): number {
  const inName = new Set(wordsOf(name.replaceAll('_', ' ')));
  const all = description.toLowerCase();
  let score = 0;
  for (const word of words) {
    if (inName.has(word)) score += 2;
    else if (name.toLowerCase().includes(word) || all.includes(word)) score += 1;
  }
  return score;
}

function render(tools: readonly DisclosableTool[]): string {
  const blocks = tools.map(({ name, description, input_schema: schema }) => {
    const json = JSON.stringify(schema).replaceAll('<', '\\u003c');
    return `<tool name="${escapeXml(name)}">\n<description>${escapeXml(description)}</description>\n<input_schema>${json}</input_schema>\n</tool>`;
  });
  return `<tool_search_results>\n${blocks.join('\n')}\n</tool_search_results>`;
}
