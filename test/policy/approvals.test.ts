import { describe, expect, it } from 'vitest';
import type {
  ApprovalDecision,
  ApprovalRequest,
  ApprovalScope,
  Approver,
} from '../../src/kernel/core/approval.ts';
import {
  decisionProblem,
  exhaustion,
  judgeDecisions,
  unreachableReason,
} from '../../src/kernel/policy/approval-judgement.ts';
import {
  type AskedCall,
  demandFor,
  gateVerdict,
  parseApprovalPolicy,
  permissionAsks,
} from '../../src/kernel/policy/approvals.ts';

const AT = { path: 'approvals.yaml' };
const OWNER: Approver = { name: 'owner', key_id: '0000000000000000' };
const ADA = '1111111111111111';
const LEAD = '2222222222222222';

const BASH: AskedCall = {
  tool: 'rye/bash',
  capability: 'rye.execute.tool.rye.bash',
  risk: 'elevated',
  input: { command: 'git push', amount: 50, port: '8080' },
  worstCaseUsd: null,
  context: {},
};

function policy(rules: readonly object[], more: object = {}) {
  const approvers = {
    ada: { key: ADA, may: ['rye/bash', 'pay/*'] },
    lead: { key: LEAD, may: ['*'], four_eyes: true },
  };
  return parseApprovalPolicy({ approvers, rules, ...more }, 'project', AT);
}

it.each([
  [0, 0, 'allow'],
  [0, 1, 'ask'],
  [0, 3, 'ask'],
  [1, 0, 'deny'],
  [1, 1, 'deny'],
  [2, 3, 'deny'],
] as const)('%d refusals and %d asks: %s', (refusals, asks, verdict) => {
  expect(gateVerdict(refusals, asks)).toBe(verdict);
});

