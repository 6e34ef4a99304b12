import { describe, expect, test } from 'vitest';
import {
  bakedManifest,
  checkSystemFile,
  decide,
  faultError,
  overlayPolicy,
  readPolicyLayer,
  STRICT_POLICY,
} from '../../src/kernel/trust/policy.ts';
import type { SignatureFault, Verdict } from '../../src/kernel/trust/signature.ts';

const GOOD: Verdict = {
  ok: true,
  by: 'key',
  keyId: 'a'.repeat(16),
  version: 2,
  signedAt: '2026-01-01T00:00:00Z',
};
const bad = (code: SignatureFault): Extract<Verdict, { ok: false }> => ({ ok: false, code });

describe('the strict policy', () => {
  test.each([
    ['execute', 'project', 'unsigned', false, 'refuse'],
    ['execute', 'project', 'unsigned', true, 'accept'],
    ['execute', 'project', 'content_modified', true, 'refuse'],
    ['execute', 'project', 'signature_partial', true, 'refuse'],
    ['execute', 'project', 'key_untrusted', true, 'refuse'],
    ['execute', 'user', 'unsigned', true, 'refuse'],
    ['execute', 'system', 'system_item_modified', true, 'refuse'],
    ['execute', 'project', 'signature_outdated', false, 'refuse'],
    ['execute', 'project', 'signature_outdated', true, 'accept'],
    ['execute', 'project', 'item_moved', true, 'refuse'],
    ['fetch', 'project', 'item_moved', false, 'refuse'],
    ['config', 'project', 'item_moved', false, 'refuse'],
    ['config', 'user', 'item_moved', false, 'refuse'],
    ['config', 'user', 'signature_outdated', false, 'accept'],
    ['fetch', 'project', 'content_modified', false, 'warn'],
    ['fetch', 'user', 'unsigned', false, 'warn'],
    ['fetch', 'system', 'system_item_modified', true, 'refuse'],
    ['context', 'project', 'unsigned', false, 'refuse'],
    ['context', 'project', 'unsigned', true, 'accept'],
    ['context', 'user', 'unsigned', true, 'refuse'],
    ['config', 'project', 'unsigned', false, 'warn'],
    ['config', 'user', 'unsigned', false, 'accept'],
    ['config', 'user', 'content_modified', false, 'warn'],
    ['config', 'system', 'system_item_modified', false, 'refuse'],
    ['execute', 'project', 'signed_by_thread', false, 'refuse'],
    ['execute', 'project', 'signed_by_thread', true, 'accept'],
    ['execute', 'user', 'signed_by_thread', true, 'refuse'],
  ] as const)(
    'on %s of a %s item that is %s (allowed: %s): %s',
    (...[operation, space, code, allowUnsigned, expected]) => {
      expect(decide(STRICT_POLICY, { operation, space, verdict: bad(code), allowUnsigned })).toBe(
        expected,
      );
    },
  );

  test('accepts what verifies', () => {
    expect(decide(STRICT_POLICY, { operation: 'execute', space: 'user', verdict: GOOD })).toBe(
      'accept',
    );
  });
});

describe('layers of trust.yaml', () => {
  test('set a whole operation or single spaces of it', () => {
    const layer = readPolicyLayer({ fetch: 'required', config: { project: 'off' } }, 't.yaml');
    const { policy } = overlayPolicy(STRICT_POLICY, layer, { mayLoosen: true });
    expect(policy.fetch).toEqual({ project: 'required', user: 'required', system: 'required' });
    expect(policy.config).toEqual({ project: 'off', user: 'warn', system: 'warn' });
    expect(policy.execute).toEqual(STRICT_POLICY.execute);
  });

  test('that may not loosen count only where they are stricter, and report the other cells', () => {
    const layer = readPolicyLayer({ execute: { project: 'off' }, fetch: 'required' }, 't.yaml');
    const { policy, loosened } = overlayPolicy(STRICT_POLICY, layer, { mayLoosen: false });
    expect(loosened).toEqual(['execute.project']);
    expect(policy.execute.project).toBe('required');
    expect(policy.fetch.project).toBe('required');
  });

  test('never let an edited system item pass', () => {
    const { policy } = overlayPolicy(
      STRICT_POLICY,
      { execute: { system: 'off' } },
      { mayLoosen: true },
    );
    const verdict = bad('system_item_modified');
    expect(decide(policy, { operation: 'execute', space: 'system', verdict })).toBe('refuse');
  });

  test.each([
    [['execute'], /is not a mapping of operations to requirements/],
    [{ exekute: 'off' }, /has the unknown key exekute/],
    [{ execute: 'maybe' }, /execute is "maybe", not one of off, warn, required/],
    [{ execute: { home: 'off' } }, /execute has the unknown key home/],
    [{ execute: null }, /execute is null, not one of off, warn, required/],
  ])('are refused as %j', (value, message) => {
    expect(() => readPolicyLayer(value, 't.yaml')).toThrow(message);
    expect(() => readPolicyLayer(value, 't.yaml')).toThrow(
      expect.objectContaining({ code: 'config_invalid' }),
    );
  });
});

test('a misspelled operation or requirement names the nearest one', () => {
  expect(() => readPolicyLayer({ exekute: 'off' }, 't.yaml')).toThrow(
    expect.objectContaining({ hint: 'Did you mean execute?' }),
  );
  expect(() => readPolicyLayer({ fetch: { user: 'wran' } }, 't.yaml')).toThrow(
    expect.objectContaining({
      message: 't.yaml: trust.fetch.user is "wran", not one of off, warn, required',
      hint: 'Did you mean warn?',
    }),
  );
});

describe('errors', () => {
  test.each([
    ['unsigned', 'rye sign directive demo/x'],
    ['content_modified', 'rye sign directive demo/x'],
    ['key_untrusted', 'rye keys trust'],
    ['key_revoked', 'rye sign directive demo/x'],
    ['signature_invalid', 'rye sign directive demo/x'],
    ['signature_partial', 'rye sign directive demo/x'],
    ['signature_outdated', 'rye sign directive demo/x'],
    ['item_moved', 'rye sign directive demo/x'],
    ['system_item_modified', 'Reinstall'],
  ] as const)('for %s name the file and what to do', (code, hint) => {
    const subject = { type: 'directive', id: 'demo/x', space: 'project', path: '/p/x.md' } as const;
    const error = faultError(subject, bad(code));
    expect(error).toMatchObject({ code, exitCode: 3, location: { path: '/p/x.md' } });
    expect(error.message).toContain('/p/x.md: ');
    expect(error.message).toContain('directive demo/x');
    expect(error.hint).toContain(hint);
  });
});

describe('the system manifest', () => {
  const manifest = { 'directives/a.md': 'f'.repeat(64) };

  test('accepts what it lists, refuses what was edited or added', () => {
    expect(checkSystemFile(manifest, 'directives/a.md', 'f'.repeat(64))).toEqual({
      ok: true,
      by: 'manifest',
    });
    expect(checkSystemFile(manifest, 'directives/a.md', '0'.repeat(64))).toMatchObject({
      code: 'system_item_modified',
    });
    expect(checkSystemFile(manifest, 'directives/b.md', 'f'.repeat(64))).toMatchObject({
      code: 'system_item_modified',
    });
    expect(checkSystemFile(manifest, 'constructor', 'f'.repeat(64))).toMatchObject({
      code: 'system_item_modified',
    });
  });

  test('is baked into the program', () => {
    expect(bakedManifest()['directives/hello.md']).toMatch(/^[0-9a-f]{64}$/);
  });
});
