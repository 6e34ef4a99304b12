import { expect, it } from 'vitest';
import type { EventDraft, LogEvent } from '../../src/kernel/core/events.ts';
import { raisedLimits, runsOf } from '../../src/kernel/log/runs.ts';
import { SHIPPED_LIMITS } from '../../src/kernel/policy/limits.ts';
import { logOf } from '../loop/scripted.ts';

const begun = { limits: { ...SHIPPED_LIMITS }, provider: 'p', model: 'm' };

function started(sha256: string): EventDraft {
  const facts = { directive: 'd', integrity: 'verified', inputs: {} };
  return { event_type: 'thread_started', payload: { ...begun, ...facts, plan_sha256: sha256 } };
}

function again(run: number, sha256: string): EventDraft {
  const facts = { run, reason: 'resumed', from_entry: null } as const;
  return { event_type: 'run_started', payload: { ...begun, ...facts, plan_sha256: sha256 } };
}

const raise = (limit: 'spend' | 'turns', to: number): EventDraft => ({
  event_type: 'limit_raised',
  payload: { limit, to },
});

function log(...drafts: readonly EventDraft[]): readonly LogEvent[] {
  return logOf().append(drafts);
}

it('keeps what was raised over runs, until a plan has it', () => {
  const raises = [started('a'), raise('spend', 6), raise('turns', 30)];
  expect(raisedLimits(log(started('a')))).toEqual({});
  expect(raisedLimits(log(...raises))).toEqual({ spend: 6, turns: 30 });
  expect(raisedLimits(log(...raises, again(2, 'a'), raise('spend', 7)))).toEqual({
    spend: 7,
    turns: 30,
  });
  // a person granted something: the plan has all of it
  expect(raisedLimits(log(...raises, again(2, 'b'), raise('turns', 40)))).toEqual({ turns: 40 });
});

it('lists a run with the limits that it had in the end', () => {
  const header = { thread_id: 't', created_at: '' } as Parameters<typeof runsOf>[0];
  const runs = runsOf(header, log(started('a'), raise('spend', 6)));
  expect(runs).toMatchObject([{ limits: { ...SHIPPED_LIMITS, spend: 6 } }]);
});
