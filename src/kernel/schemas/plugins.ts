import * as z from 'zod';
import { PLUGIN_MEMBERS } from '../core/plugin.ts';

const plugin = z
  .strictObject({
    file: z.string().min(1).meta({ problem: 'is {value}, not a path', missing: 'is missing' }),
    sha256: z
      .string()
      .regex(/^[0-9a-f]{64}$/)
      .meta({ problem: 'is {value}, not the SHA-256 of the file', missing: 'is missing' }),
    may: z
      .array(
        z
          .enum(PLUGIN_MEMBERS)
          .meta({ problem: `is {value}, not one of ${PLUGIN_MEMBERS.join(', ')}` }),
      )
      .meta({ problem: 'is not a list of members', missing: 'is missing' }),
  })
  .meta({ problem: 'is not a mapping' });

/** `.ai/config/plugins.yaml` */
export const plugins = z
  .strictObject({ plugins: z.array(plugin).nullish().meta({ problem: 'is not a list' }) })
  .meta({ problem: 'is not a mapping' });

export type PluginEntry = z.infer<typeof plugin>;
export type PluginsFile = z.infer<typeof plugins>;
