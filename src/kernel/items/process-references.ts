import type { SourceLocation } from '../core/errors.ts';
import { conditionPaths } from '../core/hook.ts';
import { isRecord, type JsonValue } from '../core/json.ts';
import type { OutputDeclaration, ProcessBlock, ProcessStep } from '../core/plan.ts';
import { didYouMean } from '../core/text.ts';

/** The members of a directive that name steps, inputs and the items of lists. */
interface Referring {
  readonly steps: readonly ProcessStep[];
  readonly outputs: readonly OutputDeclaration[];
  /** Names of the inputs; empty: the directive declares none, and takes any. */
  readonly inputs: readonly string[];
  /** Places of members as `file:line`, by dotted path. */
  readonly origins: Readonly<Record<string, string>>;
}

/** A reference to what the directive does not have. */
export interface LostReference {
  readonly message: string;
  readonly hint: string;
  readonly location: SourceLocation;
}

/** The names that a reference can begin with at one place. */
interface Scope {
  readonly steps: readonly string[];
  readonly inputs: readonly string[];
  readonly items: readonly string[];
}

/** Members of the result of a step. */
const RESULT = ['text', 'data', 'results', 'errors'];

/**
 * Returns the references to steps, inputs and items that a directive does not have: a condition on one of them would always
 * be false, so that the steps that it guards are skipped or run unasked.
 */
export function lostReferences({
  steps,
  outputs,
  inputs,
  origins,
}: Referring): readonly LostReference[] {
  const names = steps.map(({ name }) => name);
  const lost: LostReference[] = [];
  const check = (what: string, paths: readonly string[], scope: Scope, origin: string): void => {
    for (const path of paths) {
      const problem = problemOf(path, scope);
      if (problem)
        lost.push({ ...problem, message: `${what} ${problem.message}`, location: placeOf(origin) });
    }
  };
  const seen = new Set<ProcessBlock>();
  for (const [at, step] of steps.entries()) {
    const items: string[] = [];
    for (const block of step.within ?? []) {
      const scope = { steps: names.slice(0, block.id), inputs, items: [...items] };
      const what = block.kind === 'if' ? `the condition "${block.text}"` : '<foreach>';
      if (!seen.has(block)) check(what, pathsOf(block), scope, block.origin);
      seen.add(block);
      if (block.kind === 'foreach') items.push(block.item, `${block.item}_index`);
    }
    const scope = { steps: names.slice(0, at), inputs, items };
    const paths = step.calls.flatMap(({ item_id: id, params, options }) =>
      referencesIn([id, params, options ?? null]),
    );
    check(`the step "${step.name}"`, paths, scope, step.origin);
  }
  for (const { name, from = '' } of outputs) {
    const origin = origins[`outputs.${name}`] ?? '';
    check(`the output "${name}"`, referencesIn(from), { steps: names, inputs, items: [] }, origin);
  }
  return lost;
}

function pathsOf(block: ProcessBlock): readonly string[] {
  if (block.kind === 'if') return conditionPaths(block.condition);
  if (typeof block.in !== 'string') return [];
  return [...block.in.matchAll(/\$\{\s*([^{}\s]+)\s*\}/g)].map(([, path = '']) => path);
}

/** References in the texts of a value; anything else in braces is the text's own, such as `${HOME}` in a command. */
function referencesIn(value: JsonValue): readonly string[] {
  if (typeof value === 'string') {
    const found = value.matchAll(/\$\{\s*((?:steps|inputs)\.[^{}\s]+)\s*\}/g);
    return [...found].map(([, path = '']) => path);
  }
  if (Array.isArray(value)) return value.flatMap(referencesIn);
  return isRecord(value) ? Object.values(value as object).flatMap(referencesIn) : [];
}

function problemOf(
  path: string,
  { steps, inputs, items }: Scope,
): { readonly message: string; readonly hint: string } | undefined {
  const [root = '', name = '', member = ''] = path
    .split('.')
    .map((part) => part.replace(/\[.*$/, ''));
  if (items.includes(root)) return undefined;
  if (root === 'steps') {
    if (!steps.includes(name)) return missing(`the step "${name}"`, name, steps);
    return member === '' || RESULT.includes(member)
      ? undefined
      : missing(`"${path}"`, member, RESULT);
  }
  if (root !== 'inputs') return missing(`"${path}"`, root, ['steps', 'inputs', ...items]);
  return inputs.length === 0 || inputs.includes(name)
    ? undefined
    : missing(`the input "${name}"`, name, inputs);
}

function missing(what: string, given: string, known: readonly string[]) {
  return {
    message: `refers to ${what}, which does not exist there`,
    hint: didYouMean(given, known) ?? `There: ${known.join(', ') || 'none'}.`,
  };
}

function placeOf(origin: string): SourceLocation {
  const [, path = origin, line] = /^(.*):(\d+)$/s.exec(origin) ?? [];
  return line === undefined ? { path } : { path, line: Number(line) };
}
