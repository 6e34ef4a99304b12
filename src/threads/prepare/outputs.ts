import { RyeError, toRyeError } from '../../core/errors.ts';
import type { JsonObject } from '../../core/json.ts';
import type { OutputDeclaration, PlanSource } from '../../core/plan.ts';
import { assertIdentity } from '../../items/binding.ts';
import type { Composed } from '../../items/extends.ts';
import { parseKnowledge } from '../../items/knowledge.ts';
import { findFence } from '../../items/markdown.ts';
import { parseSchema, SchemaProblem, typeOfSchema } from '../../items/output-schema.ts';
import type { Preparation, Sources } from '../ports.ts';
import { sourceOf } from './directive.ts';

/** The outputs of a plan with their schemas, and the entries that these come from. */
export interface PlannedOutputs {
  readonly outputs: readonly OutputDeclaration[];
  readonly sources: readonly PlanSource[];
}

/** Loads the schemas that outputs name by id, and compiles all schemas. An unusable one refuses the run. */
export async function planOutputs(
  env: Pick<Sources, 'items'> & Pick<Preparation, 'checkSchema'>,
  { outputs, origins }: Pick<Composed, 'outputs' | 'origins'>,
): Promise<PlannedOutputs> {
  const planned: OutputDeclaration[] = [];
  const sources: PlanSource[] = [];
  for (const output of outputs) {
    const { name, schema_id: id } = output;
    const origin = origins[`outputs.${name}`] ?? '';
    let { schema } = output;
    if (id !== undefined) {
      const item = await env.items.load('knowledge', id, 'context');
      const entry = parseKnowledge(item.text, item.path);
      assertIdentity(item, entry);
      schema = schemaIn(entry.body, `${item.path}: the schema ${id}`);
      sources.push(sourceOf(item));
    }
    if (schema) await assertCompiles(env, name, schema, origin);
    planned.push(schema ? { ...output, schema, ...typed(output, schema) } : output);
  }
  return { outputs: planned, sources };
}

/** An output that names its schema by id gets the type from it. */
function typed(
  { schema_id: id }: OutputDeclaration,
  schema: JsonObject,
): Partial<OutputDeclaration> {
  return id === undefined ? {} : { type: typeOfSchema(schema) };
}

/** Returns the schema of an entry: its first block of JSON, else its whole text. */
function schemaIn(body: string, what: string): JsonObject {
  try {
    return parseSchema(findFence(body, ['json'])?.content ?? body);
  } catch (error) {
    if (!(error instanceof SchemaProblem)) throw error;
    throw new RyeError('directive_malformed', `${what} cannot be used: ${error.message}`, {
      hint: 'Put one JSON Schema object between a line ```json and a line ```.',
    });
  }
}

async function assertCompiles(
  { checkSchema }: Pick<Preparation, 'checkSchema'>,
  name: string,
  schema: JsonObject,
  origin: string,
): Promise<void> {
  try {
    await checkSchema({ type: 'object', properties: { [name]: schema } });
  } catch (error) {
    const { message, hint } = toRyeError(error);
    const text = `${origin}: the schema of the output "${name}": ${message}`;
    throw new RyeError('directive_malformed', text, { hint, cause: error });
  }
}
