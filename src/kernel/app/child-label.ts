import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { isoTime } from '../core/clock.ts';
import { isRecord, parseJson } from '../core/json.ts';
import { inputsLabel, threadLabel } from '../core/label.ts';
import { isActive, type ThreadRecord } from '../core/thread.ts';
import { threadsFolder } from '../storage/open-registry.ts';

type Labeled = Pick<ThreadRecord, 'directive' | 'parent_id' | 'thread_id'>;

/** The input of a question or conversation that a person knows it by. */
const QUESTIONS: Readonly<Record<string, string>> = {
  'rye/core/ask': 'question',
  'rye/core/chat': 'message',
  'rye/core/plan': 'task',
  'rye/core/build': 'task',
};

/**
 * Adds the label that the thread was started with; of a question or conversation without one, what the person asked first. A child without one gets its directive and its inputs, shortened. They
 * come from its thread.json, in which secrets are `***`. Any other thread stays as it is.
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
  const asked = parent === null ? QUESTIONS[directive] : undefined;
  const hasInputs = parent !== null || asked !== undefined;
  const { label: own, inputs } = documentOf(file, { hasInputs });
  if (typeof own === 'string') return { label: threadLabel(own) };
  const known = isRecord(inputs) ? inputs : {};
  if (parent !== null) return { label: inputsLabel(directive, known) };
  const question = known[asked ?? ''];
  return typeof question === 'string' ? { label: threadLabel(question) } : {};
}

/** Adds the time from which the working time counts to a running thread that has had runs before. */
export function withWorkingTime<T extends ThreadRecord>(
  projectPath: string,
  thread: T,
): T & { readonly working_since?: string } {
  if (!isActive(thread.status)) return thread;
  const file = join(threadsFolder(projectPath), thread.thread_id, 'thread.json');
  const { runs } = documentOf(file, { hasInputs: true });
  const known = Array.isArray(runs) ? runs.filter(isRecord) : [];
  const [before, run] = [known.slice(0, -1), known.at(-1)];
  const started = Date.parse(String(run?.['started_at']));
  if (before.length === 0 || Number.isNaN(started)) return thread;
  const seconds = before.map(({ cost }) => Number(isRecord(cost) && cost['elapsed_seconds']) || 0);
  const total = seconds.reduce((sum, one) => sum + one, 0);
  return { ...thread, working_since: isoTime(started - total * 1000) };
}

function documentOf(
  file: string,
  { hasInputs }: { readonly hasInputs: boolean },
): Readonly<Partial<Record<'label' | 'inputs' | 'runs', unknown>>> {
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
