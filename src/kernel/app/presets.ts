import { mergeBehavior } from '../core/behavior.ts';
import type { AcceptedRisk } from '../core/capability.ts';
import { RyeError } from '../core/errors.ts';
import type { LogEvent, UnknownEvent } from '../core/events.ts';
import { assertItemId } from '../core/ids.ts';
import { compact, isRecord, type JsonObject, type JsonValue } from '../core/json.ts';
import type { PartialLimits } from '../core/limits.ts';
import { composeHandlers, type HandlerLists, type HandlerMap } from '../hooks/handlers.ts';
import { unknownBehavior } from '../loop/behavior.ts';
import type { DirectiveRequest } from '../threads/prepare/request.ts';
import {
  CAUTIOUS_TRAITS,
  type Tool,
  type ToolContext,
  type ToolOutput,
  type ToolTraits,
  textOutput,
} from '../tools/tool.ts';
import type { ApprovalAttendant } from './api/approvals.ts';
import type { DefinedDirective } from './api/directives.ts';
import type { McpServerOptions } from './api/mcp.ts';
import { type ProgramBehavior, programBehavior } from './program-behavior.ts';

/** A tool that is a function of the program that rye is a part of. A directive has to grant it like any other. */
export interface LibraryTool {
  readonly description: string;
  /** JSON Schema of the parameters, of type object. */
  readonly inputSchema: JsonObject;
  /** Omitted traits take the cautious value: it changes things, uses the network, and its risk is elevated. */
  readonly traits?: Partial<ToolTraits>;
  /** Gets coerced and valid parameters. The model sees what it returns, and what it throws as an error. */
  execute(
    input: JsonObject,
    context: ToolContext,
  ): Promise<ToolOutput | JsonValue | undefined> | JsonValue | undefined;
}

/**
 * A reusable part of a run's options. In every member, and for single names in `limits`, `inputs`, `tools`, and the
 * named maps of `behavior`, null unsets the value of an earlier preset; in `behavior` also that of the directive.
 */
export interface Preset {
  /** The label of the threads, unless the request has one. */
  readonly name?: string | null;
  /** Text at the end of the system text. No key signs it, so the threads are `unverified`. */
  readonly system?: string | null;
  readonly model?: string | null;
  readonly provider?: string | null;
  readonly limits?: { readonly [N in keyof PartialLimits]?: PartialLimits[N] | null };
  readonly inputs?: JsonObject;
  readonly behavior?: ProgramBehavior;
  readonly acknowledge?: readonly AcceptedRisk[];
  readonly allowUnpriced?: boolean | null;
  readonly outputSchema?: JsonObject | null;
  readonly handlers?: HandlerMap;
  /** By id, such as `shop/price`. */
  readonly tools?: Readonly<Record<string, LibraryTool | null>>;
  /** Directives from code. One replaces a file and an earlier one of the same id. */
  readonly directives?: readonly DefinedDirective[];
  /** MCP servers by name, in the shape of `servers` in mcp.yaml. One replaces a configured server of the same name. */
  readonly mcpServers?: Readonly<Record<string, McpServerOptions | null>> | null;
  /** Absolute paths of skill folders that the program vouches for. One replaces a skill of the same id. */
  readonly skills?: readonly string[] | null;
}

const MEMBERS: ReadonlySet<string> = new Set([
  'name',
  'system',
  'model',
  'provider',
  'limits',
  'inputs',
  'behavior',
  'acknowledge',
  'allowUnpriced',
  'outputSchema',
  'handlers',
  'tools',
  'directives',
  'mcpServers',
  'skills',
] satisfies (keyof Preset)[]);

/**
 * Composes presets into one. Scalars: the last preset that sets one wins. `limits`, `inputs`, `tools`, `mcpServers`: name by
 * name. `behavior`: member by member, its named maps name by name. `acknowledge`, `directives`, `skills`: the union. `handlers`: all of an event, in
 * the order of the presets. Throws `hook_invalid` for a handler of an unknown event, `usage` for an unknown member.
 */
