import { generateKeyPairSync } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { openOrder, signOrder } from '../../src/features/fleet/schedule-order.ts';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import type { PayloadVerifier } from '../../src/kernel/core/signing.ts';
import { readPrivateKey } from '../../src/kernel/trust/keys.ts';
import { payloadSigner } from '../../src/kernel/trust/payloads.ts';

const now = '2026-11-24T05:00:00.000Z';
const entry = { cron: '30 2 * * *', timezone: 'Europe/Berlin', directive: 'reports/weekly' };

function person() {
  const { privateKey } = generateKeyPairSync('ed25519');
  return readPrivateKey(String(privateKey.export({ type: 'pkcs8', format: 'pem' })), 'a key');
}

const ada = person();
const eve = person();
const keys: PayloadVerifier = {
  find: (keyId) =>
    keyId === ada.keyId
      ? {
          verify: (payload, signature) => payloadSigner(ada).sign(payload) === signature,
        }
      : 'key_untrusted',
};
const payload = signOrder('nightly', entry, { signer: payloadSigner(ada), now });
const firing = { schedule: 'nightly', at: '2027-03-28T01:00:00.000Z' };

/** Returns the payload with another member in its order. */
function changedOrder(change: (order: Record<string, unknown>) => void): JsonObject {
  const copy = structuredClone(payload) as { schedule_order: { order: Record<string, unknown> } };
  change(copy.schedule_order.order);
  return copy as unknown as JsonObject;
}

describe('the order of a schedule', () => {
  it('opens with the schedule that a trusted person signed, also at a time that the clocks skip', () => {
    expect(openOrder({ payload, firing }, keys)).toMatchObject({ name: 'nightly', entry });
  });

  it.each([
    ['no order', {}, firing, 'signature_invalid'],
    ['half an order', { schedule_order: { order: {} } }, firing, 'signature_invalid'],
    [
      'another directive',
      changedOrder((order) => {
        order['schedule'] = { ...entry, directive: 'reports/evil' };
      }),
      firing,
      'signature_invalid',
    ],
    [
      'another purpose',
      changedOrder((order) => {
        order['domain'] = 'rye-approval-v1';
      }),
      firing,
      'signature_invalid',
    ],
    [
      'a stranger',
      signOrder('nightly', entry, { signer: payloadSigner(eve), now }),
      firing,
      'key_untrusted',
    ],
    ['another name', payload, { ...firing, schedule: 'hourly' }, 'signature_invalid'],
    ['no firing', payload, undefined, 'signature_invalid'],
    ['another time', payload, { ...firing, at: '2027-03-28T02:00:00.000Z' }, 'invalid_input'],
    ['no time', payload, { ...firing, at: 'now' }, 'invalid_input'],
  ] as const)('is refused with %s', (_what, given, at, code) => {
    const leg = at ? { payload: given, firing: at } : { payload: given };
    expect(() => openOrder(leg, keys)).toThrow(expect.objectContaining({ code }));
  });
});
