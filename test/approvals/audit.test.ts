import {
  array,
  assert,
  boolean,
  constantFrom,
  integer,
  option,
  property,
  record,
  tuple,
} from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LogAudit } from '../../src/kernel/app/verification/approvals.ts';
import type {
  ApprovalDecided,
  ApprovalDecision,
  ApprovalRequest,
  ApprovalScope,
  EditedCall,
  RequestedApproval,
  SignedDecision,
} from '../../src/kernel/core/approval.ts';
import type { LogEvent } from '../../src/kernel/core/events.ts';
import { canonicalSha256, requestSha256, signDecision } from '../../src/kernel/trust/approval.ts';
import { generateKeyPair, type KeyStatus, readPrivateKey } from '../../src/kernel/trust/keys.ts';
import { type KnownKey, unapprovedCalls } from './checker.ts';

const HISTORIES = Number(process.env['RYE_HISTORIES'] ?? 300);
const THREAD = 't';
const DAY_MS = 86_400_000;
const START = Date.UTC(2026, 0, 1);
const at = (days: number): string => new Date(START + days * DAY_MS).toISOString();

const newKey = (name: string) => readPrivateKey(generateKeyPair().privatePem, name);
const [ada, bob, eve, signer] = ['ada', 'bob', 'eve', 'signer'].map(newKey) as [
  ReturnType<typeof newKey>,
  ReturnType<typeof newKey>,
  ReturnType<typeof newKey>,
  ReturnType<typeof newKey>,
];
/** Eve is a stranger, and the signer signs only items. */
const KNOWN: ReadonlyMap<string, KnownKey> = new Map([
  [ada.keyId, { pem: ada.pem, mayApprove: true }],
  [bob.keyId, { pem: bob.pem, mayApprove: true, revokedAt: at(3) }],
  [signer.keyId, { pem: signer.pem, mayApprove: false }],
]);
const keys = {
  find(keyId: string): KeyStatus {
    const own = [ada, bob, signer].find((one) => one.keyId === keyId);
    const known = KNOWN.get(keyId);
    if (!own || !known) return { status: 'unknown' };
    const purposes = known.mayApprove ? (['approve'] as const) : (['sign'] as const);
    const scope = { purposes } as NonNullable<Extract<KeyStatus, { status: 'trusted' }>['scope']>;
    return known.revokedAt === undefined
      ? { status: 'trusted', key: own, scope }
      : { status: 'revoked', key: own, scope, revokedAt: known.revokedAt };
  },
};

type Plain = Pick<LogEvent, 'event_type' | 'payload' | 'timestamp'>;
const event = (type: LogEvent['event_type'], payload: object, days: number): Plain =>
  ({ event_type: type, payload, timestamp: at(days) }) as Plain;

interface Ask {
  readonly command: string;
  readonly quorum: number;
  readonly usd: number | null;
}

function requestOf(ask: Ask, index: number, threadId = THREAD): RequestedApproval {
  const approvers = [ada, bob].map((one, person) => ({ name: `p${person}`, key_id: one.keyId }));
  const request: ApprovalRequest = {
    format: 1,
    id: `apr-${index}`,
    kind: 'call',
    thread_id: threadId,
    root_thread_id: threadId,
    epoch: 1,
    call_id: `call-${index}`,
    tool: 'rye/bash',
    capability: 'rye.execute.tool.rye.bash',
    item: { id: 'rye/bash', sha256: 'a' },
    input_sha256: canonicalSha256({ command: ask.command }),
    files: [],
    cwd: '/project',
    sandbox: 'off',
    network: 'any',
    worst_case_usd: ask.usd,
    reason: '',
    requirements: [{ rule: 'project rules.0', approvers, quorum: ask.quorum }],
    rule: 'project rules.0',
    approvers,
    quorum: ask.quorum,
    scopes: ['once', 'arguments', 'tool'],
    on_expiry: 'deny',
    worker_key_id: ada.keyId,
    plan_sha256: 'p',
    created_at: at(0),
    expires_at: at(7),
    log_head: { bytes: 1, seq: 1, sha256: 'h' },
    preview_sha256: 'v',
  };
  const input = { command: ask.command };
  const preview = { title: '', format: 'command', text: ask.command } as const;
  return { request, request_sha256: requestSha256(request), input, preview };
}

