import { describe, expect, it, test } from 'vitest';
import type {
  ApprovalDecided,
  ApprovalRequest,
  ApprovalScope,
  RequestedApproval,
} from '../../src/kernel/core/approval.ts';
import { isAgreed, isCovered, isWide } from '../../src/kernel/threads/run/approval-cover.ts';
import { ApprovalHistory } from '../../src/kernel/threads/run/approval-history.ts';
import { canonicalSha256 } from '../../src/kernel/trust/approval.ts';

const INPUT = { command: 'make' };
const OTHER = { command: 'make clean' };

const REQUEST: ApprovalRequest = {
  format: 1,
  id: 'apr-1',
  epoch: 1,
  created_at: '2026-11-01T00:00:00.000Z',
  expires_at: '2026-11-02T00:00:00.000Z',
  log_head: { bytes: 1, seq: 1, sha256: 'a' },
  preview_sha256: 'b',
  kind: 'call',
  thread_id: 't',
  root_thread_id: 't',
  call_id: 'one',
  tool: 'rye/bash',
  capability: 'rye.execute.tool.rye.bash',
  item: { id: 'rye/bash', sha256: 'c' },
  input_sha256: canonicalSha256(INPUT),
  files: [{ path: 'a.txt', sha256: 'd', real: 'a.txt', folder: '1:2' }],
  cwd: '/project',
  sandbox: 'off',
  network: 'none',
  worst_case_usd: 0.25,
  reason: 'risk',
  requirements: [],
  rule: 'me',
  approvers: [],
  quorum: 1,
  scopes: ['once', 'arguments', 'tool'],
  on_expiry: 'deny',
  worker_key_id: 'k',
  plan_sha256: 'p',
};

describe('an approval covers a later call', () => {
  it('with other input and other bytes of its files', () => {
    const later = { ...REQUEST, call_id: 'two', input_sha256: 'x', reason: 'other' };
    expect(isCovered(REQUEST, later)).toBe(true);
    expect(isCovered(REQUEST, { ...later, files: [{ path: 'b.txt', sha256: null }] })).toBe(true);
    const changed = [{ path: 'a.txt', sha256: 'z', real: 'a.txt', folder: '1:2' }];
    expect(isCovered(REQUEST, { ...later, files: changed })).toBe(true);
  });

  test.each<readonly [string, Partial<ApprovalRequest>]>([
    ['kind', { kind: 'question' }],
    ['thread', { thread_id: 'u' }],
    ['tool', { tool: 'rye/bash2' }],
    ['capability', { capability: 'rye.execute.tool.rye.other' }],
    ['bytes of the tool', { item: { id: 'rye/bash', sha256: 'z' } }],
    ['folder to work in', { cwd: '/elsewhere' }],
    ['sandbox', { sandbox: 'required' }],
    ['network', { network: ['example.com'] }],
    ['demands', { requirements: [{ rule: 'new', approvers: [], quorum: 2 }] as never }],
    ['worker', { worker_key_id: 'l' }],
    ['plan', { plan_sha256: 'q' }],
    ['place of a file', { files: [{ path: 'a.txt', sha256: 'd', real: 'b', folder: '1:2' }] }],
    ['folder of a file', { files: [{ path: 'a.txt', sha256: 'd', real: 'a.txt', folder: '9' }] }],
  ])('but not with another %s', (_, change) => {
    expect(isCovered(REQUEST, { ...REQUEST, call_id: 'two', ...change })).toBe(false);
  });

  const approved = (scope: ApprovalScope, input?: typeof INPUT) =>
    ({ state: 'approved', scope, constraints: {}, comment: '', ...(input && { input }) }) as const;

  test.each<readonly [ApprovalScope, typeof INPUT | undefined, typeof INPUT, boolean]>([
    ['once', undefined, INPUT, false],
    ['arguments', undefined, INPUT, true],
    ['arguments', undefined, OTHER, false],
    ['tool', undefined, OTHER, true],
    // a person who gives another input agrees to that one alone
    ['arguments', OTHER, OTHER, true],
    ['arguments', OTHER, INPUT, false],
    ['tool', OTHER, INPUT, false],
    ['once', OTHER, OTHER, false],
  ])('by the scope %s and the given input %j, with %j: %s', (scope, given, input, isIt) => {
    expect(isWide(approved(scope, given), REQUEST, canonicalSha256(input))).toBe(isIt);
  });

  it('only if it runs with the input that was agreed to', () => {
    expect(isAgreed(approved('once'), REQUEST, INPUT)).toBe(true);
    expect(isAgreed(approved('once'), REQUEST, OTHER)).toBe(false);
    expect(isAgreed(approved('once', OTHER), REQUEST, OTHER)).toBe(true);
    expect(isAgreed(approved('once', OTHER), REQUEST, INPUT)).toBe(false);
    expect(isAgreed({ state: 'pending', missing: 1 }, REQUEST, INPUT)).toBe(false);
  });
});

describe('the history of requests', () => {
  const requested: RequestedApproval = {
    request: REQUEST,
    request_sha256: 'r',
    input: INPUT,
    preview: { format: 'text', text: 'make' } as never,
  };
  const decided = (outcome: ApprovalDecided['outcome']): ApprovalDecided => ({
    approval_id: 'apr-1',
    request_sha256: 'r',
    outcome,
    decisions: [],
  });
  const use = (usd?: number) => ({
    approval_id: 'apr-1',
    request_sha256: 'r',
    ...(usd === undefined ? {} : { worst_case_usd: usd }),
  });

  it('keeps the first decision', () => {
    const history = new ApprovalHistory();
    history.request(requested);
    expect([history.open().length, history.openFor('one')?.requested.request.id]).toEqual([
      1,
      'apr-1',
    ]);
    history.decide(decided('denied'));
    history.decide(decided('approved'));
    expect([history.open(), history.approved()]).toEqual([[], []]);
    expect(history.find('apr-1')?.decided?.outcome).toBe('denied');
  });

  it('adds up what the calls that used a decision may have cost, each call once', () => {
    const history = new ApprovalHistory();
    const known = history.request(requested);
    history.use(use(0.5), 'one');
    history.use(use(0.5), 'one');
    history.use(use(), 'two');
    expect([known.usedBy.size, known.spendUsd]).toEqual([2, 0.75]);
  });
});
