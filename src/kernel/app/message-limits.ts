import { LIMIT_NAMES, type PartialLimits } from '../core/limits.ts';
import type { ThreadDetails } from './api/threads.ts';

/**
 * Returns the limits of one more message of a conversation. It may use the turns, tokens, time and children that the
 * thread started with; the money stays the total of the thread, so `spend` is not among them.
 */
export function messageLimits({ document }: Pick<ThreadDetails, 'document'>): PartialLimits {
  if (document === null) return {};
  return withoutSpend(document.runs?.[0]?.limits ?? document.limits);
}

/** The limits of a thread's start that each message of a conversation is granted. */
export function withoutSpend(limits: Readonly<Record<string, unknown>>): PartialLimits {
  // money and depth are of the whole thread
  const granted = LIMIT_NAMES.filter((name) => name !== 'spend' && name !== 'depth');
  return Object.fromEntries(
    granted.flatMap((name) => {
      const value = limits[name];
      return typeof value === 'number' ? [[name, value]] : [];
    }),
  );
}