describe('demandFor', () => {
  const ask = { source: 'directive', reason: 'It pushes.' };

  it.each<readonly [string, object, boolean]>([
    ['the tool', { tool: 'rye/bash', ask: ['ada'] }, true],
    ['a pattern of tools', { tool: 'rye/*', ask: 'ada' }, true],
    ['another tool', { tool: 'rye/fetch', ask: ['ada'] }, false],
    ['a capability', { capability: 'rye.execute.tool.*', ask: ['lead'] }, true],
    ['another verb', { capability: 'rye.fetch.*', ask: ['lead'] }, false],
    ['its risk', { risk: 'elevated', ask: ['ada'] }, true],
    ['a lower risk', { risk: 'write', ask: ['ada'] }, true],
    ['a higher risk', { risk: 'unrestricted', ask: ['ada'] }, false],
    [
      'a condition',
      { when: { path: 'input.command', op: 'regex', value: '^git push' }, ask: ['ada'] },
      true,
    ],
    [
      'two conditions',
      {
        when: {
          all: [
            { path: 'input.amount', op: 'gte', value: 50 },
            { path: 'risk', op: 'eq', value: 'read' },
          ],
        },
        ask: ['ada'],
      },
      false,
    ],
    [
      'a test of an argument',
      { when: { argument: 'command', matches: '\\bpush\\b' }, ask: ['ada'] },
      true,
    ],
    ['an amount above', { when: { argument: 'amount', above: 100 }, ask: ['ada'] }, false],
    ['the name that models see', { tool: 'rye_bash', ask: ['ada'] }, true],
    ['a number in a text', { when: { argument: 'port', contains: 808 }, ask: ['ada'] }, true],
    ['a text that is a number', { when: { argument: 'port', equals: 8080 }, ask: ['ada'] }, true],
    ['a list of numbers', { when: { argument: 'port', in: [80, 8080] }, ask: ['ada'] }, true],
    ['a text above a number', { when: { argument: 'port', above: 100 }, ask: ['ada'] }, true],
    ['money without a price', { spend_above: 1, ask: ['ada'] }, false],
  ])('a rule on %s', (_what, rule, asks) => {
    expect(demandFor([policy([rule])], BASH, [], OWNER) !== undefined).toBe(asks);
  });

  it.each<[number | null, number, boolean]>([
    [0.5, 0.4999, true],
    [0.5, 0.5, false],
    [0.5, 0.6, false],
    [null, 0, false],
    [0.01, 0, true],
  ])('of a call that may cost %j a rule on more than %d asks: %j', (worstCaseUsd, above, asks) => {
    const call = {
      ...BASH,
      tool: 'rye/execute',
      capability: 'rye.execute.directive.a',
      worstCaseUsd,
    };
    const rule = { spend_above: above, ask: ['lead'] };
    expect(demandFor([policy([rule])], call, [], OWNER) !== undefined).toBe(asks);
  });

  it.each([
    ['alone', { path: 'cost_lef', op: 'lt', value: 1 }],
    [
      'after one that is known',
      {
        any: [
          { path: 'cost_left', op: 'lt', value: 1 },
          { path: 'cost_lef', op: 'lt', value: 1 },
        ],
      },
    ],
    ['within a negation', { not: { path: 'turn', op: 'exists' } }],
  ])('a condition over what no call has is refused: %s', (_, when) => {
    expect(() => policy([{ when, ask: ['ada'] }])).toThrow(/names "(cost_lef|turn)"/);
  });

  it('a rule about one tool that tests a parameter which the tool lacks asks about every call of it', () => {
    const about = (when: object, tool = 'rye/bash') => policy([{ tool, when, ask: ['ada'] }]);
    const asks = (one: ReturnType<typeof policy>, parameters?: readonly string[]) =>
      demandFor([one], { ...BASH, parameters }, [], OWNER) !== undefined;
    const known = ['command', 'timeout'];
    expect(asks(about({ argument: 'comand', matches: 'never' }), known)).toBe(true);
    expect(asks(about({ path: 'input.cmd.x', op: 'eq', value: 1 }), known)).toBe(true);
    expect(asks(about({ argument: 'command', matches: 'never' }), known)).toBe(false);
    // other tools of a pattern may have it, and a tool without a closed list too
    expect(asks(about({ argument: 'comand', matches: 'never' }, 'rye/*'), known)).toBe(false);
    expect(asks(about({ argument: 'comand', matches: 'never' }))).toBe(false);
  });

  it('asks the owner without a policy, and no person without a demand', () => {
    expect(demandFor([], BASH, [], OWNER)).toBeUndefined();
    expect(demandFor([], BASH, [ask], OWNER)).toMatchObject({
      requirements: [{ rule: 'directive', approvers: [OWNER], quorum: 1 }],
      reason: 'It pushes.',
      expiresMs: 7 * 86_400_000,
      onExpiry: 'deny',
      scopes: ['once', 'arguments', 'tool'],
    });
  });

  it("asks the policy's approvers who may decide, if no rule matches", () => {
    const made = demandFor([policy([])], { ...BASH, capability: 'rye.sign.tool.x' }, [ask], OWNER);
    expect(made?.requirements).toMatchObject([{ approvers: [{ name: 'lead' }] }]);
  });

  it('names no approver for what is outside of his capabilities', () => {
    const all = policy([{ tool: '*', ask: ['ada', 'lead'] }]);
    const call = { ...BASH, tool: 'mail/send', capability: 'rye.execute.tool.mail.send' };
    const names = demandFor([all], call, [], OWNER)?.requirements[0]?.approvers;
    expect(names?.map(({ name }) => name)).toEqual(['lead']);
  });

  it('lets a request expire at the earliest time of its policies', () => {
    const within = (expires: string) => policy([{ tool: '*', ask: ['lead'] }], { expires });
    const demand = demandFor([within('1h'), within('2h')], BASH, [], OWNER);
    expect(demand?.expiresMs).toBe(3_600_000);
    const reversed = demandFor([within('2h'), within('1h')], BASH, [], OWNER);
    expect(reversed?.expiresMs).toBe(3_600_000);
  });

  it('takes the first rule that matches, and only names who may decide about the capability', () => {
    const rules = [
      {
        tool: 'rye/bash',
        ask: ['ada', 'lead'],
        quorum: 2,
        expires: '3s',
        scope: 'once',
        on_expiry: 'end',
      },
      { tool: '*', ask: ['lead'] },
    ];
    expect(demandFor([policy(rules)], BASH, [], OWNER)).toMatchObject({
      requirements: [
        {
          rule: 'project rules.0',
          quorum: 2,
          approvers: [
            { name: 'ada', key_id: ADA },
            { name: 'lead', key_id: LEAD, four_eyes: true },
          ],
        },
      ],
      expiresMs: 3000,
      scopes: ['once'],
      onExpiry: 'end',
    });
  });

  it('needs the approvers of every policy with a matching rule', () => {
    const user = parseApprovalPolicy(
      { approvers: { me: { key: ADA } }, rules: [{ tool: 'rye/bash', ask: 'me' }] },
      'user',
      AT,
    );
    const made = demandFor([policy([{ tool: 'rye/*', ask: 'lead' }]), user], BASH, [], OWNER);
    expect(made?.requirements.map(({ rule }) => rule)).toEqual(['project rules.0', 'user rules.0']);
  });

  it.each<readonly [string, object, RegExp]>([
    ['an unknown approver', { rules: [{ ask: ['eve'] }] }, /rules\.0 asks "eve"/],
    ['an unknown member', { rule: [] }, /unknown member "rule"/],
    ['no names', { rules: [{ tool: 'x' }] }, /rules\.0\.ask is missing/],
    [
      'too few keys',
      { approvers: { a: { key: ADA }, b: { key: ADA } }, rules: [{ ask: ['a', 'b'], quorum: 2 }] },
      /2 approvers/,
    ],
    [
      'a bad time',
      { rules: [{ ask: ['a'], expires: 'soon' }], approvers: { a: { key: ADA } } },
      /not a time/,
    ],
    ['a bad key', { approvers: { a: { key: 'ada' } } }, /not a key id/],
    [
      'two tests',
      {
        approvers: { a: { key: ADA } },
        rules: [{ ask: 'a', when: { argument: 'x', above: 1, below: 2 } }],
      },
      /exactly one test/,
    ],
    ...['rye/{bash,search}', 'rye/ba?h', 'rye/[b]ash', 'rye/bash ', '!rye/ls'].map(
      (tool): readonly [string, object, RegExp] => [
        `the pattern ${tool}`,
        { approvers: { a: { key: ADA } }, rules: [{ tool, ask: 'a' }] },
        /rules\.0 names the tool .* no ID has/,
      ],
    ),
    [
      'an amount that no call of the tool has',
      { approvers: { a: { key: ADA } }, rules: [{ tool: 'rye/bash', spend_above: 1, ask: 'a' }] },
      /only a child directive has a price/,
    ],
  ])('refuses %s', (_what, file, message) => {
    expect(() => parseApprovalPolicy(file, 'project', AT)).toThrow(message);
  });
});

