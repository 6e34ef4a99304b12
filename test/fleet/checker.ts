import type { ClientBase } from 'pg';

/** The facts about threads that the store of a fleet proves. */
export interface FleetCheck {
  /** Sentences about what must not be; empty: the store is as it must be. */
  readonly problems: readonly string[];
  readonly threads: number;
  /** Calls of models. */
  readonly calls: number;
  /** Calls that were in flight when their process was killed. They are recorded as such and did not run again by themselves. */
  readonly interrupted: number;
  /** The highest epoch of a thread: 1 if none was taken over. */
  readonly highestEpoch: number;
}

export interface CheckOptions {
  readonly sql: Pick<ClientBase, 'query'>;
  /** True if `rye verify thread` accepts the thread. */
  readonly verify: (threadId: string) => Promise<boolean>;
}

interface ThreadRow {
  readonly thread_id: string;
  readonly parent_id: string | null;
  readonly status: string;
  readonly epoch: number;
  readonly error: string | null;
}

interface LedgerRow {
  readonly thread_id: string;
  readonly parent_id: string | null;
  readonly max: number;
  readonly actual: number;
  readonly status: string;
}

/** The parts of events that the rules need, of all types. */
interface Event {
  readonly event_type: string;
  readonly timestamp: string;
  readonly payload: {
    readonly call_id?: string;
    readonly child_thread_id?: string;
    readonly code?: string;
    readonly limits?: { readonly spend?: number };
    readonly max_usd?: number;
    readonly message?: {
      readonly role: string;
      readonly call_id?: string;
      readonly data?: { readonly recovered?: string };
      readonly content: readonly { readonly type: string; readonly call_id?: string }[];
    };
    readonly total?: { readonly spend: number };
    readonly status?: string;
  };
}

const FINAL: ReadonlySet<string> = new Set(['completed', 'error', 'cancelled', 'continued']);
/** Results that a later one replaces: the call has not run to its end. */
const OPEN: ReadonlySet<string> = new Set(['awaiting_approval', 'awaiting_threads']);
const REASONS: ReadonlySet<string> = new Set([
  'thread_parked',
  'approval_pending',
  'thread_suspended',
]);
const VERIFIED_AT_ONCE = 2;

/** Checks every thread of a store by what the store alone holds. No worker runs meanwhile. */
export async function checkFleet({ sql, verify }: CheckOptions): Promise<FleetCheck> {
  const rows = async <T>(text: string): Promise<readonly T[]> =>
    (await sql.query(text)).rows as readonly T[];
  const threads = await rows<ThreadRow>(
    'SELECT thread_id, parent_id, status, epoch, error FROM rye.threads ORDER BY thread_id',
  );
  const ledger = await rows<LedgerRow>(
    `SELECT thread_id, parent_id, max::float8 AS max, actual::float8 AS actual, status FROM rye.budget_ledger`,
  );
  const sent = await rows<{ readonly sent_to: string; readonly source_key: string | null }>(
    "SELECT sent_to, source_key FROM rye.deliveries WHERE kind = 'child_result'",
  );
  const problems: string[] = [];
  const logs = new Map<string, readonly Event[]>();
  for (const { thread_id: id } of threads) logs.set(id, await eventsOf(sql, id));
  const facts = { calls: 0, interrupted: 0 };
  for (const thread of threads) {
    const events = logs.get(thread.thread_id) ?? [];
    const found = [...statusProblems(thread), ...spendProblems(events)];
    const { problems: wrong, calls, interrupted } = callProblems(events, FINAL.has(thread.status));
    facts.calls += calls;
    facts.interrupted += interrupted;
    problems.push(...[...found, ...wrong].map((text) => `${thread.thread_id}: ${text}`));
  }
  problems.push(
    ...ledgerProblems(threads, ledger, logs),
    ...treeProblems(ledger, logs),
    ...childProblems(threads, logs, sent),
  );
  const unread = threads.map(({ thread_id: id }) => id).filter((id) => logs.get(id)?.length);
  await Promise.all(
    Array.from({ length: VERIFIED_AT_ONCE }, async () => {
      for (let id = unread.pop(); id !== undefined; id = unread.pop())
        if (!(await verify(id))) problems.push(`${id}: rye verify refuses its log`);
    }),
  );
  const highestEpoch = Math.max(0, ...threads.map(({ epoch }) => epoch));
  return { problems, threads: threads.length, ...facts, highestEpoch };
}

/** The events of a log, whose pieces must follow each other and be as long as its head states. */
async function eventsOf(
  sql: Pick<ClientBase, 'query'>,
  threadId: string,
): Promise<readonly Event[]> {
  const { rows } = await sql.query(
    'SELECT start::float8 AS start, data FROM rye.log_pieces WHERE thread_id = $1 ORDER BY start',
    [threadId],
  );
  let end = 0;
  const pieces: Buffer[] = [];
  for (const { start, data } of rows as readonly { start: number; data: Buffer }[]) {
    if (start !== end) throw new Error(`${threadId}: a piece begins at ${start}, not at ${end}`);
    pieces.push(data);
    end += data.length;
  }
  const lines = Buffer.concat(pieces).toString('utf8').split('\n').filter(Boolean);
  return lines.slice(1).map((line) => JSON.parse(line) as Event);
}

/** A thread is final, or it waits and tells for what. */
function statusProblems({ status, error }: ThreadRow): readonly string[] {
  if (FINAL.has(status)) return [];
  const code = error === null ? undefined : (JSON.parse(error) as { code?: string }).code;
  if (status === 'suspended' && code !== undefined && REASONS.has(code)) return [];
  return [`is ${status} without a reason (${code ?? 'no error'})`];
}

