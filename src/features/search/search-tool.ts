import type { Reader, SearchPart } from '../../kernel/app/feature.ts';
import type { JsonObject } from '../../kernel/core/json.ts';
import {
  type SearchAnswer,
  type SearchHit,
  SNIPPET_CLOSE,
  SNIPPET_OPEN,
} from '../../kernel/core/search.ts';
import {
  builtinTool,
  READING_TRAITS,
  type Tool,
  type ToolOutput,
  textOutput,
} from '../../kernel/tools/tool.ts';

const DEFAULT_LIMIT = 10;

/** `rye/search`. `data`: `results` (`id`, `title`, `path`, `score`, `snippet`, `signature`, `time`), `total`, `complete`. */
export function createSearchTool(search: SearchPart['items'], reader: Reader): Tool {
  return builtinTool({
    id: 'rye/search',
    description:
      'Full-text search over knowledge: words, "phrases", prefix*, AND OR NOT, fields such as title: tag: after: before:. Exports of earlier threads are searched with include_threads, or when a field directive:, status: or model: is used.',
    properties: {
      query: { type: 'string', minLength: 1 },
      include_threads: {
        type: 'boolean',
        description: 'Search the exports of earlier threads too. Default false.',
      },
      limit: {
        type: 'integer',
        minimum: 1,
        maximum: 100,
        description: `Results. Default ${DEFAULT_LIMIT}.`,
      },
    },
    required: ['query'],
    traits: READING_TRAITS,
    run: async ({ query, include_threads: includeThreads = false, limit = DEFAULT_LIMIT }) =>
      present(
        await search({
          ...reader,
          type: 'knowledge',
          query,
          limit,
          withoutThreads: !includeThreads,
        }),
      ),
  });
}

function present({ results, total, complete, notices }: SearchAnswer): ToolOutput {
  const rows = results.map(rowOf);
  const blocks = results.map(({ verified }, index) => {
    const { id = '', title = '', snippet = '', signature = '' } = rows[index] ?? {};
    return `${id}: ${title}${verified ? '' : ` [${signature}]`}\n  ${snippet}`;
  });
  if (rows.length === 0) blocks.push('No results.');
  else if (total > rows.length)
    blocks.push(`(${rows.length} of ${total} results shown; raise limit)`);
  blocks.push(...notices.map((notice) => `(${notice})`));
  return textOutput(blocks.join('\n'), { results: rows, total, complete });
}

function rowOf(hit: SearchHit) {
  const snippet = hit.snippet
    .replaceAll(SNIPPET_OPEN, '**')
    .replaceAll(SNIPPET_CLOSE, '**')
    .replaceAll(/\s+/g, ' ');
  const row = {
    id: hit.id,
    title: hit.title,
    path: hit.path,
    score: hit.score,
    snippet,
    signature: hit.signature,
    time: hit.time,
  };
  return row satisfies JsonObject;
}