export function composePresets(...presets: readonly Preset[]): Preset {
  const composed = presets.reduce<Preset>((below, preset) => {
    assertMembers(preset);
    return {
      ...below,
      ...definedMembers(preset),
      ...mergedMaps('limits', below, preset),
      ...mergedMaps('inputs', below, preset),
      ...mergedMaps('tools', below, preset),
      ...mergedMaps('mcpServers', below, preset),
      ...(below.behavior && preset.behavior
        ? { behavior: mergedBehavior(below.behavior, preset.behavior) }
        : {}),
      ...(below.directives && preset.directives
        ? { directives: [...below.directives, ...preset.directives] }
        : {}),
      ...(below.skills && preset.skills ? { skills: [...below.skills, ...preset.skills] } : {}),
      ...(below.acknowledge && preset.acknowledge
        ? { acknowledge: [...new Set([...below.acknowledge, ...preset.acknowledge])] }
        : {}),
    };
  }, {});
  const handlers = composeHandlers(...presets.map((preset) => preset.handlers ?? {}));
  return Object.keys(handlers).length === 0 ? composed : { ...composed, handlers };
}

function mergedBehavior(below: ProgramBehavior, above: ProgramBehavior): ProgramBehavior {
  const merged: object = mergeBehavior(below as JsonObject, above as JsonObject);
  return merged;
}

/** Returns the handlers of a preset, with the functions of its behavior. */
export function presetHandlers({ handlers = {}, behavior }: Preset): HandlerLists {
  return composeHandlers(handlers, programBehavior(behavior).handlers);
}

/** A request whose behavior is data alone. */
export type FoldedRequest = Omit<ExecuteDirectiveRequest, 'behavior'> &
  Pick<DirectiveRequest, 'behavior'>;

/**
 * Returns the request with its presets folded in: its own members win over its preset, which wins over `base`.
 * The preset that remains has the handlers, tools and directives of all.
 */
export function foldPresets(base: Preset, request: ExecuteDirectiveRequest): FoldedRequest {
  const own = Object.fromEntries(Object.entries(request).filter(([name]) => MEMBERS.has(name)));
  const composed = composePresets(base, request.preset ?? {}, own);
  const { handlers: _handlers, tools, directives, behavior, ...named } = composed;
  const { mcpServers, skills, name, ...members } = named;
  const handlers = presetHandlers(composed);
  const { replayFrom, preset: _folded, behavior: _own, ...rest } = request;
  const provider = replayFrom === undefined ? undefined : 'replay';
  const { limits, ...set } = withoutNull(members);
  return {
    ...rest,
    ...compact({ provider, replayFrom }),
    ...set,
    ...(limits ? { limits: withoutNull(limits) } : {}),
    ...(behavior ? { behavior: programBehavior(behavior).data } : {}),
    ...compact({ label: rest.label ?? name ?? undefined }),
    preset: compact({ handlers, tools, directives, mcpServers, skills }),
  };
}

function withoutNull<T extends object>(value: T): { [K in keyof T]: NonNullable<T[K]> } {
  const entries = Object.entries(value).filter(([, member]) => member !== null);
  return compact(Object.fromEntries(entries)) as { [K in keyof T]: NonNullable<T[K]> };
}

function assertMembers(preset: Preset): void {
  const unknown = Object.keys(preset).find((name) => !MEMBERS.has(name));
  if (unknown !== undefined) {
    throw new RyeError('usage', `a preset has no member "${unknown}"`, {
      hint: `Valid names: ${[...MEMBERS].join(', ')}.`,
    });
  }
  const [misspelt] = unknownBehavior((preset.behavior ?? {}) as JsonObject);
  if (misspelt !== undefined) throw new RyeError('usage', misspelt);
}

function definedMembers(preset: Preset): Preset {
  return Object.fromEntries(Object.entries(preset).filter(([, value]) => value !== undefined));
}

function mergedMaps<N extends 'limits' | 'inputs' | 'tools' | 'mcpServers'>(
  name: N,
  below: Preset,
  above: Preset,
): Pick<Preset, N> | undefined {
  if (!below[name] || !above[name]) return undefined;
  return { [name]: { ...below[name], ...above[name] } } as unknown as Pick<Preset, N>;
}

/** Returns the MCP servers of a preset, without those that a later preset unset. */
export function presetServers({ mcpServers }: Preset): Readonly<Record<string, McpServerOptions>> {
  return withoutNull(mcpServers ?? {});
}

