import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { isRecord, parseJson } from '../core/json.ts';
import { inputsLabel, threadLabel } from '../core/label.ts';
import type { ThreadRecord } from '../core/thread.ts';
import { threadsFolder } from '../storage/open-registry.ts';

type Labeled = Pick<ThreadRecord, 'directive' | 'parent_id' | 'thread_id'>;

/**
 * Adds the label that the thread was started with. A child without one gets its directive and its inputs, shortened. They
 * come from its thread.json, in which secrets are `***`. A thread without a parent and a label stays as it is.
 */
export function withLabel<T extends Labeled>(
  projectPath: string,
  thread: T,
): T & { readonly label?: string } {
  return { ...thread, ...labelOfThread(projectPath, thread) };
}

/** Returns the label of {@link withLabel} alone. */
export function labelOfThread(projectPath: string, thread: Labeled): { readonly label?: string } {
  const { directive, parent_id: parent, thread_id: id } = thread;
  const file = join(threadsFolder(projectPath), id, 'thread.json');
  const { label: own, inputs } = documentOf(file, { hasInputs: parent !== null });
  if (typeof own === 'string') return { label: threadLabel(own) };
  if (parent === null) return {};
  return { label: inputsLabel(directive, isRecord(inputs) ? inputs : {}) };
}

function documentOf(
  file: string,
  { hasInputs }: { readonly hasInputs: boolean },
): Readonly<Partial<Record<'label' | 'inputs', unknown>>> {
  try {
    const text = readFileSync(file, 'utf8');
    // a list reads many of them, and most roots have no label
    if (!hasInputs && !text.includes('"label"')) return {};
    const document = parseJson(text);
    return isRecord(document) ? document : {};
  } catch {
    // a thread of another store, or one that has not begun
    return {};
  }
}
