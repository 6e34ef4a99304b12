import { describe, expect, it } from 'vitest';
import type { RunProof } from '../../src/kernel/core/delivery.ts';
import type { HookDeclaration } from '../../src/kernel/core/hook.ts';
import {
  decideSteer,
  riskOf,
  runTraits,
  type SteerFacts,
  settleDelivery,
  TEXT_NEEDS,
} from '../../src/kernel/policy/steer.ts';

const NOW = 1_700_000_000_000;

const PROOF: RunProof = {
  thread_id: 't',
  epoch: 1,
  active_run_id: 'run-1',
  active_run_kind: 'regular',
  requires_approval: false,
  requires_network: false,
  requires_write_access: false,
  risk_class: 'read_only_low_risk',
  steerable: true,
  revision: 1,
  observed_at: NOW,
  valid_until: NOW + 1000,
  answer_boundary_passed: false,
  after_tool_batch: true,
  pending_approvals: 0,
  open_tool_calls: 0,
};

const GOOD: SteerFacts = {
  rules: { enabled: true, minIntervalMs: 1000, proofMs: 1000 },
  delivery: {
    state: 'queued',
    mode: 'auto',
    class: 'background',
    attempts: 0,
    max_attempts: 3,
    requires_artifact: false,
    entry_id: null,
  },
  isHead: true,
  hasUnresolvedAttempt: false,
  lastSentAt: undefined,
  needs: TEXT_NEEDS,
  threadId: 't',
  epoch: 1,
  proofs: [PROOF],
  now: NOW,
};

function given(changes: Partial<SteerFacts>): SteerFacts {
  return { ...GOOD, ...changes };
}

function delivery(changes: Partial<SteerFacts['delivery']>): SteerFacts {
  return given({ delivery: { ...GOOD.delivery, ...changes } });
}

function proof(changes: Partial<RunProof>): SteerFacts {
  return given({ proofs: [{ ...PROOF, ...changes }] });
}

describe('the decision table of an active-turn steer', () => {
  it.each<readonly [row: number, outcome: string, what: string, facts: SteerFacts]>([
    [1, 'idle', 'the switch is off', given({ rules: { ...GOOD.rules, enabled: false } })],
    [1, 'idle', 'it wants to wait', delivery({ mode: 'idle' })],
    [1, 'idle', 'it is a follow-up', delivery({ mode: 'follow-up' })],
    [2, 'idle', 'no process holds the thread', given({ epoch: 0 })],
    [3, 'hold', 'it is not the head', given({ isHead: false })],
    [3, 'hold', 'a person has to decide', delivery({ state: 'manual' })],
    [3, 'hold', 'it is closed', delivery({ state: 'closed' })],
    [3, 'hold', 'it is in the log already', delivery({ entry_id: 'e' })],
    [4, 'hold', 'an attempt is unresolved', given({ hasUnresolvedAttempt: true })],
    [5, 'manual', 'the attempts are used up', delivery({ attempts: 3 })],
    [6, 'hold', 'the last steer was too recent', given({ lastSentAt: NOW - 999 })],
    [7, 'idle', 'it writes', given({ needs: { ...TEXT_NEEDS, requires_write_access: true } })],
    [
      7,
      'idle',
      'it needs the network',
      given({ needs: { ...TEXT_NEEDS, requires_network: true } }),
    ],
    [
      7,
      'idle',
      'it asks for approval',
      given({ needs: { ...TEXT_NEEDS, requires_approval: true } }),
    ],
    [
      7,
      'idle',
      'its needs are unknown',
      given({ needs: { ...TEXT_NEEDS, requires_network: null } }),
    ],
    [8, 'idle', 'it is large', delivery({ requires_artifact: true })],
    [9, 'idle', 'the proof is of another thread', proof({ thread_id: 'other' })],
    [9, 'idle', 'the proof is of another epoch', proof({ epoch: 2 })],
    [9, 'idle', 'the proof is stale', given({ now: NOW + 1001 })],
    [9, 'idle', 'the proof is of the future', proof({ observed_at: NOW + 1 })],
    [10, 'idle', 'no run is open', given({ proofs: [] })],
    [11, 'idle', 'two runs claim the thread', given({ proofs: [PROOF, PROOF] })],
    [11, 'idle', 'the run has no id', proof({ active_run_id: '' })],
    [12, 'idle', 'the run is a delivery', proof({ active_run_kind: 'delivery' })],
    [12, 'idle', 'the run is a compaction', proof({ active_run_kind: 'compact' })],
    [12, 'idle', 'the kind is unknown', proof({ active_run_kind: 'unknown' })],
    [13, 'idle', 'it is not steerable', proof({ steerable: false })],
    [13, 'idle', 'steerable is unknown', proof({ steerable: null })],
    [13, 'idle', 'the final answer is given', proof({ answer_boundary_passed: true })],
    [13, 'idle', 'not at the end of a batch', proof({ after_tool_batch: false })],
    [13, 'idle', 'a call is open', proof({ open_tool_calls: 1 })],
    [13, 'idle', 'an approval is pending', proof({ pending_approvals: 1 })],
    [14, 'idle', 'the run may write', proof({ requires_write_access: true })],
    [14, 'idle', 'the run may reach the network', proof({ requires_network: true })],
    [14, 'idle', 'the run may ask for approval', proof({ requires_approval: true })],
    [14, 'idle', 'a trait is unknown', proof({ requires_write_access: null })],
    [15, 'idle', 'the risk is elevated', proof({ risk_class: 'elevated' })],
    [15, 'idle', 'the risk is unknown', proof({ risk_class: 'unknown' })],
    [16, 'steer', 'everything is proven', GOOD],
    [16, 'steer', 'the last steer is long ago', given({ lastSentAt: NOW - 1000 })],
  ])('row %i: %s, because %s', (row, outcome, _what, facts) => {
    expect(decideSteer(facts)).toMatchObject({ row, outcome });
  });

  it('is read from top to bottom', () => {
    const all = given({
      ...delivery({ attempts: 3 }),
      isHead: false,
      proofs: [],
      rules: { ...GOOD.rules, enabled: false },
    });
    expect(decideSteer(all).row).toBe(1);
    expect(decideSteer({ ...all, rules: GOOD.rules }).row).toBe(3);
    expect(decideSteer({ ...all, rules: GOOD.rules, isHead: true }).row).toBe(5);
  });
});

