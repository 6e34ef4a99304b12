import { type JsonObject, type JsonValue, toText } from './json.ts';
import type { ProcessBlock, ProcessCall, ProcessStep } from './plan.ts';
import { withProcessValues } from './process-values.ts';

/**
 * Formats a process for readers: one line for each call, indented below the lists and conditions around it. `values` are
 * the values of its references.
 */
export function processLines(
  steps: readonly ProcessStep[],
  values: JsonObject = {},
): readonly string[] {
  const fill: Fill = (value) => withProcessValues(value, values);
  const lines: string[] = [];
  let open: readonly ProcessBlock[] = [];
  for (const { name, description, calls, within = [] } of steps) {
    for (const [depth, block] of within.entries()) {
      if (open[depth]?.id === block.id && open[depth]?.kind === block.kind) continue;
      lines.push(`${'  '.repeat(depth)}${blockText(block, fill)}`);
      open = within.slice(0, depth + 1);
    }
    open = within;
    const indent = '  '.repeat(within.length);
    const about = toText(fill(description)).trim().replaceAll(/\s+/g, ' ');
    const called = calls.map((call) => callText(call, fill));
    lines.push(`${indent}- ${name}: ${[about, ...called].filter(Boolean).join('; ')}`);
  }
  return lines;
}

type Fill = (value: JsonValue) => JsonValue;

function blockText(block: ProcessBlock, fill: Fill): string {
  if (block.kind === 'if') return `If ${block.text}:`;
  const { item, in: list, parallel, on_error: onError } = block;
  const at = parallel === 1 ? 'one at a time' : `up to ${parallel} at once`;
  const failing = onError === 'continue' ? ', continue after errors' : '';
  return `For each ${item} in ${toText(fill(list))} (${at}${failing}):`;
}

function callText(
  { primary, item_type: type, item_id: id, params }: ProcessCall,
  fill: Fill,
): string {
  const given = isEmpty(params) ? '' : ` with ${JSON.stringify(fill(params))}`;
  return `${primary} ${type} ${toText(fill(id))}${given}`;
}

function isEmpty(params: JsonObject): boolean {
  return Object.keys(params).length === 0;
}