/** The tools of a preset as the pipeline runs them. Throws `invalid_item_id` for an id that none can have. */
export function libraryTools({ tools = {} }: Preset): readonly Tool[] {
  return Object.entries(tools).flatMap(([id, tool]) => (tool ? [libraryTool(id, tool)] : []));
}

function libraryTool(id: string, tool: LibraryTool): Tool {
  assertItemId(id, 'tool');
  assertSchema(id, tool);
  const { description, inputSchema, traits } = tool;
  return {
    id,
    description,
    inputSchema,
    traits: { ...CAUTIOUS_TRAITS, ...traits },
    graceMs: GRACE_MS,
    execute: async (input, context) => outputOf(id, await tool.execute(input, context)),
  };
}

/** A function has no process to end: one that ignores its signal is not waited for. */
const GRACE_MS = 100;
const TYPES = ['object', 'array', 'string', 'number', 'integer', 'boolean', 'null'];

/** A provider refuses every request that offers a tool with a broken schema, so it is refused with the tool's name. */
function assertSchema(id: string, { inputSchema }: LibraryTool): void {
  const problem =
    isRecord(inputSchema) && inputSchema['type'] === 'object'
      ? schemaProblem(inputSchema, 'inputSchema')
      : 'inputSchema must be a JSON Schema of type "object"';
  if (problem === undefined) return;
  throw new RyeError('tool_malformed', `the tool ${id}: ${problem}`, {
    hint: `Give it a JSON Schema of the parameters; types are ${TYPES.join(', ')}.`,
  });
}

function schemaProblem(schema: unknown, where: string): string | undefined {
  if (typeof schema === 'boolean') return undefined;
  if (!isRecord(schema)) return `${where} is no JSON Schema`;
  const { type, properties, items } = schema;
  const types: readonly unknown[] = Array.isArray(type) ? type : type === undefined ? [] : [type];
  const unknown = types.find((one) => typeof one !== 'string' || !TYPES.includes(one));
  if (unknown !== undefined) return `${where}.type ${JSON.stringify(unknown)} does not exist`;
  if (items !== undefined) return schemaProblem(items, `${where}.items`);
  if (properties === undefined) return undefined;
  if (!isRecord(properties)) return `${where}.properties is not an object`;
  return Object.entries(properties)
    .map(([name, one]) => schemaProblem(one, `${where}.properties.${name}`))
    .find((problem) => problem !== undefined);
}

function outputOf(id: string, value: ToolOutput | JsonValue | undefined): ToolOutput {
  if (isOutput(value)) return value;
  if (value === undefined || value === null) return textOutput('');
  if (typeof value === 'string') return textOutput(value);
  const isData = typeof value === 'object' && !Array.isArray(value);
  const text: string | undefined = JSON.stringify(value);
  if (text === undefined) {
    throw new RyeError(
      'tool_failed',
      `the tool ${id} returned a ${typeof value}, which is not JSON`,
    );
  }
  return textOutput(text, isData ? (value as JsonObject) : undefined);
}

function isOutput(value: ToolOutput | JsonValue | undefined): value is ToolOutput {
  return (
    typeof value === 'object' &&
    value !== null &&
    'content' in value &&
    Array.isArray(value['content']) &&
    'is_error' in value &&
    typeof value['is_error'] === 'boolean'
  );
}

/** A directive to run, and how this process runs it. */
export interface ExecuteDirectiveRequest extends Omit<DirectiveRequest, 'behavior'> {
  /** Overrides members of the directive's `<behavior>`; null unsets one. */
  readonly behavior?: ProgramBehavior;
  /** May decide about calls that ask while the thread runs; absent: the thread is suspended until people have decided. */
  readonly attendant?: ApprovalAttendant;
  readonly threadId?: string;
  readonly allowUnsigned?: boolean;
  /** Writes the model's stream to this file, for `replayFrom`. */
  readonly recordTo?: string;
  /** Plays this recording instead of calling a model. */
  readonly replayFrom?: string;
  readonly signal?: AbortSignal;
  /** Options that the run shares with others. */
  readonly preset?: Preset;
  /** Called with each event after it is durable. Must not throw. */
  readonly onEvent?: (event: LogEvent | UnknownEvent) => void;
}
