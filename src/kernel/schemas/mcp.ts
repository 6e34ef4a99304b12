import * as z from 'zod';

const seconds = (member: string) =>
  z
    .number()
    .positive()
    .max(86_400)
    .nullish()
    .meta({ problem: `${member} is not a number of seconds above 0 and up to 86400` });
const flag = (member: string) =>
  z
    .boolean()
    .nullish()
    .meta({ problem: `${member} is neither true nor false` });
const texts = (member: string) =>
  z
    .record(z.string(), z.string().meta({ problem: 'is not text' }))
    .nullish()
    .meta({ problem: `${member} is not a mapping of texts` });

const settings = {
  enabled: flag('enabled'),
  disclosure: z
    .enum(['eager', 'lazy'])
    .optional()
    .meta({ problem: 'disclosure is {value}, neither eager nor lazy' }),
  timeout_seconds: seconds('timeout_seconds'),
  connect_timeout_seconds: seconds('connect_timeout_seconds'),
  trust_annotations: flag('trust_annotations'),
  parallel: flag('parallel'),
  type: z
    .enum(['stdio', 'http', 'streamable-http'])
    .optional()
    .meta({ problem: 'its type is {value}, not one of stdio, http, streamable-http' }),
};
/** Members of the other transport: they are allowed and ignored. */
const ignored = z.unknown().optional();

export const stdioServer = z.strictObject({
  ...settings,
  command: z.string().min(1).meta({ problem: 'it has neither a command nor a url' }),
  args: z.array(z.string()).optional().meta({ problem: 'args is not a list of texts' }),
  env: texts('env'),
  url: ignored,
  headers: ignored,
});

export const httpServer = z.strictObject({
  ...settings,
  command: ignored,
  args: ignored,
  env: ignored,
  url: z.string().meta({ problem: 'its url is not an http or https address' }),
  headers: texts('headers'),
});

export type StdioServerFile = z.infer<typeof stdioServer>;
export type HttpServerFile = z.infer<typeof httpServer>;
