import { EXIT, RyeError } from '../core/errors.ts';
import { aliasOf, THREAD_DIRECTIVE, wireName } from '../core/ids.ts';
import { isJsonObject, type JsonObject, type JsonValue, parseJson } from '../core/json.ts';
import { nearNames } from '../core/text.ts';
import { coerceInput } from './coerce.ts';
import type { Resolution, ResolvedCall, Tool, ToolSet } from './tool.ts';

/** Names that the loop itself answers. */
const RESERVED_NAMES: ReadonlySet<string> = new Set(['rye_directive_return', 'directive_return']);
const EXECUTE_ID = 'rye/execute';
/** Maximum nesting of rye_execute. */
const MAX_LOOK_THROUGH = 4;

export interface ToolSetOptions {
  /** Every tool that the thread may call by name, offered or deferred. */
  readonly tools: readonly Tool[];
  /** Wire names that differ from the flattened id, by canonical id. */
  readonly names?: Readonly<Record<string, string>>;
  /** Loads and verifies a tool that is not among them, for `rye_execute`; undefined when there is none. */
  readonly loadTool: (id: string) => Promise<Tool | undefined>;
}

/** Builds the tool set of a thread; throws `wire_name_collision` when two tools would share a name. */
export function createToolSet({ tools, names = {}, loadTool }: ToolSetOptions): ToolSet {
  const byName = indexByName(tools, names);
  const byId = new Map(tools.map((tool) => [tool.id, tool]));
  const exact = (name: string) => byName.get(name) ?? byId.get(name) ?? byName.get(wireName(name));
  const find = (name: string) => exact(name) ?? exact(aliasOf('tool', name) ?? '');
  const unknown = (name: string): Resolution => ({
    kind: 'unknown',
    near: nearNames(wireName(name), byName.keys()),
  });

  // rye has its own meaning for this id, so a copy of Rye OS's tool without a trusted signature stops nothing
  const loaded = async (id: string): Promise<Tool | undefined> => {
    try {
      return await loadTool(id);
    } catch (error) {
      const isCopy = error instanceof RyeError && error.exitCode === EXIT.integrity;
      if (id === THREAD_DIRECTIVE && isCopy) return undefined;
      throw error;
    }
  };

  const resolve = async (name: string, given: JsonObject, depth: number): Promise<Resolution> => {
    const tool = find(name);
    if (tool === undefined) return unknown(name);
    if (tool.id !== EXECUTE_ID) return { kind: 'resolved', call: callOf(tool, given) };
    // what "true" means is decided as it is when the call runs
    const { input } = coerceInput(tool.inputSchema, given);
    const target = toolTarget(input);
    if (target === undefined) return { kind: 'resolved', call: callOf(tool, input) };
    const known = find(target.id);
    const inner = known ?? (await loaded(target.id));
    if (inner === undefined && target.id === THREAD_DIRECTIVE && depth < MAX_LOOK_THROUGH) {
      return resolve(EXECUTE_ID, startOf(target.parameters ?? {}), depth + 1);
    }
    if (inner === undefined || depth >= MAX_LOOK_THROUGH)
      return { kind: 'unknown', near: nearNames(target.id, byId.keys()), id: target.id };
    if (target.parameters === undefined || input['async'] === true) {
      return {
        kind: 'resolved',
        call: startOfTool(callOf(inner, target.parameters ?? {}), tool, input),
      };
    }
    return inner.id === EXECUTE_ID
      ? resolve(inner.id, target.parameters, depth + 1)
      : { kind: 'resolved', call: callOf(inner, target.parameters) };
  };
  return { resolve: (name, input) => resolve(name, input, 0) };
}

/**
 * The gates judge the tool that is meant, and validation of the outer call refuses unusable parameters; an asynchronous run is
 * started by the outer tool.
 */
function startOfTool(starts: ResolvedCall, tool: Tool, input: JsonObject): ResolvedCall {
  return { tool, input, need: starts.need, starts };
}

/** The call of `rye_execute` that a call of Rye OS's thread_directive means. */
function startOf(parameters: JsonObject): JsonObject {
  const { directive_name, directive_id, directive, inputs, ...rest } = parameters;
  const id = directive_name ?? directive_id ?? directive ?? '';
  return { ...rest, item_type: 'directive', item_id: id, parameters: parametersOf(inputs) ?? {} };
}

function indexByName(
  tools: readonly Tool[],
  names: Readonly<Record<string, string>>,
): ReadonlyMap<string, Tool> {
  const byName = new Map<string, Tool>();
  for (const tool of tools) {
    const name = names[tool.id] ?? wireName(tool.id);
    const other = byName.get(name);
    if (other !== undefined || RESERVED_NAMES.has(name)) {
      throw new RyeError(
        'wire_name_collision',
        `the tool ${tool.id} would share the name ${name} with ${other?.id ?? 'a tool of rye'}`,
        {
          hint: 'Grant only one of them, or rename one.',
          details: { name, tools: [other?.id ?? name, tool.id] },
        },
      );
    }
    byName.set(name, tool);
  }
  return byName;
}

function callOf(tool: Tool, input: JsonObject): ResolvedCall {
  const need = tool.need?.(input) ?? { verb: 'execute', item_type: 'tool', item_id: tool.id };
  return { tool, input, need };
}

/** Returns the tool that an execute call names; `parameters` is undefined unless they are an object or its JSON. */
function toolTarget(
  input: JsonObject,
): { readonly id: string; readonly parameters: JsonObject | undefined } | undefined {
  const { item_type: type, item_id: id, parameters } = input;
  if (type !== 'tool' || typeof id !== 'string' || id === '') return undefined;
  return { id, parameters: parametersOf(parameters) };
}

function parametersOf(value: JsonValue | undefined): JsonObject | undefined {
  if (value === undefined || value === null) return {};
  const parsed = typeof value === 'string' ? parseJson(value) : value;
  return isJsonObject(parsed) ? parsed : undefined;
}
