import { RyeError } from '../../kernel/core/errors.ts';
import { isJsonObject, isRecord, type JsonObject } from '../../kernel/core/json.ts';
import type { PayloadSigner, PayloadVerifier } from '../../kernel/core/signing.ts';
import { readSchedules, type Schedule } from '../../kernel/schedules/schedule.ts';
import type { ScheduleEntry } from '../../kernel/schemas/schedules.ts';
import type { LegSpec } from '../../kernel/storage/fleet-queue.ts';
import { TRUST_HINT } from '../../kernel/trust/policy.ts';

/** Keeps what is signed here apart from everything else that the same keys sign. */
const DOMAIN = 'rye-schedule-order-v1';

/** A schedule with the signature of the person who added it, as the payload of its firings carries it. */
interface SignedOrder {
  readonly order: JsonObject;
  readonly key_id: string;
  readonly signature: string;
}

/** Returns the payload of a schedule's firings. `now`: ISO 8601, UTC. */
export function signOrder(
  name: string,
  entry: ScheduleEntry,
  { signer, now }: { readonly signer: PayloadSigner; readonly now: string },
): JsonObject {
  const order = { domain: DOMAIN, name, schedule: entry as unknown as JsonObject, timestamp: now };
  return { schedule_order: { order, key_id: signer.keyId, signature: signer.sign(order) } };
}

/**
 * Returns the schedule of a firing. The server is a courier: throws `signature_invalid`, or the refusal of the key, unless
 * a trusted person signed this schedule under this name, and `invalid_input` for a time that it does not have.
 */
export function openOrder(
  { payload, firing }: Pick<LegSpec, 'payload' | 'firing'>,
  keys: PayloadVerifier,
): Schedule {
  const signed = orderOf(payload);
  const { order, key_id: keyId, signature } = signed;
  const key = keys.find(keyId);
  if (typeof key === 'string')
    throw new RyeError(key, `the schedule is signed by key ${keyId}, which is not trusted here`, {
      hint: TRUST_HINT,
    });
  const { domain, name, schedule } = order;
  if (domain !== DOMAIN || !key.verify(order, signature) || typeof name !== 'string')
    throw changed('the signature does not match');
  if (firing?.schedule !== name) throw changed(`it is signed as ${JSON.stringify(name)}`);
  const [read] = readSchedules({ schedules: { [name]: schedule } }, `the order of ${name}`);
  if (!read) throw changed('it has no schedule');
  const at = Date.parse(firing.at);
  if (Number.isNaN(at) || read.times.next(at - 1) !== at)
    throw new RyeError('invalid_input', `the schedule ${name} has no time ${firing.at}`, {
      hint: `Add it again: rye schedule remove ${name}`,
    });
  return read;
}

function orderOf(payload: JsonObject): SignedOrder {
  const { schedule_order: signed }: { readonly schedule_order?: unknown } = payload;
  if (!isRecord(signed)) throw changed('it has no signed order');
  const { order, key_id, signature }: { readonly [K in keyof SignedOrder]?: unknown } = signed;
  if (!isJsonObject(order) || typeof key_id !== 'string' || typeof signature !== 'string')
    throw changed('its signed order is malformed');
  return { order, key_id, signature };
}

function changed(problem: string): RyeError {
  return new RyeError('signature_invalid', `a firing is refused: ${problem}`, {
    hint: 'Add the schedule again; look for who can write to the database.',
  });
}
