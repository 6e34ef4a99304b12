import type { NewSchedule, ScheduledRun } from '../../kernel/app/api/schedules.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import { compact } from '../../kernel/core/json.ts';
import type { ThreadPlan } from '../../kernel/core/plan.ts';
import type { ScheduleEntry } from '../../kernel/schemas/schedules.ts';
import type { DirectiveRequest } from '../../kernel/threads/prepare/request.ts';

/** Returns a new schedule as the file keeps it. `since`: times before it do not count. */
export function entryOf(schedule: NewSchedule, since?: string): ScheduleEntry {
  const { cron, timezone = 'UTC', missed, overlap, run } = schedule;
  const { inputs = {}, limits = {}, acknowledge = [], isolation } = run;
  return compact({
    cron,
    timezone,
    missed,
    overlap: overlap || undefined,
    since,
    directive: run.directiveId,
    inputs: Object.keys(inputs).length === 0 ? undefined : { ...inputs },
    model: run.model,
    provider: run.provider,
    limits: Object.keys(limits).length === 0 ? undefined : { ...limits },
    raise_limits: run.raiseLimits || undefined,
    acknowledge: acknowledge.length === 0 ? undefined : [...acknowledge],
    allow_unpriced: run.allowUnpriced || undefined,
    label: run.label,
    isolation: isolation && { ...isolation },
    output_schema: run.outputSchema && { ...run.outputSchema },
  }) as ScheduleEntry;
}

/** Returns the request for a thread of a schedule. It has no parent, and all of its items have to be signed. */
export function requestOf(entry: ScheduleEntry): DirectiveRequest {
  const request = {
    directiveId: entry.directive,
    inputs: entry.inputs,
    model: entry.model,
    provider: entry.provider,
    limits: entry.limits,
    raiseLimits: entry.raise_limits,
    acknowledge: entry.acknowledge,
    allowUnpriced: entry.allow_unpriced,
    label: entry.label,
    isolation: entry.isolation,
    outputSchema: entry.output_schema,
    parentThreadId: '',
  };
  return compact(request) as DirectiveRequest;
}

/** Throws if a plan cannot be kept: a secret would be in a file, or an item counts only in this developer's shell. */
export function assertKeepable(plan: ThreadPlan, { inputs = {} }: ScheduledRun): void {
  const secret = plan.secret_inputs.find((name) => Object.hasOwn(inputs, name));
  if (secret !== undefined) {
    throw new RyeError(
      'usage',
      `the input ${secret} is secret, and a schedule is a readable file`,
      {
        hint: 'Have the directive or its tools read the value from the environment of the loop.',
      },
    );
  }
  if (plan.integrity === 'verified') return;
  throw new RyeError('unsigned', `${plan.directive.id} uses items that are not signed`, {
    hint: `Sign them first: rye sign directive ${plan.directive.id}`,
  });
}
