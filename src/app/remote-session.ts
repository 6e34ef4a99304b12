import { capabilityOf } from '../core/capability.ts';
import type { EventDraft, McpServerStart } from '../core/events.ts';
import { wireName } from '../core/ids.ts';
import type { PlannedTool, ThreadPlan } from '../core/plan.ts';
import { covers, meet } from '../policy/capability.ts';
import { riskOf } from '../policy/risk.ts';
import type { ProviderTraits } from '../providers/provider.ts';
import type { OpenTools, ThreadConfig } from '../threads/ports.ts';
import { definitionTokens } from '../tools/disclosure.ts';
import { serverOfTool } from '../tools/mcp/mcp-tools.ts';
import type { McpServers } from '../tools/mcp/servers.ts';
import type { Tool } from '../tools/tool.ts';
import type { Foundation } from './foundation.ts';
import { McpChanges } from './mcp-changes.ts';
import type { SessionTools } from './session-tools.ts';

export interface RemoteSessionOptions {
  readonly base: Foundation;
  readonly servers: McpServers;
  readonly offered: SessionTools;
  readonly plan: ThreadPlan;
  readonly traits: ProviderTraits;
  readonly config: Pick<ThreadConfig, 'risks' | 'toolPreloadTokens'>;
  readonly record: ((drafts: readonly EventDraft[]) => void) | undefined;
}

/** True where the capabilities reach some tool of the server. */
export function reachesServer(capabilities: readonly string[], server: string): boolean {
  return capabilities.some((one) => meet(one, `rye.execute.tool.mcp.${server}.*`).length > 0);
}

/** Holds the MCP servers for a thread, writes how each started to its log, and follows what they change about their tools. */
export function openRemote(options: RemoteSessionOptions): Pick<OpenTools, 'refresh' | 'close'> {
  const { base, servers, offered, plan, record } = options;
  const { capabilities } = plan;
  const release = servers.hold();
  const isReached = ({ server }: McpServerStart): boolean => reachesServer(capabilities, server);
  // what was started before the thread had a log is told with its first turn
  let earlier = servers.starts.filter(isReached).map(started);
  const unwatch = servers.watch((start) => {
    if (isReached(start)) record?.([started(start)]);
  });
  const close = async (): Promise<void> => {
    unwatch();
    await release();
  };
  if (earlier.length === 0 && !offered.planned.some(isRemote)) return { close };
  const changes = new McpChanges({
    servers,
    offered,
    isGranted: (id) => covers(capabilities, { verb: 'execute', item_type: 'tool', item_id: id }),
    // its risk is that of the grant, which the plan has judged: tools of servers declare none
    plan: (tool, isLazy, beside) => plannedLate(tool, { ...options, isLazy, beside }),
    notice: base.notice,
  });
  const refresh = async (): Promise<readonly EventDraft[]> => {
    const drafts = [...earlier, ...(await changes.refresh())];
    earlier = [];
    return drafts;
  };
  return { refresh, close };
}

function started(payload: McpServerStart): EventDraft {
  return { event_type: 'mcp_server_started', payload };
}

function isRemote({ id }: PlannedTool): boolean {
  return serverOfTool(id) !== undefined;
}

/** A tool that came since the plan was made: offered with its schema where the budget for that has room. */
function plannedLate(
  { id, description, inputSchema, traits }: Tool,
  {
    traits: { needsTools },
    config,
    isLazy,
    beside,
  }: Pick<RemoteSessionOptions, 'traits' | 'config'> & {
    readonly isLazy: boolean;
    readonly beside: readonly PlannedTool[];
  },
): PlannedTool {
  const tool = { id, name: wireName(id), description, input_schema: inputSchema };
  const loaded = beside.filter(({ preloaded }) => preloaded);
  const used = loaded.reduce((sum, one) => sum + definitionTokens(one), 0);
  const hasRoom = used + definitionTokens(tool) <= config.toolPreloadTokens;
  const need = capabilityOf({ verb: 'execute', item_type: 'tool', item_id: id });
  return {
    ...tool,
    preloaded: needsTools || (!isLazy && hasRoom),
    risk: riskOf(need, config.risks, traits.risk),
  };
}
