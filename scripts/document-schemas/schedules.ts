import { z } from 'zod';
import type { LastFiring, ListedSchedule } from '../../src/kernel/app/api/schedules.ts';
import { THREAD_STATUSES } from '../../src/kernel/core/thread.ts';
import { anyObject, closedDocument, errorInfo, membersOf } from './shared.ts';

const last = z.strictObject(
  membersOf<LastFiring>()({
    at: z.string().nullable().describe('Null for a firing that a person asked for.'),
    fired_at: z.string(),
    thread_id: z.string().nullable().describe('Null if no thread could start.'),
    status: z.enum([...THREAD_STATUSES, 'crashed']).nullable(),
    error: errorInfo.nullable(),
  }),
);

const schedule = z.strictObject(
  membersOf<ListedSchedule>()({
    name: z.string(),
    cron: z.string(),
    timezone: z.string(),
    missed: z.enum(['skip', 'once', 'all']),
    overlap: z.boolean(),
    paused: z.boolean(),
    directive: z.string(),
    inputs: anyObject,
    next_at: z.string().nullable(),
    next_local: z.string().nullable().describe('The next time as the clocks of the zone show it.'),
    last: last.nullable(),
  }),
);

export const scheduleDocuments = {
  schedule: closedDocument(
    'rye schedule add|pause|resume|remove',
    'The schedule as it is, or was before it was removed.',
    { schedule },
  ),
  'schedule-list': closedDocument('rye schedule list', 'The schedules of the project.', {
    schedules: z.array(schedule),
    total: z.int(),
  }),
  'schedule-timer': closedDocument(
    'rye schedule add --print',
    'What a timer of the system needs to run the directive.',
    { timer: z.enum(['cron', 'systemd', 'actions']), text: z.string() },
  ),
};
