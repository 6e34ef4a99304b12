import type { JsonObject } from '../../core/json.ts';
import type { FromSchema, ToolContext, ToolOutput, ToolTraits } from '../../tools/tool.ts';
import type { LibraryTool } from '../presets.ts';

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
  ): Promise<ToolOutput | FromSchema<O> | undefined> | FromSchema<O> | undefined;
}

/** Returns a tool for `openRye({ tools })` or a preset; `execute` gets an input of the type that the schema declares. */
export function defineTool<const I extends JsonObject, const O = unknown>(
  declaration: ToolDeclaration<I, O>,
): LibraryTool {
  const { outputSchema: _outputSchema, ...tool } = declaration;
  // the pipeline validates the input against the schema; `FromSchema` is its type
  return tool as unknown as LibraryTool;
}
