import { createHash } from 'node:crypto';
import { basename, dirname } from 'node:path';
import { type AcceptedRisk, acceptedRisk, capabilityOf } from '../../core/capability.ts';
import { RyeError } from '../../core/errors.ts';
import { isJsonObject, type JsonObject, type JsonValue } from '../../core/json.ts';
import type { PlannedTool } from '../../core/plan.ts';
import { escapeXml } from '../../core/text.ts';
import { covers } from '../../policy/capability.ts';
import type { ItemSource, Preparing, Sources } from '../ports.ts';
import type { ThreadDocument } from '../thread-document.ts';
import { type PreparedThread, prepareThread } from './prepare.ts';

export interface ToolRunRequest {
  readonly toolId: string;
  readonly params: JsonObject;
  readonly parentThreadId?: string | undefined;
  readonly acknowledge?: readonly AcceptedRisk[] | undefined;
}

/** Money that a run of one tool gets: it asks no model, and a limit of nothing would be used up before it began. */
const SPEND_USD = 0.000001;
const NAME = /^[A-Za-z_][A-Za-z0-9_-]*$/;

/**
 * Prepares a tool to run as a thread: the embedded provider executes a one-step directive that rye writes. So it has a
 * log, a process, limits, gates and a result like any thread, and its parent's capabilities bound it.
 */
export async function prepareToolRun(
  env: Preparing,
  { toolId, params, parentThreadId, acknowledge = [] }: ToolRunRequest,
): Promise<PreparedThread> {
  const parent =
    parentThreadId === undefined ? undefined : await env.files.readDocument(parentThreadId);
  if (parent) assertHeld(parent, toolId);
  const tool = await plannedTool(env, toolId);
  const id = `tool/${toolId}`;
  const text = directiveText(id, tool, params);
  const source: ItemSource = {
    load: async (type, wanted, operation) =>
      type === 'directive' && wanted === id
        ? {
            type,
            id,
            space: 'system',
            path: `rye:${id}`,
            text,
            sha256: createHash('sha256').update(text).digest('hex'),
            integrity: 'verified',
          }
        : await env.items.load(type, wanted, operation),
  };
  // what the parent accepted when it was started holds for its calls, asynchronous ones too
  const accepted = parent ? (await env.files.readPlan(parent)).acknowledged : [];
  return await prepareThread(
    { ...env, items: source },
    {
      directiveId: id,
      inputs: params,
      provider: env.models.stepProvider(),
      ...(parentThreadId === undefined ? {} : { parentThreadId }),
      acknowledge: [...acknowledge, ...accepted.map(acceptedRisk)],
    },
  );
}

function assertHeld({ thread_id, capabilities }: ThreadDocument, toolId: string): void {
  const need = { verb: 'execute', item_type: 'tool', item_id: toolId } as const;
  if (covers(capabilities, need)) return;
  throw new RyeError(
    'capability_denied',
    `thread ${thread_id} does not hold ${capabilityOf(need)}`,
    { hint: 'Grant it in the <permissions> of its directive.' },
  );
}

async function plannedTool(
  env: Pick<Sources, 'tools'>,
  toolId: string,
): Promise<Pick<PlannedTool, 'description' | 'input_schema'>> {
  const capability = capabilityOf({ verb: 'execute', item_type: 'tool', item_id: toolId });
  const { tools, unavailable } = await env.tools.granted([capability], {
    preloadTokens: 0,
    mayConnect: true,
  });
  const tool = tools.find(({ id }) => id === toolId);
  if (tool) return tool;
  const broken = unavailable.find(({ error }) => error.code !== 'item_not_found');
  if (broken) throw broken.error;
  throw new RyeError('item_not_found', `unknown tool ${toolId}`, {
    hint: 'List them with: rye list tool',
  });
}

function directiveText(
  id: string,
  { description, input_schema: schema }: Pick<PlannedTool, 'description' | 'input_schema'>,
  params: JsonObject,
): string {
  const toolId = id.slice('tool/'.length);
  const given = Object.entries(params).flatMap(([name, value]): [string, JsonValue][] =>
    value === undefined || value === null ? [] : [[name, value]],
  );
  const inputs = given.map(([name, value]) => inputOf(name, value, isSecret(schema, name)));
  // a secret is passed by its handle; other values are filled in at run time, so that none is parsed as a reference
  const values = given.map(([name]) => {
    const reference = isSecret(schema, name) ? `{input:${name}}` : `\${inputs.${name}}`;
    return `<param name="${name}">${reference}</param>`;
  });
  return `\`\`\`xml
<directive name="${basename(id)}" version="1.0.0">
  <metadata>
    <description>${escapeXml(description)}</description>
    <category>${dirname(id)}</category>
    <author>rye</author>
    <limits turns="3" spend="${SPEND_USD.toFixed(6)}" spawns="0" depth="0" />
    <permissions><execute><tool>${toolId}</tool></execute></permissions>
  </metadata>
  <inputs>${inputs.join('')}</inputs>
  <process>
    <step name="run"><execute item_type="tool" item_id="${toolId}">${values.join('')}</execute></step>
  </process>
</directive>
\`\`\`

Run the tool once.
`;
}

function inputOf(name: string, value: JsonValue, secret: boolean): string {
  if (!NAME.test(name)) {
    throw new RyeError(
      'invalid_input',
      `the parameter ${JSON.stringify(name)} cannot be given to an asynchronous run`,
      { hint: 'Run the tool without --async.' },
    );
  }
  const mark = secret ? ' secret="true"' : '';
  return `<input name="${name}" type="${typeOf(value)}" required="true"${mark}>Parameter of the tool.</input>`;
}

function typeOf(value: JsonValue): string {
  if (Array.isArray(value)) return 'array';
  if (typeof value === 'object') return 'object';
  return typeof value;
}

function isSecret(schema: JsonObject, name: string): boolean {
  const properties = schema['properties'];
  const property = isJsonObject(properties) ? properties[name] : undefined;
  return isJsonObject(property) && property['writeOnly'] === true;
}