describe('what a run may do', () => {
  const reads = { readsOnly: true, network: false };

  it.each([
    ['only readers', [reads, reads], [false, false, 'read_only_low_risk']],
    ['no tools', [], [false, false, 'read_only_low_risk']],
    ['a writer', [reads, { readsOnly: false, network: false }], [false, true, 'elevated']],
    ['a reader of the network', [{ readsOnly: true, network: true }], [true, false, 'elevated']],
    ['one that declares nothing', [reads, undefined], [null, null, 'unknown']],
    [
      'a writer beside one that declares nothing',
      [{ readsOnly: false, network: false }, undefined],
      [null, true, 'elevated'],
    ],
  ] as const)('with %s', (_what, tools, [network, write, risk]) => {
    const traits = runTraits(tools, []);
    expect(traits).toEqual({
      requires_approval: false,
      requires_network: network,
      requires_write_access: write,
    });
    expect(riskOf(traits)).toBe(risk);
  });

  it('asks for approval where an enabled hook can suspend it', () => {
    const hook: HookDeclaration = {
      id: 'ask',
      event: 'tool_gate',
      layer: 3,
      actions: [{ kind: 'control', action: { control: 'suspend' } }],
      position: 'after',
      wrap: true,
      enabled: true,
      timeout_seconds: 30,
      origin: 'hooks.yaml:1',
    };
    expect(runTraits([], [hook]).requires_approval).toBe(true);
    expect(runTraits([], [{ ...hook, enabled: false }]).requires_approval).toBe(false);
    // that one stops the thread, it does not ask before an action
    expect(runTraits([], [{ ...hook, event: 'limit' }]).requires_approval).toBe(false);
  });
});

describe('settleDelivery', () => {
  it.each([
    ['completed', 'covered', 'delivered', 'delivered'],
    ['completed', 'requested', 'abandoned', 'manual'],
    ['completed', 'unseen', 'abandoned', 'queued'],
    ['failed', 'covered', 'abandoned', 'manual'],
    ['failed', 'requested', 'abandoned', 'manual'],
    ['failed', 'unseen', 'abandoned', 'queued'],
    ['interrupted', 'covered', 'abandoned', 'manual'],
    ['interrupted', 'requested', 'abandoned', 'manual'],
    ['interrupted', 'unseen', 'abandoned', 'queued'],
    ['replaced', 'covered', 'abandoned', 'manual'],
    ['replaced', 'requested', 'abandoned', 'manual'],
    ['replaced', 'unseen', 'abandoned', 'manual'],
  ] as const)('when the run is %s and the entry is %s: %s, %s', (end, entry, attempt, state) => {
    const known = { isCovered: entry === 'covered', isRequested: entry !== 'unseen' };
    expect(settleDelivery(end, known)).toMatchObject({ attempt, delivery: state });
  });
});