/** Each call has one result, was started once at most, and what was started was settled. */
function callProblems(events: readonly Event[], isFinal: boolean) {
  const calls = new Map<string, { starts: number; settled: number; results: number }>();
  const problems: string[] = [];
  let interrupted = 0;
  for (const { event_type: type, payload } of events) {
    const { message, call_id: id = '' } = payload;
    if (message?.role === 'assistant')
      for (const block of message.content) {
        if (block.type !== 'tool_call' || block.call_id === undefined) continue;
        if (calls.has(block.call_id)) problems.push(`two calls are named ${block.call_id}`);
        calls.set(block.call_id, { starts: 0, settled: 0, results: 0 });
      }
    if (message?.role === 'tool_result' && message.call_id !== undefined) {
      const { recovered = '' } = message.data ?? {};
      if (recovered === 'interrupted') interrupted += 1;
      const call = calls.get(message.call_id);
      if (!call) problems.push(`a result has no call: ${message.call_id}`);
      else if (!OPEN.has(recovered)) call.results += 1;
      // it continues when what it waits for has come: that is a decision in the log
      else if (recovered === 'awaiting_threads') call.starts -= 1;
    }
    const call = calls.get(id);
    if (type === 'tool_call_start' && call) call.starts += 1;
    if (type === 'tool_settled' && call) call.settled += 1;
  }
  for (const [id, { starts, settled, results }] of calls) {
    if (starts > 1) problems.push(`the call ${id} was started ${starts} times`);
    if (results > 1) problems.push(`the call ${id} has ${results} results`);
    if (results === 0 && isFinal) problems.push(`the call ${id} has no result`);
    if (settled > 1) problems.push(`the call ${id} was settled ${settled} times`);
    if (results === 1 && starts > 0 && settled === 0)
      problems.push(`the call ${id} was started and never settled`);
  }
  return { problems, calls: calls.size, interrupted };
}

/** No prefix of the log spends more than its limit then, and none takes spending back. */
function spendProblems(events: readonly Event[]): readonly string[] {
  let cap = Number.POSITIVE_INFINITY;
  let spent = 0;
  const problems: string[] = [];
  for (const { event_type: type, payload } of events) {
    if (type === 'thread_started' || type === 'run_started') cap = payload.limits?.spend ?? cap;
    if (type !== 'cost' || !payload.total) continue;
    const { spend } = payload.total;
    if (spend < spent) problems.push(`its spending falls from ${spent} to ${spend}`);
    if (spend > cap + 1e-9) problems.push(`it spent ${spend} of ${cap}`);
    spent = spend;
  }
  return problems;
}

/** Final threads hold no money, and no row of the ledger spent more than it may. */
function ledgerProblems(
  threads: readonly ThreadRow[],
  ledger: readonly LedgerRow[],
  logs: ReadonlyMap<string, readonly Event[]>,
): readonly string[] {
  const rows = new Map(ledger.map((row) => [row.thread_id, row]));
  return threads.flatMap(({ thread_id: id, status }) => {
    const row = rows.get(id);
    // its starter was killed before it had a budget: it did nothing
    if (!row && FINAL.has(status) && logs.get(id)?.length === 0) return [];
    if (!row) return [`${id}: it has no row in the ledger`];
    const spent = row.actual > row.max ? [`${id}: the ledger has ${row.actual} of ${row.max}`] : [];
    const isHeld = FINAL.has(status) && row.status !== 'released';
    return isHeld ? [...spent, `${id}: it is ${status} and holds money`] : spent;
  });
}

/** At every prefix of the merged logs, what a thread and those below it spent is within the thread's row. */
function treeProblems(
  ledger: readonly LedgerRow[],
  logs: ReadonlyMap<string, readonly Event[]>,
): readonly string[] {
  const rows = new Map(ledger.map((row) => [row.thread_id, row]));
  const costs = [...logs].flatMap(([id, events]) =>
    events.flatMap(({ event_type: type, timestamp, payload }) =>
      type === 'cost' && payload.total
        ? [{ id, at: timestamp, micro: Math.round(payload.total.spend * 1e6) }]
        : [],
    ),
  );
  const own = new Map<string, number>();
  const below = new Map<string, number>();
  const over = new Set<string>();
  for (const { id, micro } of costs.toSorted((one, two) => (one.at < two.at ? -1 : 1))) {
    const more = micro - (own.get(id) ?? 0);
    own.set(id, micro);
    const seen = new Set<string>();
    for (let up = rows.get(id); up && !seen.has(up.thread_id); up = rows.get(up.parent_id ?? '')) {
      seen.add(up.thread_id);
      const sum = (below.get(up.thread_id) ?? 0) + more;
      below.set(up.thread_id, sum);
      if (sum > up.max) over.add(`${up.thread_id}: its tree spent ${sum} of ${up.max}`);
    }
  }
  const wrong = [...own].filter(([id, micro]) => (rows.get(id)?.actual ?? 0) < micro);
  return [...over, ...wrong.map(([id, micro]) => `${id}: the ledger misses some of ${micro}`)];
}

/** The end of each child is in its parent's log, or is a message to the parent. */
function childProblems(
  threads: readonly ThreadRow[],
  logs: ReadonlyMap<string, readonly Event[]>,
  sent: readonly { readonly sent_to: string; readonly source_key: string | null }[],
): readonly string[] {
  return threads.flatMap(({ thread_id: id, parent_id: parent, status }) => {
    if (parent === null || !FINAL.has(status)) return [];
    const ended = (logs.get(parent) ?? []).some(
      ({ event_type: type, payload }) =>
        type === 'child_thread_finished' && payload.child_thread_id === id,
    );
    const isSent = sent.some((row) => row.sent_to === parent && row.source_key?.includes(id));
    return ended || isSent ? [] : [`${id}: its end never reached ${parent}`];
  });
}
