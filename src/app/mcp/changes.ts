import { messageOf } from '../../core/errors.ts';
import type { EventDraft, EventPayloads } from '../../core/events.ts';
import { wireName } from '../../core/ids.ts';
import { compact } from '../../core/json.ts';
import type { PlannedTool } from '../../core/plan.ts';
import { TOOLS_CHANGED_ENTRY } from '../../threads/ports.ts';
import type { Connection } from '../../tools/mcp/connection.ts';
import { compareTools, serverOfTool, type Withdrawal } from '../../tools/mcp/mcp-tools.ts';
import type { McpServers } from '../../tools/mcp/servers.ts';
import type { Tool } from '../../tools/tool.ts';
import type { SessionTools } from '../session-tools.ts';

interface McpChangesOptions {
  readonly servers: McpServers;
  readonly offered: SessionTools;
  /** True if the thread's capabilities cover a tool. */
  readonly isGranted: (id: string) => boolean;
  /** Plans a tool that came since the thread was approved, beside those that the thread has by then. */
  readonly plan: (tool: Tool, isLazy: boolean, beside: readonly PlannedTool[]) => PlannedTool;
  readonly notice: (text: string) => void;
}

/** The state of a server at the last look. */
interface Seen extends Pick<Connection, 'tools'> {
  readonly connection: Connection;
  readonly resources: number;
  readonly prompts: number;
}

/** Names that a message lists; the log has all of them. */
const MAX_NAMED = 20;

/**
 * Takes up, between turns, what the servers of a thread have changed about their tools. New ones come under the grants
 * of the plan. One that is not what the thread was approved with is refused until it is again: what was judged is not
 * available. The system text does not change; a message after the conversation tells the model.
 */
export class McpChanges {
  readonly #options: McpChangesOptions;
  readonly #names: readonly string[];
  readonly #seen = new Map<string, Seen | undefined>();
  readonly #withdrawn = new Map<string, Withdrawal>();
  readonly #leftOut = new Set<string>();

  constructor(options: McpChangesOptions) {
    this.#options = options;
    this.#names = [...new Set(options.offered.planned.flatMap(({ id }) => serverOfTool(id) ?? []))];
  }

