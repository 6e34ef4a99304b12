import { EXIT, ignoredWarning, RyeError, toRyeError } from '../../core/errors.ts';
import type { ContextBlock, PlanSource } from '../../core/plan.ts';
import { assertIdentity } from '../../items/binding.ts';
import type { Composed } from '../../items/extends.ts';
import { parseKnowledge } from '../../items/knowledge.ts';
import { isNeighborId, readNeighborRules } from '../../items/neighbor-rules-fs.ts';
import type { Preparing } from '../ports.ts';
import { sourceOf } from './directive.ts';
import { OPTIONAL_HINT } from './policy.ts';

/** Loads and verifies the knowledge that the chain names, without suppressed entries. */
export async function loadContext(
  env: Preparing,
  { context, suppress }: Composed,
): Promise<{
  readonly blocks: readonly ContextBlock[];
  readonly sources: readonly PlanSource[];
  readonly warnings: readonly string[];
}> {
  const blocks: ContextBlock[] = [];
  const sources: PlanSource[] = [];
  const warnings: string[] = [];
  for (const position of ['system', 'before', 'after'] as const) {
    for (const { id, origin, optional } of context[position]) {
      if (suppress.includes(id)) continue;
      try {
        const { block, source, warning } = await contextEntry(env, position, id);
        blocks.push(block);
        if (source) sources.push(source);
        if (warning !== undefined) warnings.push(warning);
      } catch (error) {
        const refusal = contextRefusal(error, id, origin);
        if (optional !== true) throw refusal;
        const isIgnored = toRyeError(error).exitCode === EXIT.integrity;
        const warning = isIgnored ? ignoredWarning(refusal) : refusal.message;
        if (isIgnored) env.onNotice(warning);
        warnings.push(warning);
      }
    }
  }
  return { blocks, sources, warnings };
}

interface ContextEntry {
  readonly block: ContextBlock;
  /** Absent for unsigned rules of other programs, whose text only the plan keeps. */
  readonly source?: PlanSource;
  readonly warning?: string;
}

async function contextEntry(
  { items, projectPath }: Preparing,
  position: ContextBlock['position'],
  id: string,
): Promise<ContextEntry> {
  try {
    const item = await items.load('knowledge', id, 'context');
    const { body, name, category } = parseKnowledge(item.text, item.path);
    assertIdentity(item, { name, category });
    const block = { position, id, source: item.path, content: body.trim() };
    return { block, source: sourceOf(item) };
  } catch (error) {
    if (!isNeighborId(id) || toRyeError(error).code !== 'item_not_found') throw error;
  }
  const { content, paths } = readNeighborRules(projectPath, id);
  if (position === 'system') {
    throw new RyeError(
      'unsigned',
      `${id} is unsigned text, which has no place in the system prompt`,
      {
        hint: 'Name it in <before> or <after>.',
      },
    );
  }
  const files = paths.join(', ');
  return {
    block: { position, id, source: files, content },
    warning: `the context ${id} is unsigned text, and the prompt calls it that: ${files}`,
  };
}

/** Returns the refusal of a context entry. A signature that does not hold keeps the code of its fault. */
function contextRefusal(thrown: unknown, id: string, origin: string): RyeError {
  const error = toRyeError(thrown);
  const { code, exitCode, hint = '', details } = error;
  const isFault = exitCode === EXIT.integrity && code !== 'unsigned';
  const message = `${origin}: the context ${id} cannot be used: ${error.message}`;
  return new RyeError(isFault ? code : 'tool_unavailable', message, {
    hint: isFault ? hint : `${hint} ${OPTIONAL_HINT}`.trim(),
    details: isFault ? details : { ...details, reason: code },
    cause: error,
  });
}
