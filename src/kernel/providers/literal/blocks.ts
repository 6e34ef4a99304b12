import type { ProcessBlock, ProcessStep } from '../../core/plan.ts';

/** A part of a process as a tree, built from the blocks that each step names. */
export type ProcessNode =
  | { readonly kind: 'step'; readonly step: ProcessStep; readonly index: number }
  | {
      readonly kind: 'foreach';
      readonly block: Extract<ProcessBlock, { kind: 'foreach' }>;
      readonly nodes: readonly ProcessNode[];
    }
  | {
      readonly kind: 'if';
      readonly block: Extract<ProcessBlock, { kind: 'if' }>;
      readonly nodes: readonly ProcessNode[];
    };

/** Returns the tree of a process. Steps of one block follow each other. */
export function processTree(steps: readonly ProcessStep[]): readonly ProcessNode[] {
  const indexed = steps.map((step, index) => ({ kind: 'step', step, index }) as const);
  return nest(indexed, 0);
}

type StepNode = Extract<ProcessNode, { kind: 'step' }>;

function nest(steps: readonly StepNode[], depth: number): readonly ProcessNode[] {
  const nodes: ProcessNode[] = [];
  for (let at = 0; at < steps.length; ) {
    const node = steps[at];
    if (!node) break;
    const block = node.step.within?.[depth];
    if (block === undefined) {
      nodes.push(node);
      at += 1;
      continue;
    }
    const end = steps.findIndex(
      ({ step }, index) => index > at && step.within?.[depth]?.id !== block.id,
    );
    const inner = steps.slice(at, end === -1 ? steps.length : end);
    nodes.push({ kind: block.kind, block, nodes: nest(inner, depth + 1) } as ProcessNode);
    at += inner.length;
  }
  return nodes;
}

/** Returns the steps of some nodes in order. */
export function stepsOf(nodes: readonly ProcessNode[]): readonly StepNode[] {
  return nodes.flatMap((node) => (node.kind === 'step' ? [node] : stepsOf(node.nodes)));
}