interface Made {
  readonly who: number;
  readonly verb: 'approve' | 'deny';
  readonly scope: ApprovalScope;
  readonly uses: number | null;
  readonly spend: number | null;
  readonly until: number | null;
  readonly days: number;
  readonly changes: boolean;
}

function decisionOf({ request, request_sha256 }: RequestedApproval, made: Made): SignedDecision {
  const decision: Omit<ApprovalDecision, 'key_id'> = {
    format: 1,
    approval_id: request.id,
    thread_id: request.thread_id,
    request_sha256,
    decision: made.verb,
    scope: made.scope,
    constraints: {
      ...(made.uses === null ? {} : { uses: made.uses }),
      ...(made.spend === null ? {} : { spend_usd: made.spend }),
      ...(made.until === null ? {} : { until: at(made.until) }),
    },
    comment: '',
    ...(made.changes ? { input: { command: 'changed' } } : {}),
    decided_at: at(made.days),
  };
  return signDecision(decision, [ada, bob, eve, signer][made.who] ?? eve);
}

function startOf(
  requested: RequestedApproval | undefined,
  call: number,
  command: string,
  quorum?: number,
) {
  const use = requested && {
    approval_id: requested.request.id,
    request_sha256: requested.request_sha256,
    ...(requested.request.worst_case_usd === null
      ? {}
      : { worst_case_usd: requested.request.worst_case_usd }),
    ...(quorum === undefined ? {} : { edited: editedOf(requested.request, command, quorum) }),
  };
  return {
    call_id: `call-${call}`,
    tool: 'rye/bash',
    name: 'rye_bash',
    input: { command },
    turn: 1,
    ...(use ? { approval: use } : {}),
  };
}

/** The demands on the command that ran. */
function editedOf(request: ApprovalRequest, command: string, quorum: number): EditedCall {
  const { capability, item, approvers } = request;
  const requirements = quorum === 0 ? [] : [{ rule: 'edited', approvers, quorum }];
  return { input_sha256: canonicalSha256({ command }), capability, item, requirements };
}

const COMMANDS = ['ls', 'git push', 'changed'] as const;
const asks = record({
  command: constantFrom(...COMMANDS),
  quorum: integer({ min: 1, max: 2 }),
  usd: option(integer({ min: 1, max: 3 })),
});
const mades = record({
  who: integer({ min: 0, max: 3 }),
  verb: constantFrom('approve', 'approve', 'approve', 'deny'),
  scope: constantFrom('once', 'arguments', 'tool'),
  uses: option(integer({ min: 1, max: 3 })),
  spend: option(integer({ min: 1, max: 6 })),
  until: option(integer({ min: 1, max: 9 })),
  days: integer({ min: 0, max: 9 }),
  changes: boolean(),
});
/** Events in any order: those that the engine writes, and those that a thief of the thread's key might write. */
const steps = record({
  kind: constantFrom('request', 'decide', 'decide', 'start', 'start', 'start'),
  request: integer({ min: 0, max: 2 }),
  call: integer({ min: 0, max: 3 }),
  command: constantFrom(...COMMANDS),
  edited: option(integer({ min: 0, max: 2 }), { nil: undefined }),
  made: array(mades, { minLength: 1, maxLength: 3 }),
  swaps: boolean(),
  named: boolean(),
});

function audited(events: readonly LogEvent[], plan?: ConstructorParameters<typeof LogAudit>[1]) {
  const audit = new LogAudit(THREAD, plan, keys);
  for (const one of events) audit.take(one);
  return audit.result(false);
}

