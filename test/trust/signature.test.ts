import { createHash } from 'node:crypto';
import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type JsonObject, parseJson } from '../../src/kernel/core/json.ts';
import {
  fingerprint,
  type KeyLookup,
  readPrivateKey,
  readPublicKey,
} from '../../src/kernel/trust/keys.ts';
import { payloadSigner, payloadVerifier } from '../../src/kernel/trust/payloads.ts';
import {
  checkDocument,
  checkText,
  claimedSubject,
  signatureState,
  signDocument,
  signText,
} from '../../src/kernel/trust/signature.ts';
import {
  blankSignatureLine,
  type SignatureStyle,
  signatureStyle,
  signedStatement,
} from '../../src/kernel/trust/signature-line.ts';
import { signedOlder } from '../helpers/signed-files.ts';
import { lookup, testKey } from './keys.ts';

const NOW = Date.UTC(2026, 10, 21, 8, 9, 10, 987);
const key = testKey(1);
const other = testKey(2);
const keys = lookup([key]);
const subject = { kind: 'directive', id: 'demo/job' };

const sign = (text: string, style: SignatureStyle): string =>
  signText({ text, style, subject, key, now: NOW });
const check = (text: string, style: SignatureStyle, known = keys) =>
  checkText({ text, style, keys: known, subject });
const code = (text: string, style: SignatureStyle, known = keys): string => {
  const verdict = check(text, style, known);
  return verdict.ok ? 'ok' : verdict.code;
};
const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

