import { RyeError } from '../core/errors.ts';
import { type Condition, conditionPaths } from '../core/hook.ts';
import type { ThreadResult } from '../core/thread.ts';
import { parseConditionText } from '../items/process-blocks.ts';
import { evaluate, explain } from '../policy/condition.ts';

/** A condition on the result of a run, which then counts as failed. */
export interface FailIf {
  readonly text: string;
  readonly condition: Condition;
}

/** A path of the outputs outside of a quoted text, such as `.verdict`. */
const OUTPUT_PATH = /("(?:[^"\\]|\\.)*"|'[^']*')|(?<=^|[\s(])\.(?=[A-Za-z_])/g;

/**
 * Reads a condition such as `.verdict == "changes" or cost.spend > 1`: a path with a dot at its beginning is one of the outputs,
 * any other one of the result. Throws `usage`.
 */
export function parseFailIf(text: string): FailIf {
  const condition = parseConditionText(
    text.replaceAll(
      OUTPUT_PATH,
      (found, quoted?: string) => quoted ?? found.replace('.', 'outputs.'),
    ),
  );
  if (!('problem' in condition)) return { text, condition };
  throw new RyeError('usage', `--fail-if ${JSON.stringify(text)}: ${condition.problem}`, {
    hint: `Write a condition such as --fail-if '.verdict == "changes"'.`,
  });
}

/**
 * Returns why the condition holds; undefined if it does not. Throws `usage` for a value that the result lacks: a check that can't
 * be made has not passed.
 */
export function failure({ text, condition }: FailIf, result: ThreadResult): string | undefined {
  const tested = new Set(pathsOfExists(condition));
  const missing = conditionPaths(condition, 'exists').find(
    (path) => !tested.has(path) && !evaluate({ path, op: 'exists' }, result),
  );
  if (missing !== undefined) {
    const path = missing.replace(/^outputs\./, '.');
    const names = Object.keys(result.outputs ?? {});
    throw new RyeError('usage', `--fail-if ${JSON.stringify(text)}: the result has no ${path}`, {
      hint:
        names.length === 0
          ? 'The run has no outputs.'
          : `Its outputs are ${names.join(', ')}. For one that may be missing: ${path} exists and ${text}`,
    });
  }
  const { result: holds, because } = explain(condition, result);
  return holds
    ? because.map((node) => node.text.replaceAll(/\boutputs\./g, '.')).join('; ')
    : undefined;
}

function pathsOfExists(condition: Condition): readonly string[] {
  if ('any' in condition) return condition.any.flatMap(pathsOfExists);
  if ('all' in condition) return condition.all.flatMap(pathsOfExists);
  if ('not' in condition) return pathsOfExists(condition.not);
  return condition.op === 'exists' ? [condition.path] : [];
}
