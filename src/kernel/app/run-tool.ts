import { capabilityOf } from '../core/capability.ts';
import { RyeError } from '../core/errors.ts';
import { assertItemId } from '../core/ids.ts';
import { textOf } from '../core/message.ts';
import { covers } from '../policy/capability.ts';
import { assessRisks } from '../policy/risk.ts';
import { optionAcknowledgement } from '../threads/prepare/policy.ts';
import { validateInput } from '../tools/schema.ts';
import { timeoutSignal } from '../tools/timer.ts';
import type { ToolOutput } from '../tools/tool.ts';
import type { ExecuteToolRequest, ToolRunResult } from './api/threads.ts';
import { addedPreset, threadParts } from './feature.ts';
import { projectGuards } from './guards.ts';
import { libraryTools } from './presets.ts';
import { reachableDomains, readDenier, threadSandbox } from './session-tools.ts';
import { readThreadConfig } from './settings.ts';
import { threadPorts } from './thread-env.ts';
import { ToolCatalog } from './tools.ts';
import type { Workspace } from './workspace.ts';

/**
 * Runs one tool outside any thread, for a person at the command line, under the checks that a thread's call would
 * pass: signature, risk, parameters, confinement, timeout.
 */
export async function runTool(
  workspace: Workspace,
  request: ExecuteToolRequest,
): Promise<ToolRunResult> {
  const { toolId, params = {}, allowUnsigned = false, acknowledge = [], signal } = request;
  assertItemId(toolId, 'tool');
  await assertParentHolds(workspace, toolId);
  await projectGuards(workspace, allowUnsigned).check();
  const config = await readThreadConfig(await workspace.config());
  const { tool, builtin } = await new ToolCatalog(workspace, await threadParts(workspace), {
    allowUnsigned,
    own: libraryTools(await addedPreset(workspace)),
  }).load(toolId, {
    capabilities: ['rye.*'],
    allowPaths: config.settings.allow_paths,
    denies: readDenier(workspace, config.settings),
    secrets: {},
    sandbox: threadSandbox(workspace, config.settings),
    ...reachableDomains(config.settings),
    // a tool outside any thread starts no children
    children: {
      run: refuse,
      join: refuse,
      launch: refuse,
      launchTool: refuse,
      learned: () => Promise.resolve(),
    },
  });
  const { refusals } = assessRisks({
    capabilities: [`rye.execute.tool.${toolId.replaceAll('/', '.')}`],
    table: config.risks,
    acknowledged: acknowledge.map(optionAcknowledgement),
    toolRisks: builtin ? new Map() : new Map([[toolId, tool.traits.risk]]),
  });
  const [refusal] = refusals;
  if (refusal) throw refusal;
  const validation = await validateInput(tool.inputSchema, params);
  if (!validation.ok) {
    throw new RyeError(
      'invalid_input',
      `the parameters of ${toolId} are wrong: ${validation.problems}`,
      {
        hint: `See them with: rye fetch tool ${toolId}`,
      },
    );
  }
  const start = workspace.clock.monotonic();
  const timeout = timeoutSignal(tool.traits.timeout_seconds * 1000);
  const output = await tool
    .execute(validation.input, {
      callId: workspace.ids.uuid(),
      threadId: '',
      projectPath: workspace.options.projectPath,
      signal: signal ? AbortSignal.any([signal, timeout.signal]) : timeout.signal,
      progress: () => undefined,
    })
    .finally(() => timeout.stop());
  if (signal?.aborted) throw new RyeError('cancelled', `the tool ${toolId} was cancelled`);
  return resultOf(toolId, output, workspace.clock.monotonic() - start);
}

/** A command that a thread started may do no more than the thread, according to its signed thread.json. */
async function assertParentHolds(workspace: Workspace, toolId: string): Promise<void> {
  const { env } = workspace.options;
  const parentId = env['RYE_PARENT_THREAD_ID'] ?? '';
  if (parentId === '') return;
  const { files } = await threadPorts(workspace, { allowUnsigned: false });
  const { capabilities } = await files.readDocument(parentId);
  const need = { verb: 'execute', item_type: 'tool', item_id: toolId } as const;
  if (covers(capabilities, need)) return;
  throw new RyeError(
    'capability_denied',
    `the thread ${parentId}, which started this command, does not hold ${capabilityOf(need)}`,
    { hint: 'Grant it in the <permissions> of its directive.' },
  );
}

function refuse(): Promise<never> {
  return Promise.reject(new RyeError('usage', 'run directives with `rye execute directive`'));
}

function resultOf(tool: string, output: ToolOutput, durationMs: number): ToolRunResult {
  return {
    success: !output.is_error,
    tool,
    result: textOf(output.content),
    ...(output.data ? { data: output.data } : {}),
    duration_ms: Math.round(durationMs),
  };
}