describe('the signature line', () => {
  test.each([
    [
      'html',
      '# Title\n\nBody\n',
      /^<!-- rye:signed:v2:2026-11-21T08:09:10Z:directive:demo\/job:[0-9a-f]{64}:[\w-]{86}:[0-9a-f]{16} -->\n# Title\n\nBody\n$/,
    ],
    [
      'yaml',
      'a: 1\n',
      /^# rye:signed:v2:2026-11-21T08:09:10Z:directive:demo\/job:[0-9a-f]{64}:[\w-]{86}:[0-9a-f]{16}\na: 1\n$/,
    ],
    ['hash', '#!/bin/sh\necho\n', /^#!\/bin\/sh\n# rye:signed:\S+\necho\n$/],
    [
      'slash',
      '#!/usr/bin/env node\nx()\n',
      /^#!\/usr\/bin\/env node\n\/\/ rye:signed:\S+\nx\(\)\n$/,
    ],
    [
      'json',
      '{"a": 1.0, "b": "é"}',
      /^\{\n {2}"_signature": "rye:signed:\S+",\n {2}"a": 1,\n {2}"b": "é"\n\}\n$/,
    ],
  ] as const)('is in the right place in %s files', (style, text, expected) => {
    const signed = sign(text, style);
    expect(signed).toMatch(expected);
    expect(check(signed, style)).toEqual({
      ok: true,
      by: 'key',
      keyId: key.keyId,
      version: 2,
      signedAt: '2026-11-21T08:09:10Z',
    });
  });

  test('covers SHA-256 of the rest of the file, in a statement with kind, id and time', () => {
    const line = sign('#!/bin/sh\nécho\n', 'hash').split('\n')[1] ?? '';
    const [hash = '', signature = '', keyId] = line.split(':').slice(-3);
    expect(hash).toBe(sha256('écho\n'));
    const statement = `rye-item-v2\nkind directive\nid demo/job\ntime 2026-11-21T08:09:10Z\nsha256 ${hash}\n`;
    expect(key.verify(statement, signature)).toBe(true);
    expect(keyId).toBe(sha256(key.pem).slice(0, 16));
  });

  test('its style follows from the extension', () => {
    expect(signatureStyle('.md')).toBe('html');
    expect(signatureStyle('.yml')).toBe('yaml');
    expect(signatureStyle('.ts')).toBe('slash');
    expect(signatureStyle('.json')).toBe('json');
    expect(signatureStyle('.exe')).toBeUndefined();
    expect(signatureStyle('constructor')).toBeUndefined();
  });

  test.each([
    ['a byte order mark', (text: string) => `\u{FEFF}${text}`],
    ['a blank line', (text: string) => `\n${text}`],
    ['a space', (text: string) => ` ${text}`],
    // Requirement: signature-in-odd-place
    ['a shebang in Markdown', (text: string) => `#!/bin/sh\n${text}`],
  ])('does not count after %s', (_, move) => {
    expect(code(move(sign('Body\n', 'html')), 'html')).toBe('unsigned');
  });

  test.each([
    [
      'an upper-case hash',
      (line: string) => line.replace(/[0-9a-f]{64}/, (hash) => hash.toUpperCase()),
    ],
    ['a fraction in the time', (line: string) => line.replace('10Z', '10.5Z')],
    [
      'a short signature',
      (line: string) => line.replace(/:([\w-]{86}):/, (_, text: string) => `:${text.slice(1)}:`),
    ],
    ['text after it', (line: string) => `${line} x`],
  ])('does not count with %s', (_, change) => {
    const [line = '', ...rest] = sign('Body\n', 'html').split('\n');
    expect(code([change(line), ...rest].join('\n'), 'html')).toBe('unsigned');
  });

  test('may carry padding and a provider suffix only in version 1', () => {
    const suffix = (text: string) => text.replace(' -->', '|github@some-body -->');
    const padding = (text: string) => text.replace(/([\w-]{86}):/, '$1==:');
    const older = signedOlder('Body\n', key, ['<!-- ', ' -->']);
    expect(code(padding(older), 'html')).toBe('ok');
    expect(code(suffix(older), 'html')).toBe('ok');
    expect(code(older.replace(' -->', '|github@so me -->'), 'html')).toBe('unsigned');
    const signed = sign('Body\n', 'html');
    expect(code(suffix(signed), 'html')).toBe('unsigned');
    expect(code(padding(signed), 'html')).toBe('unsigned');
  });

  test.each([
    ['the time', (line: string) => line.replace('2026-11-21', '2020-01-01')],
    ['the kind', (line: string) => line.replace(':directive:', ':config:')],
    ['the id', (line: string) => line.replace('demo/job', 'demo/other')],
    [
      'the version',
      (line: string) => line.replace(':v2:', ':').replace(':directive:demo/job:', ':'),
    ],
  ])('does not verify when %s in it is changed', (_, change) => {
    expect(code(change(sign('Body\n', 'html')), 'html')).toBe('signature_invalid');
  });

  test('is refused as any other kind or id, and reports the signed one', () => {
    const text = sign('Body\n', 'html');
    for (const used of [
      { kind: 'config', id: 'demo/job' },
      { kind: 'directive', id: 'demo/jobs' },
      { kind: 'directive', id: 'Demo/job' },
    ]) {
      expect(checkText({ text, style: 'html', keys, subject: used })).toEqual({
        ok: false,
        code: 'item_moved',
        keyId: key.keyId,
        signedAt: '2026-11-21T08:09:10Z',
        signedAs: subject,
      });
    }
  });

  test('states a time for changed content only if the line is genuine', () => {
    const signed = `${sign('Body\n', 'html')}more`;
    expect(check(signed, 'html')).toMatchObject({
      code: 'content_modified',
      signedAt: '2026-11-21T08:09:10Z',
    });
    const dated = signed.replace('2026-11-21', '2020-01-01');
    const older = `${signedOlder('Body\n', key, ['<!-- ', ' -->'])}more`;
    for (const text of [dated, older]) {
      expect(check(text, 'html')).toEqual({
        ok: false,
        code: 'content_modified',
        keyId: key.keyId,
      });
    }
  });

  test('of version 1 is valid and has no subject', () => {
    const text = signedOlder('Body\n', key, ['<!-- ', ' -->']);
    const good = { ok: true, by: 'key', keyId: key.keyId, version: 1 };
    expect(check(text, 'html')).toEqual(good);
  });

  test.each([
    ['all items', { purposes: ['sign'], types: ['directive'] }, 'ok'],
    ['items of another type', { purposes: ['sign'], types: ['tool'] }, 'key_out_of_scope'],
    ['records of threads', { purposes: ['sign'], types: ['thread'] }, 'key_out_of_scope'],
    ['approvals', { purposes: ['approve'] }, 'key_out_of_scope'],
  ] as const)(
    'of a key that is trusted for %s counts within that, in both versions',
    (_, scope, expected) => {
      const scoped: KeyLookup = {
        ...keys,
        find: (keyId) => {
          const found = keys.find(keyId);
          return found.status === 'trusted' ? { ...found, scope } : found;
        },
      };
      const older = signedOlder('Body\n', key, ['<!-- ', ' -->']);
      for (const text of [older, sign('Body\n', 'html')])
        expect(code(text, 'html', scoped)).toBe(expected);
    },
  );

  test('may be an HTML comment on YAML, as older signers wrote it', () => {
    const [line = ''] = sign('title: x\n', 'html').split('\n');
    expect(code(`${line}\ntitle: x\n`, 'yaml')).toBe('ok');
    expect(code(`${line}\ntitle: x\n`, 'hash')).toBe('unsigned');
  });

  test('is emptied for parsers without moving a line', () => {
    const signed = sign('#!/bin/sh\necho\n', 'hash');
    expect(blankSignatureLine(signed, 'hash')).toBe('#!/bin/sh\n\necho\n');
    expect(blankSignatureLine('echo\n', 'hash')).toBe('echo\n');
  });
});

describe('signing', () => {
  const styles = ['html', 'yaml', 'hash', 'slash'] as const;

  test.each(styles)('%s files twice with one key changes nothing, at any time', (style) => {
    const once = sign('#!/x\nBody', style);
    expect(signText({ text: once, style, subject, key, now: NOW + 86_400_000 })).toBe(once);
  });

  test('replaces version 1, and a signature as another item, of the same content', () => {
    const older = signedOlder('Body\n', key, ['<!-- ', ' -->']);
    expect(sign(older, 'html')).toBe(sign('Body\n', 'html'));
    const moved = { kind: 'directive', id: 'other' };
    const elsewhere = signText({ text: 'Body\n', style: 'html', subject: moved, key, now: NOW });
    expect(sign(elsewhere, 'html')).toBe(sign('Body\n', 'html'));
    expect(claimedSubject(elsewhere, 'html')).toEqual(moved);
    expect(claimedSubject(sign('{}', 'json'), 'json')).toEqual(subject);
    expect(claimedSubject(older, 'html')).toBeUndefined();
  });

  test('JSON twice changes nothing, however the file is indented', () => {
    const once = sign('{"a":[1,2]}', 'json');
    const compact = JSON.stringify(JSON.parse(once));
    expect(sign(compact, 'json')).toBe(compact);
  });

  test.each([
    ['a signature of changed content', (text: string) => text.replace('Body', 'Changed')],
    [
      "another key's signature",
      (text: string) => signText({ text, style: 'html', subject, key: other, now: NOW }),
    ],
    [
      'a line that is no signature any more',
      (text: string) => text.replace(/[0-9a-f]{64}/, 'broken'),
    ],
    [
      'a signature of the older tools',
      (text: string) => text.replace('rye:signed', 'kiwi-mcp:validated'),
    ],
  ])('replaces %s', (_, change) => {
    const signed = sign(change(sign('Body\n', 'html')), 'html');
    expect(signed.match(/rye:signed|kiwi/g)).toHaveLength(1);
    expect(code(signed, 'html')).toBe('ok');
  });

  test('replaces a signature that its key did not make', () => {
    const forged = sign('Body\n', 'html').replace(/:[\w-]{86}:/, `:${'A'.repeat(86)}:`);
    expect(code(forged, 'html')).toBe('signature_invalid');
    expect(code(sign(forged, 'html'), 'html')).toBe('ok');
  });

  test('keeps ends of line, drops a byte order mark', () => {
    expect(sign('a\r\nb\r\n', 'yaml')).toMatch(/^# rye:signed:\S+\r\na\r\nb\r\n$/);
    expect(sign('\u{FEFF}a\n', 'yaml')).toMatch(/^# rye:signed:\S+\na\n$/);
  });

  test('gives a shebang without an end its own line', () => {
    const signed = sign('#!/bin/sh', 'hash');
    expect(signed).toMatch(/^#!\/bin\/sh\n# rye:signed:\S+\n$/);
    expect(code(signed, 'hash')).toBe('ok');
  });

  test('refuses JSON that is not an object', () => {
    for (const text of ['[1]', '{', '"x"', '']) {
      expect(() => sign(text, 'json')).toThrow(expect.objectContaining({ code: 'invalid_input' }));
    }
  });

  test('then checking holds for every content and every style; editing it never does', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'binary' }),
        fc.constantFrom(...styles),
        fc.nat(),
        (text, style, at) => {
          const signed = sign(text, style);
          expect(code(signed, style)).toBe('ok');
          expect(sign(signed, style)).toBe(signed);
          const start = signed.indexOf('rye:signed');
          const content = signed.indexOf('\n', start) + 1;
          const cut = content + (at % (signed.length - content + 1));
          expect(code(`${signed.slice(0, cut)}x${signed.slice(cut)}`, style)).toBe(
            'content_modified',
          );
        },
      ),
      { seed: 4, numRuns: 80 },
    );
  });
});