describe('the approvals in a log', () => {
  it('are judged by rye verify as by a checker that shares no code with it', () => {
    let refused = 0;
    let accepted = 0;
    const log = tuple(array(asks, { minLength: 3, maxLength: 3 }), array(steps, { maxLength: 14 }));
    assert(
      property(log, boolean(), ([given, moves], isForeign) => {
        const known = given.map((ask, index) =>
          requestOf(ask, index, isForeign && index === 2 ? 'other' : THREAD),
        );
        const events = moves.map((step, time): Plain => {
          const requested =
            known[step.request] ?? requestOf({ command: '', quorum: 1, usd: null }, 9);
          const other = known[(step.request + 1) % 3] ?? requested;
          if (step.kind === 'request') return event('approval_requested', requested, time / 2);
          if (step.kind === 'start') {
            const start = startOf(
              step.named ? requested : undefined,
              step.call,
              step.command,
              step.edited,
            );
            return event('tool_call_start', start, time / 2);
          }
          const decided: ApprovalDecided = {
            approval_id: requested.request.id,
            request_sha256: requested.request_sha256,
            outcome: step.named ? 'approved' : 'voided',
            decisions: step.made.map((made) => decisionOf(step.swaps ? other : requested, made)),
          };
          return event('approval_decided', decided, time / 2);
        });
        const { problems } = audited(events as LogEvent[]);
        const independent = unapprovedCalls(THREAD, events, KNOWN);
        const calls = problems.map((problem) => /the call (call-\d)/.exec(problem)?.[1]);
        refused += calls.length;
        accepted +=
          events.filter((one) => one.event_type === 'tool_call_start').length - calls.length;
        // after a bad call, the remaining uses of its decision are a matter of taste
        expect(calls[0]).toBe(independent[0]);
      }),
      { numRuns: HISTORIES, seed: 17 },
    );
    expect(refused).toBeGreaterThan(50);
    expect(accepted).toBeGreaterThan(50);
  });

  const good: Made = {
    who: 0,
    verb: 'approve',
    scope: 'once',
    uses: null,
    spend: null,
    until: null,
    days: 1,
    changes: false,
  };
  const [push] = [requestOf({ command: 'git push', quorum: 1, usd: 2 }, 0)];
  const decided = (...decisions: readonly SignedDecision[]): ApprovalDecided => ({
    approval_id: 'apr-0',
    request_sha256: push.request_sha256,
    outcome: 'approved',
    decisions,
  });
  const asked = event('approval_requested', push, 0);
  const approved = (made: Partial<Made> = {}): Plain =>
    event('approval_decided', decided(decisionOf(push, { ...good, ...made })), 1);
  const ran = (call = 0, command = 'git push'): Plain =>
    event('tool_call_start', startOf(push, call, command), 2);
  const signed = decisionOf(push, good);
  const altered = { ...signed, decision: { ...signed.decision, scope: 'tool' as const } };
  const foreign = requestOf({ command: 'git push', quorum: 1, usd: 2 }, 0, 'other');

  it.each<readonly [string, readonly Plain[], string | undefined]>([
    ['honest', [asked, approved(), ran()], undefined],
    ['without the decision', [asked, ran()], 'was not approved'],
    ['with the decision after the call', [asked, ran(), approved()], 'was not approved'],
    [
      'with a call that names no decision',
      [asked, approved(), event('tool_call_start', startOf(undefined, 0, 'git push'), 2)],
      'without a decision',
    ],
    ['without the request', [approved(), ran()], 'not in the log'],
    [
      'with an altered decision',
      [asked, event('approval_decided', decided(altered), 1), ran()],
      'is not valid',
    ],
    [
      'with the decision of another thread',
      [
        event('approval_requested', foreign, 0),
        event('approval_decided', decided(decisionOf(foreign, good)), 1),
        event('tool_call_start', startOf(foreign, 0, 'git push'), 2),
      ],
      'another thread',
    ],
    ['with another input', [asked, approved(), ran(0, 'ls')], 'another input'],
    ['with a second use', [asked, approved(), ran(), ran()], 'used up'],
    ['with a call beyond the scope', [asked, approved({ uses: 5 }), ran(), ran(1)], 'another call'],
    [
      'with more uses than were allowed',
      [asked, approved({ scope: 'tool', uses: 2 }), ran(), ran(1), ran(2)],
      'used up',
    ],
    [
      'with more money than was allowed',
      [asked, approved({ scope: 'tool', spend: 3 }), ran(), ran(1)],
      'money is used up',
    ],
    [
      'with a second decision that would reset the count of uses',
      [asked, approved(), ran(), approved(), ran()],
      'used up',
    ],
    [
      'with a call after the time',
      [asked, approved({ scope: 'tool', until: 2 }), ran()],
      'is over',
    ],
    ['with a late decision', [asked, approved({ days: 8 }), ran()], 'not enough'],
    ['with a denial', [asked, approved({ verb: 'deny' }), ran()], 'not enough'],
    ['with the key of a stranger', [asked, approved({ who: 2 }), ran()], 'not trusted'],
    ['with a key for items only', [asked, approved({ who: 3 }), ran()], 'may not approve'],
    [
      'with a key that was revoked before',
      [asked, approved({ who: 1, days: 4 }), ran()],
      'revoked',
    ],
    ['with a key that was revoked later', [asked, approved({ who: 1, days: 2 }), ran()], undefined],
  ])('%s', (_name, events, problem) => {
    const { problems } = audited(events as LogEvent[]);
    expect(problems).toEqual(problem === undefined ? [] : [expect.stringContaining(problem)]);
    expect(unapprovedCalls(THREAD, events, KNOWN)).toHaveLength(problem === undefined ? 0 : 1);
  });

  it('a call that the plan asks about needs a decision although the log has no request', async () => {
    const plan = { asks: [{ source: 'directive', reason: '', capability: 'rye.execute.tool.*' }] };
    const events = [event('tool_call_start', startOf(undefined, 0, 'ls'), 1)] as LogEvent[];
    const { problems } = audited(events, plan);
    expect(problems).toHaveLength(1);
  });

  it.each([
    ['after the last change of the plan', ['plan_changed', 'start'], 1],
    ['before it, where another plan was in force', ['start', 'plan_changed'], 0],
    ['between two changes', ['plan_changed', 'start', 'plan_changed'], 0],
  ])('a call without a request is judged by the plan %s', (_name, order, count) => {
    const plan = { asks: [{ source: 'directive', reason: '', capability: 'rye.execute.tool.*' }] };
    const start = event('tool_call_start', startOf(undefined, 0, 'ls'), 1);
    const change = event('plan_changed', { changes: [] }, 1);
    const events = order.map((one) => (one === 'start' ? start : change)) as LogEvent[];
    const { problems } = audited(events, plan);
    expect(problems).toHaveLength(count);
  });

  it.each([
    ['rye/fetch', { item_type: 'knowledge', item_id: 'notes' }, 'rye.fetch.knowledge.notes'],
    ['rye/fetch', { query: 'push', scope: 'directive' }, 'rye.fetch.directive'],
    ['rye/sign', { item_type: 'tool', item_id: 'push' }, 'rye.sign.tool.push'],
    ['rye/execute', { item_type: 'tool', item_id: 'push' }, 'rye.execute.tool.push'],
    ['rye/execute', { item_type: 'directive', item_id: 'a' }, 'rye.execute.directive.a'],
    ['skills/read', { name: 'tables', path: 'a.md' }, 'rye.fetch.skill.tables'],
    ['skills/run_script', { name: 'tables', path: 'a.sh' }, 'rye.execute.skill.tables'],
  ])('a call of %s %j is asked about as %s, and not by its tool', async (tool, input, needed) => {
    const start = { ...startOf(undefined, 0, ''), tool, input };
    const events = [event('tool_call_start', start, 1)] as LogEvent[];
    const problemsFor = (capability: string) => {
      const plan = { asks: [{ source: 'directive', reason: '', capability }] };
      return audited(events, plan).problems.length;
    };
    const byTool = `rye.execute.tool.${tool.replaceAll('/', '.')}`;
    expect([problemsFor(needed), problemsFor(byTool)]).toEqual([1, 0]);
  });
});
