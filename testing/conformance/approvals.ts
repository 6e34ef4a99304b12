import { expect, it } from 'vitest';
import type { ApprovalRequest, RequestedApproval, SignedDecision } from '../../src/kernel/core/approval.ts';
import { type OpenStore, T0, T1, T2 } from './fixtures.ts';

const EXPIRY = '2026-02-24T10:00:00.000Z';
const SHA256 = '0'.repeat(64);

/** Returns a request as a thread makes it; stores check no hashes. */
export function requestedApproval(
  id: string,
  changes: Partial<Pick<ApprovalRequest, 'thread_id' | 'created_at' | 'expires_at'>> = {},
): RequestedApproval {
  return {
    request: {
      format: 1,
      id,
      kind: 'call',
      thread_id: 'a-1',
      root_thread_id: 'a-1',
      epoch: 1,
      call_id: `call of ${id}`,
      tool: 'rye/bash',
      capability: 'rye.execute.tool.rye.bash',
      item: { id: 'rye/bash', sha256: SHA256 },
      input_sha256: SHA256,
      files: [],
      cwd: '/project',
      sandbox: 'off',
      network: 'any',
      worst_case_usd: null,
      reason: '',
      requirements: [],
      rule: '',
      approvers: [],
      quorum: 1,
      scopes: ['once'],
      on_expiry: 'deny',
      worker_key_id: '0'.repeat(16),
      plan_sha256: SHA256,
      created_at: T0,
      expires_at: EXPIRY,
      log_head: { bytes: 1, seq: 1, sha256: SHA256 },
      preview_sha256: SHA256,
      ...changes,
    },
    request_sha256: SHA256,
    input: { command: 'echo "ü\u0000"' },
    preview: { title: 'Run a command', format: 'command', text: 'echo' },
  };
}

/** Returns a decision; stores check no signatures. */
export function signedDecision(id: string, signature: string): SignedDecision {
  return {
    decision: {
      format: 1,
      approval_id: id,
      thread_id: 'a-1',
      request_sha256: SHA256,
      decision: 'approve',
      scope: 'once',
      constraints: {},
      comment: '',
      decided_at: T1,
      key_id: '0'.repeat(16),
    },
    public_key: 'a key',
    signature,
  };
}

/** Requests for decisions of people, and what they decided. */
export function approvalCases(open: OpenStore): void {
  const ids = (found: readonly RequestedApproval[]): readonly string[] =>
    found.map(({ request }) => request.id);

  it('keep a request as it was made, and as it was first', async () => {
    const { approvals } = await open();
    const requested = requestedApproval('apr-1');
    await approvals.add([requested]);
    await approvals.add([{ ...requested, input: { command: 'another' } }]);
    expect(await approvals.get('apr-1')).toEqual({
      ...requested,
      state: 'pending',
      closed_at: null,
      decisions: [],
    });
    expect(await approvals.get('apr-2')).toBeUndefined();
    expect(await approvals.decide('apr-2', signedDecision('apr-2', 's'), T1)).toBeUndefined();
    expect(await approvals.close('apr-2', 'denied', T1)).toBe(false);
  });

  it('are found by thread, state and the beginning of their ids, oldest first', async () => {
    const { approvals } = await open();
    await approvals.add([
      requestedApproval('apr-3', { created_at: T2 }),
      requestedApproval('apr-31', { created_at: T0 }),
      requestedApproval('apr-4', { created_at: T1, thread_id: 'b-1' }),
    ]);
    expect(await approvals.close('apr-31', 'withdrawn', T2)).toBe(true);
    expect(ids(await approvals.list({}))).toEqual(['apr-31', 'apr-4', 'apr-3']);
    expect(ids(await approvals.list({ threadId: 'a-1' }))).toEqual(['apr-31', 'apr-3']);
    expect(ids(await approvals.list({ state: 'pending' }))).toEqual(['apr-4', 'apr-3']);
    expect(ids(await approvals.list({ threadId: 'b-1', state: 'withdrawn' }))).toEqual([]);
    expect(await approvals.pendingIds('a-1')).toEqual(['apr-3']);
    expect([...(await approvals.findIds('apr-3', 5))].toSorted()).toEqual(['apr-3', 'apr-31']);
    expect(await approvals.findIds('apr-', 2)).toHaveLength(2);
    expect(await approvals.findIds('%', 2)).toEqual([]);
  });

  it('have decisions in the order in which they came, each once', async () => {
    const { approvals } = await open();
    await approvals.add([requestedApproval('apr-1')]);
    for (const signature of ['first', 'second', 'first']) {
      await approvals.decide('apr-1', signedDecision('apr-1', signature), T1);
    }
    const found = await approvals.get('apr-1');
    expect(found?.decisions).toEqual(
      ['first', 'second'].map((signature) => {
        return { signed: signedDecision('apr-1', signature), recorded_at: T1, late: false };
      }),
    );
  });

  it('are closed once, and keep later decisions as late ones', async () => {
    const { approvals } = await open();
    await approvals.add([requestedApproval('apr-1')]);
    await approvals.decide('apr-1', signedDecision('apr-1', 'in time'), T1);
    expect(await approvals.close('apr-1', 'approved', T1)).toBe(true);
    expect(await approvals.close('apr-1', 'denied', T2)).toBe(false);
    const late = await approvals.decide('apr-1', signedDecision('apr-1', 'late'), T2);
    expect(late).toMatchObject({ state: 'approved', closed_at: T1 });
    expect(late?.decisions.map((one) => one.late)).toEqual([false, true]);
  });

  it('take a decision at the time of the expiry or later as a late one', async () => {
    const { approvals } = await open();
    await approvals.add([requestedApproval('apr-1', { expires_at: T1 })]);
    await approvals.decide('apr-1', signedDecision('apr-1', 'in time'), T0);
    const found = await approvals.decide('apr-1', signedDecision('apr-1', 'late'), T1);
    expect(found?.decisions.map((one) => one.late)).toEqual([false, true]);
    expect(found?.state).toBe('pending');
  });

  it('are opened again only with the decisions that were seen', async () => {
    const { approvals } = await open();
    await approvals.add([requestedApproval('apr-1')]);
    expect(await approvals.reopen('apr-1', 0)).toBe(false);
    await approvals.decide('apr-1', signedDecision('apr-1', 'one'), T1);
    await approvals.close('apr-1', 'approved', T1);
    expect(await approvals.reopen('apr-1', 0)).toBe(false);
    expect(await approvals.reopen('apr-1', 1)).toBe(true);
    expect(await approvals.get('apr-1')).toMatchObject({ state: 'pending', closed_at: null });
    expect(await approvals.reopen('apr-2', 0)).toBe(false);
  });
}
