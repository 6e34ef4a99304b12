import { z } from 'zod';
import { itemDocuments } from './items.ts';
import { runDocuments } from './runs.ts';
import { sessionDocuments } from './sessions.ts';
import { threadDocuments } from './threads.ts';
import { workspaceDocuments } from './workspace.ts';

/** Returns the JSON Schemas of all documents by file name, as docs/schemas holds them. */
export function schemaFiles(): ReadonlyMap<string, string> {
  const documents = {
    ...itemDocuments,
    ...runDocuments,
    ...sessionDocuments,
    ...threadDocuments,
    ...workspaceDocuments,
  };
  return new Map(
    Object.entries(documents).map(([name, schema]) => [`${name}.json`, jsonSchema(schema)]),
  );
}

function jsonSchema(schema: z.ZodType): string {
  // as input, an object that zod does not call strict may have more members
  const { $schema, title, description, ...rest } = z.toJSONSchema(schema, {
    io: 'input',
    override: simplify,
  });
  return `${JSON.stringify({ $schema, title, description, ...rest }, null, 2)}\n`;
}

/** Removes keywords that allow everything, and writes nullable as a list of types instead of as an alternative. */
function simplify({
  jsonSchema: node,
}: {
  readonly jsonSchema: z.core.JSONSchema.BaseSchema;
}): void {
  if (node.minimum === Number.MIN_SAFE_INTEGER) delete node.minimum;
  if (node.maximum === Number.MAX_SAFE_INTEGER) delete node.maximum;
  delete node.propertyNames;
  for (const key of ['items', 'additionalProperties'] as const) {
    const value = node[key];
    if (typeof value === 'object' && Object.keys(value).length === 0) delete node[key];
  }
  const [first, second] = node.anyOf ?? [];
  if (typeof first !== 'object' || typeof second !== 'object' || second.type !== 'null') return;
  simplify({ jsonSchema: first });
  delete node.anyOf;
  Object.assign(node, { ...first, type: [first.type, 'null'] });
}
