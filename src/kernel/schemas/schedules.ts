import * as z from 'zod';
import { RISKS } from '../core/capability.ts';
import { ISOLATION_RESULTS, ISOLATIONS } from '../core/isolation.ts';

const flag = z.boolean().optional().meta({ problem: 'is {value}, not true or false' });
const text = z.string().min(1).meta({ problem: 'is {value}, not a text', missing: 'is missing' });
const option = text.optional();

const schedule = z
  .strictObject({
    cron: text,
    timezone: text,
    missed: z
      .enum(['skip', 'once', 'all'])
      .optional()
      .meta({ problem: 'is {value}, not one of skip, once, all' }),
    overlap: flag,
    paused: flag,
    since: z
      .string()
      .regex(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,3})?Z$/)
      .optional()
      .meta({ problem: 'is {value}, not a time in UTC such as 2026-12-01T03:00:00Z' }),
    directive: text,
    inputs: z.record(z.string(), z.unknown()).optional().meta({ problem: 'is not a mapping' }),
    model: option,
    provider: option,
    limits: z
      .record(
        z.string(),
        z.number().min(0).meta({ problem: 'is {value}, not a number of 0 or more' }),
      )
      .optional()
      .meta({ problem: 'is not a mapping' }),
    raise_limits: flag,
    acknowledge: z
      .array(
        z
          .string()
          .regex(new RegExp(`^(?:${RISKS.join('|')})(?::.+)?$`))
          .meta({ problem: `is {value}, not one of ${RISKS.join(', ')}` }),
      )
      .optional()
      .meta({ problem: 'is not a list of risks' }),
    allow_unpriced: flag,
    label: option,
    isolation: z
      .strictObject({
        kind: z.enum(ISOLATIONS).meta({ problem: `is {value}, not ${ISOLATIONS.join(', ')}` }),
        result: z
          .enum(ISOLATION_RESULTS)
          .optional()
          .meta({ problem: `is {value}, not one of ${ISOLATION_RESULTS.join(', ')}` }),
      })
      .optional()
      .meta({ problem: 'is not a mapping' }),
    output_schema: z
      .record(z.string(), z.unknown())
      .optional()
      .meta({ problem: 'is not a mapping' }),
  })
  .meta({ problem: 'is not a mapping', missing: 'is missing' });

/** `.ai/config/schedules.yaml` */
export const schedules = z
  .strictObject({
    schedules: z.record(z.string(), schedule).nullish().meta({ problem: 'is not a mapping' }),
  })
  .meta({ problem: 'is not a mapping' });

export type ScheduleEntry = z.infer<typeof schedule>;
export type SchedulesFile = z.infer<typeof schedules>;
