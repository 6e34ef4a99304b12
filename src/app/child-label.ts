import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { isRecord, parseJson } from '../core/json.ts';
import type { ThreadRecord } from '../core/thread.ts';
import { threadsFolder } from '../storage/open-registry.ts';
import type { ThreadTreeNode } from './api/threads.ts';

const MAX_VALUE = 40;
const MAX_LABEL = 80;

/**
 * Adds to a child what it works on: its directive and its inputs, shortened, for display. The inputs come from its
 * thread.json, in which secrets are `***`. A thread without a parent stays as it is.
 */
export function withLabel<T extends ThreadRecord>(projectPath: string, thread: T): T {
  if (thread.parent_id === null) return thread;
  const { directive, thread_id: id } = thread;
  const values = Object.values(inputsOf(join(threadsFolder(projectPath), id, 'thread.json')));
  const texts = values.map((value) =>
    cut(typeof value === 'string' ? value : (JSON.stringify(value) ?? ''), MAX_VALUE),
  );
  const label = [directive.split('/').at(-1), ...texts].join(' ').replaceAll(/\s+/g, ' ');
  return { ...thread, label: cut(label.trim(), MAX_LABEL) };
}

/** Adds the labels of all children below a node. */
export function withLabels(projectPath: string, node: ThreadTreeNode): ThreadTreeNode {
  return {
    ...node,
    thread: withLabel(projectPath, node.thread),
    children: node.children.map((child) => withLabels(projectPath, child)),
  };
}

function inputsOf(file: string): Record<string, unknown> {
  try {
    const document = parseJson(readFileSync(file, 'utf8'));
    const inputs = isRecord(document) ? document['inputs'] : undefined;
    return isRecord(inputs) ? inputs : {};
  } catch {
    // a child of another store, or one that has not begun
    return {};
  }
}

function cut(text: string, length: number): string {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}