  /** Returns the events to append before the next turn. Connects a server that this process has not connected yet. */
  async refresh(): Promise<readonly EventDraft[]> {
    const looks = await Promise.all(this.#names.map(async (name) => await this.#look(name)));
    return looks.flat();
  }

  async #look(server: string): Promise<readonly EventDraft[]> {
    const { servers } = this.#options;
    const live = servers.live(server);
    const seen = this.#seen.get(server);
    // one whose connection broke is connected again by the next call
    if (this.#seen.has(server) && (live === undefined || isSame(seen, live))) return [];
    const isNew = live !== seen?.connection;
    const isStale = live?.isStale() === true;
    try {
      const { connection, tools, warnings, isLazy } = await servers.current(server);
      this.#seen.set(server, seenOf(connection));
      const drafts = isNew ? [] : otherLists(server, seen, connection);
      const dropped = warnings.filter((warning) => !this.#leftOut.has(warning));
      for (const warning of dropped) this.#leftOut.add(warning);
      // what the plan was made from is told by the plan
      const refusals = isNew ? [] : dropped;
      return [...drafts, ...this.#take(server, { tools, isLazy, isStale, refusals })];
    } catch (error) {
      this.#seen.set(server, live && seenOf(live));
      // that it could not be connected is told by its start
      return live ? [changed({ server, list: 'tools', error: messageOf(error) })] : [];
    }
  }

  #take(
    server: string,
    now: {
      readonly tools: readonly Tool[];
      readonly isLazy: boolean;
      readonly isStale: boolean;
      readonly refusals: readonly string[];
    },
  ): readonly EventDraft[] {
    const { offered, isGranted } = this.#options;
    const approved = offered.planned.filter(({ id }) => serverOfTool(id) === server);
    const granted = now.tools.filter(({ id }) => isGranted(id));
    const { withdrawn, added } = compareTools(approved, granted);
    const { tools: planned, refusals: taken } = this.#plan(added, now.isLazy);
    const refusals = [...now.refusals, ...taken];
    const back = approved.filter(({ id }) => this.#withdrawn.has(id) && !withdrawn.has(id));
    const gone = approved.filter(({ id }) => withdrawn.get(id) !== this.#withdrawn.get(id));
    const lost = (how: Withdrawal) => gone.filter(({ id }) => withdrawn.get(id) === how);
    const removed = lost('removed');
    const other = lost('changed');
    for (const { id } of approved) this.#withdrawn.delete(id);
    for (const [id, how] of withdrawn) this.#withdrawn.set(id, how);
    const callable = [...planned, ...back];
    const isNothing = [callable, removed, other, refusals].every(({ length }) => length === 0);
    if (isNothing) return now.isStale ? [changed({ server, list: 'tools' })] : [];
    offered.change(planned, reasons(this.#withdrawn));
    if (other.length > 0) this.#warn(server, other);
    return [
      changed(
        compact({
          server,
          list: 'tools' as const,
          added: idsOf(callable),
          removed: idsOf(removed),
          changed: idsOf(other),
          left_out: refusals.length > 0 ? refusals : undefined,
        }),
      ),
      ...this.#message(server, { callable, removed, other }),
    ];
  }

  /** Returns the new tools. Skips a tool whose name the model already knows, and reports that once. */
  #plan(added: readonly Tool[], isLazy: boolean) {
    const { offered, plan } = this.#options;
    const taken = new Set(offered.planned.flatMap((tool) => [tool.name, offered.shown(tool)]));
    const tools: PlannedTool[] = [];
    const refusals: string[] = [];
    for (const tool of added) {
      const planned = plan(tool, isLazy, [...offered.planned, ...tools]);
      if (!taken.has(planned.name)) {
        taken.add(planned.name);
        tools.push(planned);
      } else if (!this.#leftOut.has(tool.id)) {
        this.#leftOut.add(tool.id);
        refusals.push(`${tool.id}: another tool is offered as ${planned.name}`);
      }
    }
    return { tools, refusals };
  }

  #warn(server: string, tools: readonly PlannedTool[]): void {
    const names = tools.map(({ id }) => id).join(', ');
    this.#options.notice(
      `the MCP server ${server} changed tools that the thread was approved with: ${names}; their calls are refused until they are as they were, or a new thread is started`,
    );
  }

  /** Builds the message for the model; none if nothing changed for it. */
  #message(
    server: string,
    {
      callable,
      removed,
      other,
    }: Readonly<Record<'callable' | 'removed' | 'other', readonly PlannedTool[]>>,
  ): readonly EventDraft[] {
    const { offered } = this.#options;
    const named = (tools: readonly PlannedTool[]): string => {
      const names = tools.slice(0, MAX_NAMED).map((tool) => offered.shown(tool));
      const more = tools.length - names.length;
      return more > 0 ? `${names.join(', ')} and ${more} more` : names.join(', ');
    };
    const isLoaded = ({ id }: PlannedTool): boolean => offered.refusal(id) === undefined;
    const parts = [
      ['You can call now', callable.filter(isLoaded)],
      ['Load with tool_search before calling', callable.filter((tool) => !isLoaded(tool))],
      ['Withdrawn', removed],
      ['Changed, and refused in this thread', other],
    ] as const;
    const sections = parts.flatMap(([what, tools]) =>
      tools.length === 0 ? [] : [` ${what}: ${named(tools)}.`],
    );
    if (sections.length === 0) return [];
    const content = `[The MCP server ${server} changed its tools.${sections.join('')}]`;
    return [
      {
        event_type: 'custom_message',
        payload: { custom_type: TOOLS_CHANGED_ENTRY, content, display: false },
      },
    ];
  }
}

function changed(payload: EventPayloads['mcp_list_changed']): EventDraft {
  return { event_type: 'mcp_list_changed', payload };
}

/** Ids for an event; undefined where there are none. */
function idsOf(tools: readonly PlannedTool[]): readonly string[] | undefined {
  return tools.length === 0 ? undefined : tools.map(({ id }) => id);
}

/** Resources and prompts are asked for at each use, so that they changed is only told. */
function otherLists(
  server: string,
  seen: Seen | undefined,
  { changes }: Connection,
): readonly EventDraft[] {
  const lists = (['resources', 'prompts'] as const).filter(
    (list) => changes[list] !== (seen?.[list] ?? 0),
  );
  return lists.map((list) => changed({ server, list }));
}

function seenOf(connection: Connection): Seen {
  const { tools, changes } = connection;
  return { connection, tools, resources: changes.resources, prompts: changes.prompts };
}

function isSame(seen: Seen | undefined, live: Connection): boolean {
  const { connection, tools, resources, prompts } = seenOf(live);
  return (
    seen?.connection === connection &&
    seen.tools === tools &&
    seen.resources === resources &&
    seen.prompts === prompts &&
    !live.isStale()
  );
}

function reasons(withdrawn: ReadonlyMap<string, Withdrawal>): ReadonlyMap<string, string> {
  const how = {
    removed: 'its server does not offer it any more',
    changed:
      'its server has changed its description or its parameters since this thread was approved with it',
  };
  return new Map(
    [...withdrawn].map(([id, why]) => [id, `${wireName(id)} can't be called: ${how[why]}.`]),
  );
}
