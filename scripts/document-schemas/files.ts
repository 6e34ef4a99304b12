import { z } from 'zod';
import { behavior } from '../../src/kernel/schemas/behavior.ts';
import { payloads } from '../../src/kernel/schemas/events.ts';
import { hookFile, hooks } from '../../src/kernel/schemas/hooks.ts';
import { httpServer, stdioServer } from '../../src/kernel/schemas/mcp.ts';
import { plugins } from '../../src/kernel/schemas/plugins.ts';
import { policy, riskTable, trust } from '../../src/kernel/schemas/policy.ts';
import { providerFile } from '../../src/kernel/schemas/provider.ts';
import { schedules } from '../../src/kernel/schemas/schedules.ts';
import { settings } from '../../src/kernel/schemas/settings.ts';
import { describeDocuments, type Schema } from './describe.ts';

type JsonSchema = z.core.JSONSchema.BaseSchema;

/** Declarations that values are checked against at run time, by the name of their file in src/kernel/schemas. */
const CHECKED = {
  behavior,
  events: payloads,
  hooks,
  'mcp-http': httpServer,
  'mcp-stdio': stdioServer,
  plugins,
  policy,
  provider: providerFile,
  schedules,
  settings,
};

/** Files that docs/schemas describes: the name there, the title and the declaration. */
const DESCRIBED = [
  [
    'config/behavior',
    'Behavior of a thread: <behavior>, and behavior in .ai/config/agent/resilience.yaml',
    behavior,
  ],
  ['config/hook', 'A hook: <hook>, and in the files of hooks in .ai/config/agent', hookFile],
  ['config/mcp-http', 'An HTTP server in .ai/config/mcp.yaml', httpServer],
  [
    'config/mcp-stdio',
    'A server with standard input and output in .ai/config/mcp.yaml',
    stdioServer,
  ],
  ['config/capability_risk', '.ai/config/agent/capability_risk.yaml', riskTable],
  ['config/trust', '.ai/config/trust.yaml', trust],
  ['config/plugins', '.ai/config/plugins.yaml', plugins],
  ['config/schedules', '.ai/config/schedules.yaml', schedules],
  ['config/provider', '.ai/config/agent/providers/NAME.yaml', providerFile],
  ['log/entries', 'Payloads of the entries in transcript.jsonl, by event type', payloads],
] as const;

/** Returns all generated files by path from the root of the repository. */
export function schemaFiles(): ReadonlyMap<string, string> {
  const documents = describeDocuments(new URL('documents.ts', import.meta.url));
  return new Map([
    ...[...documents].map(([name, schema]): [string, string] => [
      `docs/schemas/${name}.json`,
      textOf(schema),
    ]),
    ...DESCRIBED.map(([name, title, schema]): [string, string] => [
      `docs/schemas/${name}.json`,
      textOf(jsonSchema(schema.meta({ title }), withoutMessages)),
    ]),
    ...Object.entries(settings.shape).map(([name, schema]): [string, string] => [
      `docs/schemas/config/${name.replace('agent/', '')}.json`,
      textOf(jsonSchema(schema.meta({ title: `.ai/config/${name}.yaml` }), withoutMessages)),
    ]),
    ...Object.entries(CHECKED).map(([name, schema]): [string, string] => {
      const { $schema: _dialect, ...rest } = jsonSchema(schema);
      return [`src/kernel/schemas/${name}.json`, textOf(rest)];
    }),
  ]);
}

function textOf(schema: JsonSchema | Schema): string {
  return `${JSON.stringify(schema, null, 2)}\n`;
}

function jsonSchema(schema: z.ZodType, edit?: (node: JsonSchema) => void): JsonSchema {
  // as input, an object that zod does not call strict may have more members
  const { $schema, title, description, ...rest } = z.toJSONSchema(schema, {
    io: 'input',
    override: ({ jsonSchema: node }) => {
      simplify(node);
      edit?.(node);
    },
  });
  const head = Object.entries({ $schema, title, description });
  return { ...Object.fromEntries(head.filter(([, text]) => text !== undefined)), ...rest };
}

/** Removes what only the messages of rye need. */
function withoutMessages(node: JsonSchema): void {
  delete node['problem'];
  delete node['missing'];
  delete node['hint'];
}

/** Removes keywords that allow everything, and writes nullable as a list of types instead of as an alternative. */
function simplify(node: JsonSchema): void {
  if (node.minimum === Number.MIN_SAFE_INTEGER) delete node.minimum;
  if (node.maximum === Number.MAX_SAFE_INTEGER) delete node.maximum;
  const { propertyNames } = node;
  if (typeof propertyNames === 'object' && Object.keys(propertyNames).length === 1) {
    delete node.propertyNames;
  }
  for (const key of ['items', 'additionalProperties'] as const) {
    const value = node[key];
    if (typeof value === 'object' && Object.keys(value).length === 0) delete node[key];
  }
  const [first, second, third] = node.anyOf ?? [];
  if (typeof first !== 'object' || typeof second !== 'object' || third !== undefined) return;
  if (second.type !== 'null' || typeof first.type !== 'string') return;
  simplify(first);
  delete node.anyOf;
  const names = first.enum ? { enum: [...first.enum, null] } : {};
  Object.assign(node, { ...first, ...names, type: [first.type, 'null'] });
}
