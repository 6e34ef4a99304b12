import type { JsonObject } from '../../core/json.ts';
import type { FromSchema } from '../../tools/tool.ts';

/** A schema of a library, such as zod 4.2 and newer, that describes itself as JSON Schema (the interface Standard Schema). */
export interface DescribedSchema<T = unknown> {
  readonly '~standard': {
    /** Carries the type; has no value. */
    readonly types?: { readonly input: T } | undefined;
    readonly jsonSchema: {
      readonly input: (options: { readonly target: 'draft-2020-12' }) => Record<string, unknown>;
    };
  };
}

/** A schema of outputs: JSON Schema as a value, or a schema of a library. */
export type OutputSchema = JsonObject | DescribedSchema;

/** The type of the values that match a schema. */
export type TypeOfSchema<S> = S extends DescribedSchema<infer T> ? T : FromSchema<S>;

/** The type of a run's outputs: `O` of its directive, and of its `outputSchema` if it has one of a known type. */
export type OutputsWith<O, S> = [S] extends [never]
  ? O
  : string extends keyof S
    ? O
    : [JsonObject] extends [O]
      ? TypeOfSchema<S>
      : O & TypeOfSchema<S>;
