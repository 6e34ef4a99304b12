import type { JsonObject } from './json.ts';
import { toText } from './json.ts';
import type { ProcessBlock, ProcessCall, ProcessStep } from './plan.ts';

/** Formats a process for readers: one line for each call, indented below the lists and conditions around it. */
export function processLines(steps: readonly ProcessStep[]): readonly string[] {
  const lines: string[] = [];
  let open: readonly ProcessBlock[] = [];
  for (const { name, description, calls, within = [] } of steps) {
    for (const [depth, block] of within.entries()) {
      if (open[depth]?.id === block.id && open[depth]?.kind === block.kind) continue;
      lines.push(`${'  '.repeat(depth)}${blockText(block)}`);
      open = within.slice(0, depth + 1);
    }
    open = within;
    const indent = '  '.repeat(within.length);
    const about = description.trim().replaceAll(/\s+/g, ' ');
    lines.push(`${indent}- ${name}: ${[about, ...calls.map(callText)].filter(Boolean).join('; ')}`);
  }
  return lines;
}

function blockText(block: ProcessBlock): string {
  if (block.kind === 'if') return `If ${block.text}:`;
  const { item, in: list, parallel, on_error: onError } = block;
  const at = parallel === 1 ? 'one at a time' : `up to ${parallel} at once`;
  const failing = onError === 'continue' ? ', continue after errors' : '';
  return `For each ${item} in ${toText(list)} (${at}${failing}):`;
}

function callText({ primary, item_type: type, item_id: id, params }: ProcessCall): string {
  return `${primary} ${type} ${id}${isEmpty(params) ? '' : ` with ${JSON.stringify(params)}`}`;
}

function isEmpty(params: JsonObject): boolean {
  return Object.keys(params).length === 0;
}
