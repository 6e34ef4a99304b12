import type { JsonObject, JsonValue } from '../core/json.ts';
import type { ToolContext, ToolOutput, ToolTraits } from '../tools/tool.ts';
import type { LibraryTool } from './presets.ts';

/** The type of the values that a JSON Schema allows, for `type`, `enum`, `properties`, `required` and `items`. */
export type FromSchema<S> = S extends { readonly enum: readonly (infer E)[] }
  ? E
  : S extends { readonly type: 'string' }
    ? string
    : S extends { readonly type: 'number' | 'integer' }
      ? number
      : S extends { readonly type: 'boolean' }
        ? boolean
        : S extends { readonly type: 'null' }
          ? null
          : S extends { readonly type: 'array' }
            ? readonly (S extends { readonly items: infer I } ? FromSchema<I> : JsonValue)[]
            : S extends { readonly type: 'object'; readonly properties: infer P }
              ? ObjectOf<P, RequiredOf<S>>
              : S extends { readonly type: 'object' }
                ? JsonObject
                : JsonValue;

type RequiredOf<S> = S extends { readonly required: readonly (infer R)[] } ? R : never;

type ObjectOf<P, R> = {
  readonly [N in keyof P as N extends R ? N : never]: FromSchema<P[N]>;
} & { readonly [N in keyof P as N extends R ? never : N]?: FromSchema<P[N]> };

/** A tool whose input is typed by its schema. With `outputSchema`, its result is typed too. */
export interface ToolDeclaration<I, O> {
  readonly description: string;
  /** JSON Schema of the parameters, of type object. */
  readonly inputSchema: I;
  /** JSON Schema of the result. For types only: the result is not checked against it at run time. */
  readonly outputSchema?: O;
  readonly traits?: Partial<ToolTraits>;
  execute(
    input: FromSchema<I>,
    context: ToolContext,
  ): Promise<ToolOutput | FromSchema<O>> | FromSchema<O>;
}

/** Returns a tool for `openRye({ tools })` or a preset; `execute` gets an input of the type that the schema declares. */
export function defineTool<const I extends JsonObject, const O = unknown>(
  declaration: ToolDeclaration<I, O>,
): LibraryTool {
  const { outputSchema: _outputSchema, ...tool } = declaration;
  // the pipeline validates the input against the schema; `FromSchema` is its type
  return tool as unknown as LibraryTool;
}
