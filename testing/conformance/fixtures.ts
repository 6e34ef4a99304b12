import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  sign,
  verify,
} from 'node:crypto';
import canonicalize from 'canonicalize';
import type { Clock } from '../../src/kernel/core/clock.ts';
import type { EventDraft, LogHeader } from '../../src/kernel/core/events.ts';
import type { IdSource } from '../../src/kernel/core/ids.ts';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import type { PayloadSigner, PayloadVerifier } from '../../src/kernel/core/signing.ts';
import { NO_COST } from '../../src/kernel/core/usage.ts';
import type { EnqueueParams, RunKey, SteerParams } from '../../src/kernel/storage/deliveries.ts';
import type {
  LogReopenOptions,
  Owner,
  OwnerColumns,
  RegisterParams,
  Store,
} from '../../src/kernel/storage/store.ts';

/** Opens an empty store, which is closed after the test. */
export type OpenStore = () => Promise<Store>;

export const T0 = '2026-02-17T10:00:00.000Z';
export const T1 = '2026-02-17T10:00:01.000Z';
export const T2 = '2026-02-17T10:00:02.000Z';
export const COST = { ...NO_COST, turns: 2, spend: 0.25 };

/** A clock that does not move; storage never waits on it. */
export const STOPPED: Clock = {
  now: () => Date.parse('2026-02-17T10:00:56.000Z'),
  monotonic: () => 0,
  sleep: async () => {},
};

export function countingIds(): IdSource {
  let count = 0;
  const next = (): string => {
    count += 1;
    return count.toString(16).padStart(16, '0');
  };
  return { entryId: next, uuid: next };
}

/** Parameters of a root thread without an owner. */
export function threadParams(
  threadId: string,
  changes: Partial<RegisterParams> = {},
): RegisterParams {
  const base = { directive: 'demo/count', parentId: null, model: 'm', now: T0, owner: null };
  return { threadId, ...base, ...changes };
}

/** Returns an owner whose process has ended: the pid is in use again. */
export function goneOwner({ owners }: Pick<Store, 'owners'>): Owner {
  return ownerLike(owners, { process_start: 'before' });
}

/** Returns an owner on another host. */
export function otherHost({ owners }: Pick<Store, 'owners'>): Owner {
  return ownerLike(owners, { host: 'another.host' });
}

function ownerLike(owners: Store['owners'], changes: Partial<OwnerColumns>): Owner {
  const owner = owners.ofRecord({ ...owners.columns(owners.self()), ...changes });
  if (!owner) throw new Error('ofRecord() returns no owner for a record that names one');
  return owner;
}

export interface TestKey {
  readonly signer: PayloadSigner;
  readonly verifier: PayloadVerifier;
  /** Makes the same key in another process. */
  readonly privatePem: string;
}

/** A signer and the verifier that trusts it, made of Node's crypto alone. */
export function testKey(privatePem?: string): TestKey {
  const privateKey =
    privatePem === undefined
      ? generateKeyPairSync('ed25519').privateKey
      : createPrivateKey(privatePem);
  const publicKey = createPublicKey(privateKey);
  const pem = publicKey.export({ type: 'spki', format: 'pem' });
  const keyId = createHash('sha256').update(pem).digest('hex').slice(0, 16);
  const bytes = (payload: JsonObject): Buffer => Buffer.from(canonicalize(payload) ?? '');
  return {
    privatePem: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
    signer: {
      keyId,
      sign: (payload) => sign(null, bytes(payload), privateKey).toString('base64url'),
    },
    verifier: {
      find(signedBy) {
        if (signedBy !== keyId) return 'key_untrusted';
        return {
          verify: (payload, signature) =>
            verify(null, bytes(payload), publicKey, Buffer.from(signature, 'base64url')),
        };
      },
    },
  };
}

/** Options of a writer that this process owns. */
export function writerOptions(
  { owners }: Pick<Store, 'owners'>,
  changes: Partial<LogReopenOptions> = {},
): LogReopenOptions {
  const { signer, verifier } = testKey();
  const base = { signer, verifier, durability: 'turn', owner: owners.self(), epoch: 1 } as const;
  return { ...base, ...changes };
}

/** The default thread of a log. */
export const THREAD = 'demo/count-1771322456';

export function headerFor(threadId = THREAD): LogHeader {
  return {
    event_type: 'thread',
    version: 1,
    thread_id: threadId,
    directive: 'demo/count',
    created_at: '2026-02-17T10:00:56.000Z',
  };
}

export function delta(text: string): EventDraft {
  return { event_type: 'token_delta', payload: { text } };
}

export function userMessage(text: string): EventDraft {
  return {
    event_type: 'message',
    payload: { message: { role: 'user', content: [{ type: 'text', text }] } },
  };
}

/** Counts the promises that were fulfilled, and checks the code of the others. */
export function fulfilled(
  outcomes: readonly PromiseSettledResult<unknown>[],
  code: string,
): number {
  for (const outcome of outcomes) {
    if (outcome.status === 'fulfilled') continue;
    const found = (outcome.reason as { readonly code?: unknown }).code;
    if (found !== code) throw outcome.reason;
  }
  return outcomes.filter(({ status }) => status === 'fulfilled').length;
}

export const READS_ONLY = {
  requires_approval: false,
  requires_network: false,
  requires_write_access: false,
};
export const NOTHING_CARRIED = { carried: new Set<string>(), from: [] };

export function fromPerson(id: string, changes: Partial<EnqueueParams> = {}): EnqueueParams {
  return {
    deliveryId: id,
    threadId: 'a-1',
    class: 'person',
    kind: 'steer',
    mode: 'auto',
    source: 'person',
    text: `text of ${id}`,
    requiresArtifact: false,
    now: T0,
    ...changes,
  };
}

export function fromThread(id: string, changes: Partial<EnqueueParams> = {}): EnqueueParams {
  return fromPerson(id, { class: 'background', kind: 'message', source: 'b-1', ...changes });
}

/** A thread that runs, with an open run. */
export async function running(
  { registry, deliveries, owners }: Store,
  threadId = 'a-1',
): Promise<RunKey> {
  await registry.register(threadParams(threadId));
  const { epoch } = await registry.claim(threadId, owners.self(), T0);
  const key = { threadId, epoch, runId: `run of ${threadId}` };
  await deliveries.openRun({ ...key, ...NOTHING_CARRIED, traits: READS_ONLY, now: T0 });
  return key;
}

export const NOW_MS = Date.parse(T1);
export const POINT = {
  observed_at: NOW_MS,
  valid_until: NOW_MS + 1000,
  answer_boundary_passed: false,
  after_tool_batch: true,
  pending_approvals: 0,
  open_tool_calls: 0,
};

export function steer(key: RunKey, changes: Partial<SteerParams> = {}): SteerParams {
  return {
    key,
    point: POINT,
    rules: { enabled: true, minIntervalMs: 0, proofMs: 1000 },
    now: T1,
    nowMs: NOW_MS,
    ids: { attempt: () => 'attempt-1', entry: () => 'steered' },
    ...changes,
  };
}