describe('checking', () => {
  test('reads CRLF as LF', () => {
    expect(code(sign('a\nb\n', 'html').replaceAll('\n', '\r\n'), 'html')).toBe('ok');
  });

  test('goes through its steps in order, each with its code', () => {
    const signed = sign('Body\n', 'html');
    const forged = signed.replace(/:[\w-]{86}:/, `:${'A'.repeat(86)}:`);
    expect(code('Body\n', 'html')).toBe('unsigned');
    expect(code(`${forged}x`, 'html', lookup([]))).toBe('content_modified');
    expect(code(forged, 'html', lookup([]))).toBe('key_untrusted');
    expect(code(forged, 'html', lookup([], [key]))).toBe('key_revoked');
    expect(code(forged, 'html')).toBe('signature_invalid');
    expect(code(signed, 'html')).toBe('ok');
  });

  test('keeps a record that was signed before its key was revoked, if the signature proves the time', () => {
    const revoked: KeyLookup = {
      find: () => ({ status: 'revoked', revokedAt: '2026-01-02T03:04:05Z', key }),
    };
    const early = Date.UTC(2025, 0, 1);
    const signedAt = (now: number) =>
      signText({ text: 'Body\n', style: 'html', subject, key, now });
    const verdict = (text: string, isRecord: boolean) => {
      const found = checkText({ text, style: 'html', keys: revoked, subject, isRecord });
      return found.ok ? 'ok' : found.code;
    };
    expect(verdict(signedAt(early), true)).toBe('ok');
    expect(verdict(signedAt(early), false)).toBe('key_revoked');
    expect(verdict(signedAt(NOW), true)).toBe('key_revoked');
    // version 1 has a time that anybody could have written
    const older = signedOlder('Body\n', key, ['<!-- ', ' -->']).replace(
      /20\d\d-\d\d-\d\dT/,
      '2020-01-01T',
    );
    expect(verdict(older, true)).toBe('key_revoked');
  });

  test('reports the key and the date of its revocation', () => {
    expect(check(sign('Body\n', 'html'), 'html', lookup([], [key]))).toEqual({
      ok: false,
      code: 'key_revoked',
      keyId: key.keyId,
      detail: 'revoked 2026-01-02T03:04:05Z',
    });
  });

  test('refuses a signature whose last character has stray bits', () => {
    const signed = sign('Body\n', 'html');
    const last = /([\w-]{86}):[0-9a-f]{16} -->/.exec(signed)?.[1]?.at(-1) ?? '';
    const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
    const stray = alphabet[alphabet.indexOf(last) + 1] ?? '';
    expect(code(signed.replace(`${last}:${key.keyId}`, `${stray}:${key.keyId}`), 'html')).toBe(
      'signature_invalid',
    );
  });

  test.each([
    [
      'the element of a directive',
      'Intro\n```xml\n<directive name="a">\n</directive>\n```\nBody\n',
      '<directive name="a">\n</directive>',
    ],
    ['knowledge below its frontmatter', '---\ntitle: x\n---\n\nBody\n', 'Body'],
  ])('recognises a signature over only %s, and does not accept it', (_, text, part) => {
    const hash = sha256(part);
    const line = `<!-- rye:signed:2026-01-01T00:00:00Z:${hash}:${key.sign(hash)}:${key.keyId} -->`;
    expect(code(`${line}\n${text}`, 'html')).toBe('signature_partial');
    expect(code(`${line}\n${text.replaceAll('\n', '\r\n')}`, 'html')).toBe('signature_partial');
    expect(code(`${line}\n${text.replace(part, 'edited')}`, 'html')).toBe('content_modified');
  });

  test('has a word for lists', () => {
    expect(signatureState(check(sign('a', 'html'), 'html'))).toBe('signed');
    expect(signatureState({ ok: true, by: 'manifest' })).toBe('system');
    expect(signatureState(check('a', 'html'))).toBe('unsigned');
    expect(signatureState({ ok: false, code: 'system_item_modified' })).toBe('modified');
  });
});

