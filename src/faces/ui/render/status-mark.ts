import type { CostedThread } from '../../../kernel/core/thread.ts';
import type { Colors, Paint } from '../terminal-text.ts';

/** The members of a thread that its state for people depends on. */
export type ThreadState = Pick<CostedThread, 'status' | 'process_gone'> &
  Partial<Pick<CostedThread, 'pid'>>;

/** Returns the state in one word: a thread that waits for a slot is queued, one whose process died is crashed. */
export function stateWord({ status, pid, process_gone: isGone }: ThreadState): string {
  if (isGone === true) return 'crashed';
  return status === 'created' && pid === null ? 'queued' : status;
}

/** Returns the sign of a state, and the color of the sign and the word. */
export function stateMark(
  thread: ThreadState,
  colors: Colors,
): { readonly mark: string; readonly paint: Paint } {
  switch (stateWord(thread)) {
    case 'completed':
      return { mark: '✓', paint: colors.green };
    case 'error':
    case 'crashed':
      return { mark: '✗', paint: colors.red };
    case 'running':
    case 'created':
      return { mark: '●', paint: colors.cyan };
    case 'queued':
      return { mark: '○', paint: colors.dim };
    case 'suspended':
      return { mark: '‖', paint: colors.yellow };
    case 'continued':
      return { mark: '↪', paint: colors.dim };
    default:
      return { mark: '■', paint: colors.yellow };
  }
}

/** Returns what a thread works on: its label, of a child without the name of the directive, which its inputs come after. */
export function workOf({
  label = '',
  directive,
  parent_id: parent,
}: Pick<CostedThread, 'label' | 'directive'> & Partial<Pick<CostedThread, 'parent_id'>>): string {
  const name = directive.split('/').at(-1) ?? '';
  if (label === name) return '';
  const isOfInputs = parent !== null && label.startsWith(`${name} `);
  return (isOfInputs ? label.slice(name.length) : label).trim();
}