it('a permission that asks covers what it allows', () => {
  const entries = [{ capability: 'rye.execute.tool.rye.*', source: 'directive', reason: '' }];
  expect(permissionAsks(entries, 'rye.execute.tool.rye.bash')).toHaveLength(1);
  expect(permissionAsks(entries, 'rye.execute.tool.pay.now')).toHaveLength(0);
});

describe('judgeDecisions', () => {
  const ada: Approver = { name: 'ada', key_id: ADA };
  const lead: Approver = { name: 'lead', key_id: LEAD, four_eyes: true };
  const request: ApprovalRequest = {
    format: 1,
    id: 'apr-1',
    kind: 'call',
    thread_id: 't-1',
    root_thread_id: 't-1',
    epoch: 1,
    call_id: 'c-1',
    tool: 'rye/bash',
    capability: 'rye.execute.tool.rye.bash',
    item: { id: 'rye/bash', sha256: 'a' },
    input_sha256: 'b',
    files: [],
    cwd: '/p',
    sandbox: 'off',
    network: 'none',
    worst_case_usd: null,
    reason: '',
    requirements: [{ rule: 'r', approvers: [ada, lead], quorum: 1 }],
    rule: 'r',
    approvers: [ada, lead],
    quorum: 1,
    scopes: ['once', 'arguments'],
    on_expiry: 'deny',
    worker_key_id: '9999999999999999',
    plan_sha256: 'p',
    created_at: '2026-01-01T00:00:00.000Z',
    expires_at: '2026-01-08T00:00:00.000Z',
    log_head: { bytes: 1, seq: 1, sha256: 'h' },
    preview_sha256: 'v',
  };
  const need = (approvers: readonly Approver[], quorum = 1) => ({ rule: 'r', approvers, quorum });
  const of = (changes: Partial<ApprovalRequest> = {}) => ({
    request: { ...request, ...changes },
    request_sha256: 'hash',
  });
  const decide = (key: string, changes: Partial<ApprovalDecision> = {}): ApprovalDecision => ({
    format: 1,
    approval_id: 'apr-1',
    thread_id: 't-1',
    request_sha256: 'hash',
    decision: 'approve',
    scope: 'once',
    constraints: {},
    comment: '',
    decided_at: '2026-01-02T00:00:00.000Z',
    key_id: key,
    ...changes,
  });

  it.each<readonly [string, Partial<ApprovalRequest>, Partial<ApprovalDecision>, RegExp]>([
    ['another request', {}, { request_sha256: 'other' }, /another request/],
    ['another thread', {}, { thread_id: 't-2' }, /names another request/],
    ['a stranger', {}, { key_id: '3333333333333333' }, /not among the approvers/],
    ['the worker under four eyes', { worker_key_id: LEAD }, { key_id: LEAD }, /four eyes/],
    [
      'the worker under four eyes of a requirement',
      {
        worker_key_id: ADA,
        requirements: [{ rule: 'r', approvers: [{ ...ada, four_eyes: true }], quorum: 1 }],
      },
      {},
      /four eyes/,
    ],
    [
      'a late signature',
      {},
      { decided_at: '2026-01-08T00:00:00.000Z' },
      /after the request expired/,
    ],
    ['an answer to a call', {}, { decision: 'answer' }, /only a question/],
    ['an approval of a question', { kind: 'question' }, {}, /needs an answer/],
    ['a wide scope', {}, { scope: 'tool' }, /does not allow the scope tool/],
  ])('%s does not count', (_what, changes, decision, problem) => {
    const judged = of(changes);
    expect(decisionProblem(judged, decide(ADA, decision))).toMatch(problem);
    expect(judgeDecisions(judged, [decide(ADA, decision)]).state).toBe('pending');
  });

  it('the worker counts for the requirement that does not ask for four eyes', () => {
    const strict = { ...ada, four_eyes: true } as const;
    const judged = of({
      worker_key_id: ADA,
      requirements: [need([strict, lead]), need([ada])],
    });
    expect(decisionProblem(judged, decide(ADA))).toBeUndefined();
    // a request of an earlier version has approvers alone
    const before = of({ worker_key_id: ADA, approvers: [strict], requirements: [] });
    expect(decisionProblem(before, decide(ADA))).toMatch(/four eyes/);
  });

  it('one key twice is no quorum; two keys are', () => {
    const judged = of({ requirements: [{ rule: 'r', approvers: [ada, lead], quorum: 2 }] });
    const first = decide(ADA);
    expect(judgeDecisions(judged, [first, { ...first, comment: 'again' }])).toEqual({
      state: 'pending',
      missing: 1,
    });
    expect(judgeDecisions(judged, [first, decide(LEAD)]).state).toBe('approved');
    const another = decide(LEAD, { input: { command: 'ls' } });
    expect(judgeDecisions(judged, [first, another]).state).toBe('pending');
  });

  it('the last word of a person counts: the earlier input has no approval of theirs any more', () => {
    const judged = of({ requirements: [need([ada, lead], 2)] });
    const gives = (key: string, command: string) => decide(key, { input: { command } });
    const all = [gives(ADA, 'x'), gives(ADA, 'y'), gives(LEAD, 'x')];
    expect(judgeDecisions(judged, all).state).toBe('pending');
    const agreed = [...all, gives(LEAD, 'y')];
    expect(judgeDecisions(judged, agreed)).toMatchObject({ input: { command: 'y' } });
  });

  it('an edited input needs its own requirements too', () => {
    const judged = of({ requirements: [need([ada, lead])] });
    const input = { command: 'push' };
    const demands = [{ input, requirements: [need([lead])] }];
    expect(judgeDecisions(judged, [decide(ADA, { input })], demands).state).toBe('pending');
    expect(judgeDecisions(judged, [decide(LEAD, { input })], demands).state).toBe('approved');
    expect(judgeDecisions(judged, [decide(ADA)], demands).state).toBe('approved');
  });

  it.each([
    [[lead, { ...lead, name: 'twin', four_eyes: undefined }]],
    [[{ ...lead, name: 'twin', four_eyes: undefined }, lead]],
  ])('a key that is listed with and without four_eyes observes it, in any order', (both) => {
    const approvers = both.map(({ four_eyes: four, ...one }) =>
      four ? { ...one, four_eyes: four } : one,
    );
    const [first = lead] = approvers;
    const changes = { worker_key_id: LEAD, approvers: [first], requirements: [need(approvers)] };
    expect(judgeDecisions(of(changes), [decide(LEAD)]).state).toBe('pending');
  });

  it('any approver denies, and the narrowest scope and bounds count', () => {
    const judged = of({ requirements: [{ rule: 'r', approvers: [ada, lead], quorum: 2 }] });
    const wide = decide(ADA, { scope: 'arguments', constraints: { uses: 5 } });
    const narrow = decide(LEAD, { constraints: { uses: 2, until: '2026-01-03T00:00:00.000Z' } });
    expect(judgeDecisions(judged, [wide, narrow])).toMatchObject({
      state: 'approved',
      scope: 'once',
      constraints: { uses: 2, until: '2026-01-03T00:00:00.000Z' },
    });
    const no = decide(LEAD, { decision: 'deny', comment: 'no' });
    expect(judgeDecisions(judged, [wide, no])).toEqual({
      state: 'denied',
      by: 'lead',
      comment: 'no',
    });
  });

  it('of the bounds of several approvers the narrowest counts', () => {
    const judged = of({ requirements: [{ rule: 'r', approvers: [ada, lead], quorum: 2 }] });
    const [soon, late] = ['2026-01-03T00:00:00.000Z', '2026-01-04T00:00:00.000Z'];
    const one = { uses: 2, until: late, spend_usd: 1 };
    const other = { uses: 3, until: soon, spend_usd: 2 };
    const least = { uses: 2, until: soon, spend_usd: 1 };
    const pairs = [
      [one, other],
      [other, one],
      [{}, least],
    ] as const;
    for (const [left, right] of pairs) {
      const decisions = [decide(ADA, { constraints: left }), decide(LEAD, { constraints: right })];
      expect(judgeDecisions(judged, decisions)).toMatchObject({ constraints: least });
    }
  });

  it.each<readonly [string, Partial<ApprovalRequest>, RegExp | undefined]>([
    ['two able approvers', {}, undefined],
    ['one left by four eyes', { worker_key_id: LEAD }, undefined],
    [
      'none left by four eyes',
      { worker_key_id: LEAD, requirements: [need([lead])] },
      /lead may not/,
    ],
    ['two names of one key', { requirements: [need([ada, { ...ada, name: 'a' }], 2)] }, /1 can/],
    ['one rule of two', { requirements: [need([ada]), need([lead], 2)] }, /2 approvers/],
    [
      'no approver',
      { requirements: [need([])] },
      /r needs 1 approver for rye\.execute.* 0 can decide/,
    ],
  ])('%s: a request is reachable or not', (_what, changes, reason) => {
    const found = unreachableReason({ ...request, ...changes });
    if (reason === undefined) expect(found).toBeUndefined();
    else expect(found).toMatch(reason);
  });

  it('every requirement needs its own quorum', () => {
    const requirements = [
      { rule: 'a', approvers: [ada], quorum: 1 },
      { rule: 'b', approvers: [lead], quorum: 1 },
    ];
    expect(judgeDecisions(of({ requirements }), [decide(ADA)]).state).toBe('pending');
    expect(judgeDecisions(of({ requirements: [] }), [decide(ADA)]).state).toBe('pending');
  });

  it.each<readonly [ApprovalScope, object, number, number, string | undefined]>([
    ['once', {}, 0, 0, undefined],
    ['once', {}, 1, 0, 'its uses are used up'],
    ['tool', {}, 99, 0, undefined],
    ['tool', { uses: 2 }, 2, 0, 'its uses are used up'],
    ['tool', { until: '2026-01-01T00:00:00.000Z' }, 0, 0, 'its time is over'],
    ['tool', { spend_usd: 1 }, 1, 0.6, 'its money is used up'],
    ['tool', { spend_usd: 1 }, 1, 0.5, undefined],
  ])('%s %o after %d uses and %d USD: %s', (scope, constraints, uses, spendUsd, end) => {
    const next = { now: '2026-01-02T00:00:00.000Z', worstCaseUsd: 0.5 };
    expect(exhaustion({ scope, constraints }, { uses, spendUsd }, next)).toBe(end);
  });
});