describe('signed documents', () => {
  const document: JsonObject = {
    thread_id: 'a-1',
    limits: { turns: 5, spend: 5.0 },
    text: 'é\u2028',
  };

  test('verify after a trip through any JSON writer', () => {
    const signed = signDocument(document, { subject, key, now: NOW });
    expect(checkDocument(JSON.parse(JSON.stringify(signed, null, 4)), { keys, subject }).ok).toBe(
      true,
    );
    const shuffled = Object.fromEntries(Object.entries(signed).toReversed());
    expect(checkDocument(shuffled, { keys, subject }).ok).toBe(true);
  });

  test('are signed again without their old signature', () => {
    const twice = signDocument(signDocument(document, { subject, key: other, now: NOW }), {
      subject,
      key,
      now: NOW,
    });
    expect(twice).toEqual(signDocument(document, { subject, key, now: NOW }));
  });

  test('are refused as another document', () => {
    const signed = signDocument(document, { subject, key, now: NOW });
    const used = { kind: 'directive', id: 'b-1' };
    expect(checkDocument(signed, { keys, subject: used })).toMatchObject({ code: 'item_moved' });
  });

  test.each([
    ['an edited member', { limits: { turns: 500, spend: 5 } }],
    ['an added member', { capabilities: ['rye.*'] }],
    ['a lone surrogate', { text: '\ud800' }],
  ])('do not verify with %s', (_, change) => {
    const forged = { ...signDocument(document, { subject, key, now: NOW }), ...change };
    expect(checkDocument(forged, { keys, subject })).toMatchObject({ code: 'content_modified' });
  });

  test('do not verify with a removed member, nor with __proto__ slipped in', () => {
    const { limits: _, ...less } = signDocument(document, { subject, key, now: NOW });
    expect(checkDocument(less, { keys, subject })).toMatchObject({ code: 'content_modified' });
    const text = JSON.stringify(signDocument(document, { subject, key, now: NOW }));
    const polluted: unknown = JSON.parse(text.replace('{', '{"__proto__":{"x":1},'));
    expect(checkDocument(polluted, { keys, subject })).toMatchObject({ code: 'content_modified' });
  });

  test('count as unsigned when there is nothing to check', () => {
    for (const value of [
      null,
      [],
      'x',
      7,
      {},
      document,
      { _signature: 1 },
      { _signature: 'rye:signed:x' },
    ]) {
      expect(checkDocument(value, { keys, subject })).toEqual({ ok: false, code: 'unsigned' });
    }
  });
});

