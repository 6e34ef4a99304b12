import { createHash } from 'node:crypto';
import type { ThreadPlan } from '../../core/plan.ts';

/** The text of a plan as it is stored and handed over; members keep their order through a JSON round trip. */
export function planText(plan: ThreadPlan): string {
  return JSON.stringify(plan);
}

/** SHA-256 hex of a plan's text: thread.json names it, so that nobody runs or resumes another plan. */
export function planHash(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