describe('signed statements', () => {
  test('of a file never match a payload or version 1', () => {
    const statement = signedStatement({ signedAt: '2026-01-02T03:04:05Z', subject, hash: 'a' });
    expect(statement).toMatch(/^rye-item-v2\n/);
    expect(parseJson(statement)).toBeUndefined();
    const line = key.sign(statement);
    for (const message of [signedStatement({ signedAt: '', hash: sha256('a') }), '{"a":1}'])
      expect(key.verify(message, line)).toBe(false);
  });
});

describe('signed payloads', () => {
  const payload = { from: 0, to: 10, sha256: 'x', prev: 'y' };
  const signer = payloadSigner(key);

  test('verify, and report faults', () => {
    const signature = signer.sign(payload);
    const isGood = (sealed: JsonObject, text = signature) => {
      const found = payloadVerifier(keys).find(signer.keyId);
      return typeof found === 'object' && found.verify(sealed, text);
    };
    expect(signature).toMatch(/^[\w-]{86}$/);
    expect(isGood({ prev: 'y', sha256: 'x', to: 10, from: 0 })).toBe(true);
    expect(isGood({ ...payload, to: 11 })).toBe(false);
    expect(isGood(payload, '')).toBe(false);
    expect(isGood({ ...payload, prev: '\ud800' })).toBe(false);
    expect(payloadVerifier(lookup([other])).find(signer.keyId)).toBe('key_untrusted');
    expect(payloadVerifier(lookup([], [key])).find(signer.keyId)).toBe('key_revoked');
  });

  test('of a run without a key count for its thread, up to where a trusted key signed it', () => {
    const run = payloadVerifier(lookup([other]), (id) =>
      id === 'one' ? { key, bytes: 100 } : undefined,
    );
    const isGood = (threadId: string, sealed: JsonObject) => {
      const found = run.find(signer.keyId, threadId);
      return typeof found === 'object' && found.verify(sealed, signer.sign(sealed));
    };
    expect(isGood('one', { thread_id: 'one', to: 99 })).toBe(true);
    expect(isGood('one', { thread_id: 'one', to: 100 })).toBe(false);
    expect(isGood('one', { thread_id: 'two', to: 99 })).toBe(false);
    expect(isGood('two', { thread_id: 'two', to: 99 })).toBe(false);
    expect(isGood('one', { to: 99 })).toBe(false);
    expect(run.find(other.keyId, 'one')).toBeTypeOf('object');
    expect(run.find('0123456789abcdef', 'one')).toBe('key_untrusted');
  });

  test('cost a few milliseconds to sign at most', () => {
    signer.sign(payload);
    const times = Array.from({ length: 200 }, () => {
      const start = performance.now();
      signer.sign(payload);
      return performance.now() - start;
    }).toSorted((a, b) => a - b);
    // the median, because the machine may be busy
    expect(times[100]).toBeLessThan(5);
  });
});

describe('keys', () => {
  test('have the fingerprint of their PEM text, final newline included', () => {
    expect(key.pem).toMatch(
      /^-----BEGIN PUBLIC KEY-----\n[\w+/=]{60}\n-----END PUBLIC KEY-----\n$/,
    );
    expect(fingerprint(key.pem)).toBe(key.keyId);
    expect(readPublicKey(`\n  ${key.pem.replaceAll('\n', '\r\n')}\n`, 'x').keyId).toBe(key.keyId);
  });

  test.each(['', 'nonsense', '-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----'])(
    'refuse the PEM %j without repeating it',
    (pem) => {
      expect(() => readPublicKey(pem, 'some file')).toThrow(
        /^some file is not an Ed25519 public key/,
      );
      expect(() => readPrivateKey(pem, 'some file')).toThrow(
        /^some file is not an Ed25519 private key/,
      );
    },
  );
});
