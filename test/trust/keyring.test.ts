import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { certificateText } from '../../src/kernel/trust/certificates.ts';
import { renderTrustedKey, trustedKeySubject } from '../../src/kernel/trust/key-files.ts';
import { revocationSubject } from '../../src/kernel/trust/key-statements.ts';
import { openKeyring } from '../../src/kernel/trust/keyring-fs.ts';
import type { Keyring, SigningKey } from '../../src/kernel/trust/keys.ts';
import { checkText, signText } from '../../src/kernel/trust/signature.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { testKey } from './keys.ts';

const NOW = Date.UTC(2026, 0, 2, 3, 4, 5);
const teammate = testKey(7);
const stranger = testKey(8);

let base: string;
let userSpacePath: string;
let projectPath: string;
let keysPath: string;
let keyring: Keyring;

const open = (project = projectPath): Keyring =>
  openKeyring({ userSpacePath, projectPath: project, now: () => NOW });
const file = (...parts: string[]): string => join(keysPath, ...parts);
const write = (path: string, text: string): void => {
  mkdirSync(join(path, '..'), { recursive: true });
  writeFileSync(path, text);
};
const ITEM = { kind: 'directive', id: 'a' };
const signKeyFile = (text: string, key: SigningKey, keyId = teammate.keyId): string =>
  signText({ text, style: 'hash', subject: trustedKeySubject(keyId), key, now: NOW });
const statusOf = (ring: Keyring, keyId: string): string => ring.find(keyId).status;
const verdictOf = (ring: Keyring, text: string): string => {
  const verdict = checkText({ text, style: 'html', keys: ring, subject: ITEM });
  return verdict.ok ? 'ok' : verdict.code;
};
const signed = (key = keyring.signer()): string =>
  signText({ text: 'Body\n', style: 'html', subject: ITEM, key, now: NOW });
const projectKey = (): string =>
  join(projectPath, '.ai/config/keys/trusted', `${teammate.keyId}.toml`);
const code = (value: string) => expect.objectContaining({ code: value });

beforeEach(() => {
  base = realpathSync(mkdtempSync(join(tmpdir(), 'rye-keys-')));
  userSpacePath = join(base, 'home');
  projectPath = join(base, 'project');
  mkdirSync(projectPath);
  keysPath = join(userSpacePath, '.ai/config/keys');
  keyring = open();
});
afterEach(() => removeFolder(base));

describe('init', () => {
  test('makes a key that only its owner can reach, and trusts it', async () => {
    const info = await keyring.init();
    expect(info).toMatchObject({ source: 'own', trusted: true, revoked: false, owner: 'self' });
    expect(statSync(file('signing')).mode & 0o777).toBe(0o700);
    expect(readdirSync(file('signing')).toSorted()).toEqual(['private_key.pem', 'public_key.pem']);
    for (const name of readdirSync(file('signing'))) {
      expect(statSync(file('signing', name)).mode & 0o777).toBe(0o600);
    }
    expect(verdictOf(open(), signed())).toBe('ok');
    expect(open().export()).toEqual({
      key_id: info.key_id,
      pem: readFileSync(file('signing/public_key.pem'), 'utf8'),
    });
  });

  test('refuses to replace a key, or a public key alone', async () => {
    await keyring.init();
    const before = readFileSync(file('signing/private_key.pem'), 'utf8');
    await expect(open().init()).rejects.toThrow(code('already_exists'));
    expect(readFileSync(file('signing/private_key.pem'), 'utf8')).toBe(before);
    rmSync(file('signing/private_key.pem'));
    await expect(open().init()).rejects.toThrow(code('already_exists'));
  });

  test('at once by many leaves one working key', async () => {
    const results = await Promise.allSettled(Array.from({ length: 8 }, () => open().init()));
    expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    expect(readdirSync(file('signing')).toSorted()).toEqual(['private_key.pem', 'public_key.pem']);
    expect(verdictOf(open(), signed(open().signer()))).toBe('ok');
  });

  test('that was cut short after the private key still works', async () => {
    await keyring.init();
    rmSync(file('signing/public_key.pem'));
    expect(verdictOf(open(), signed(open().signer()))).toBe('ok');
  });
});

describe('the signing key', () => {
  test('is missing before init, and reading for a check does not need it', () => {
    expect(() => keyring.signer()).toThrow(code('key_missing'));
    expect(() => keyring.export()).toThrow(code('key_missing'));
    expect(statusOf(keyring, teammate.keyId)).toBe('unknown');
    expect(keyring.list()).toEqual([]);
    expect(existsSync(userSpacePath)).toBe(false);
  });

  test.each([
    ['private_key.pem', 0o640],
    ['private_key.pem', 0o604],
    ['', 0o755],
  ])('is refused when %j has mode %o', async (name, mode) => {
    await keyring.init();
    chmodSync(file('signing', name), mode);
    expect(() => open().signer()).toThrow(code('key_unsafe'));
    expect(() => open().signer()).toThrow(mode.toString(8));
  });

  test('is refused as a symbolic link, and never followed', async () => {
    await keyring.init();
    const moved = join(base, 'elsewhere.pem');
    writeFileSync(moved, readFileSync(file('signing/private_key.pem')), { mode: 0o600 });
    rmSync(file('signing/private_key.pem'));
    symlinkSync(moved, file('signing/private_key.pem'));
    expect(() => open().signer()).toThrow(code('key_unsafe'));
  });

  test('is refused beside the public key of another', async () => {
    await keyring.init();
    writeFileSync(file('signing/public_key.pem'), teammate.pem);
    expect(() => open().signer()).toThrow(code('key_unsafe'));
  });

  test('that is no key is refused without showing it', async () => {
    await keyring.init();
    writeFileSync(file('signing/private_key.pem'), 'secret-material');
    expect(() => open().signer()).toThrow(/private_key\.pem is not an Ed25519 private key/);
    expect(() => open().signer()).not.toThrow(/secret-material/);
    expect(() => open().signer()).toThrow(code('key_unsafe'));
    writeFileSync(file('signing/public_key.pem'), 'x');
    expect(() => open().find(teammate.keyId)).toThrow(code('key_unsafe'));
  });
});

describe('trust', () => {
  test('takes a PEM, signs what it wrote, and holds for a keyring that is open already', async () => {
    await keyring.init();
    const watching = open();
    expect(verdictOf(watching, signed(teammate))).toBe('key_untrusted');
    const info = await keyring.trust(teammate.pem, { owner: 'Tim' });
    expect(info).toMatchObject({
      key_id: teammate.keyId,
      owner: 'Tim',
      source: 'user',
      trusted: true,
    });
    expect(verdictOf(watching, signed(teammate))).toBe('ok');
    const text = readFileSync(file(`trusted/${teammate.keyId}.toml`), 'utf8');
    expect(text).toMatch(/^# rye:signed:/);
    expect(statSync(file(`trusted/${teammate.keyId}.toml`)).mode & 0o777).toBe(0o600);
    expect(await keyring.trust(teammate.pem)).toMatchObject({ trusted: true });
  });

  test('works without a key of one’s own', async () => {
    await keyring.trust(renderTrustedKey({ key: teammate, owner: 'Tim' }));
    expect(keyring.list()).toEqual([expect.objectContaining({ owner: 'Tim', trusted: true })]);
  });

  test.each([
    [
      'a private key',
      'invalid_input',
      () => '-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n',
    ],
    ['rubbish', 'invalid_input', () => 'hello'],
    [
      'a file edited after it was signed',
      'content_modified',
      () => {
        const text = renderTrustedKey({ key: teammate, owner: 'Tim' });
        return signKeyFile(text, teammate).replace('Tim', 'Eve');
      },
    ],
    [
      'a file with a forged signature of itself',
      'signature_invalid',
      () => {
        const text = renderTrustedKey({ key: teammate, owner: 'Tim' });
        return signKeyFile(text, teammate).replace(/:[\w-]{86}:/, `:${'A'.repeat(86)}:`);
      },
    ],
  ])('refuses %s', async (_, expected, text) => {
    await keyring.init();
    await expect(keyring.trust(text())).rejects.toThrow(code(expected));
    expect(statusOf(keyring, teammate.keyId)).toBe('unknown');
  });

  test('refuses to write through a symbolic link', async () => {
    const target = join(base, 'target');
    writeFileSync(target, 'precious');
    mkdirSync(file('trusted'), { recursive: true });
    symlinkSync(target, file(`trusted/${teammate.keyId}.toml`));
    await expect(keyring.trust(teammate.pem)).rejects.toThrow(code('key_unsafe'));
    expect(readFileSync(target, 'utf8')).toBe('precious');
  });
});

describe('a trusted key file', () => {
  const put = (text: string, name = teammate.keyId): void =>
    write(file(`trusted/${name}.toml`), text);
  const plain = renderTrustedKey({ key: teammate, owner: 'Tim' });

  test('that the user put there unsigned counts', () => {
    put(plain);
    expect(statusOf(keyring, teammate.keyId)).toBe('trusted');
  });

  test.each([
    [
      'is edited after signing',
      () => put(signKeyFile(plain, teammate).replace('Tim', 'Eve')),
      /content_modified/,
    ],
    ['is signed by a stranger', () => put(signKeyFile(plain, stranger)), /key_untrusted/],
    [
      'holds another key',
      () => put(renderTrustedKey({ key: stranger, owner: 'x' })),
      /contains key/,
    ],
    ['is no TOML', () => put('pem: x'), /malformed key file: /],
    [
      'is a symbolic link',
      () => {
        write(join(base, 'x.toml'), plain);
        mkdirSync(file('trusted'), { recursive: true });
        symlinkSync(join(base, 'x.toml'), file(`trusted/${teammate.keyId}.toml`));
      },
      /symbolic link/,
    ],
  ])('that %s does not count, and the list reports why', (_, prepare, problem) => {
    prepare();
    expect(statusOf(keyring, teammate.keyId)).toBe('unknown');
    expect(keyring.list()).toEqual([
      expect.objectContaining({
        key_id: teammate.keyId,
        trusted: false,
        problem: expect.stringMatching(problem),
      }),
    ]);
  });

  test('that a trusted key vouches for counts; two that vouch for each other do not', () => {
    put(signKeyFile(plain, stranger));
    put(renderTrustedKey({ key: stranger, owner: 'S' }), stranger.keyId);
    expect(statusOf(keyring, teammate.keyId)).toBe('trusted');
    const strangers = renderTrustedKey({ key: stranger, owner: 'S' });
    put(signKeyFile(strangers, teammate, stranger.keyId), stranger.keyId);
    expect(statusOf(keyring, teammate.keyId)).toBe('unknown');
    expect(statusOf(keyring, stranger.keyId)).toBe('unknown');
    expect(keyring.find(stranger.keyId)).toMatchObject({
      reason: expect.stringContaining('does not verify: key_untrusted'),
    });
  });

  test('cannot be reached by a key id that is a path', () => {
    write(join(keysPath, 'evil.toml'), plain);
    expect(statusOf(keyring, '../evil')).toBe('unknown');
  });
});

describe("a project's own keys", () => {
  test('do not count before the user confirms them', () => {
    write(projectKey(), renderTrustedKey({ key: teammate, owner: 'Tim' }));
    expect(verdictOf(keyring, signed(teammate))).toBe('key_untrusted');
    expect(keyring.list()).toEqual([
      expect.objectContaining({ source: 'project', trusted: false }),
    ]);
  });

  test('count for that project once confirmed, and for no other', async () => {
    const text = renderTrustedKey({ key: teammate, owner: 'Tim' });
    write(projectKey(), text);
    await keyring.trust(text);
    expect(verdictOf(open(), signed(teammate))).toBe('ok');
    const elsewhere = join(base, 'elsewhere');
    mkdirSync(elsewhere);
    expect(verdictOf(open(elsewhere), signed(teammate))).toBe('key_untrusted');
    await open(elsewhere).trust(teammate.pem);
    expect(verdictOf(open(elsewhere), signed(teammate))).toBe('ok');
    expect(verdictOf(open(), signed(teammate))).toBe('ok');
  });

  test('are not marked any more as keys that the user stopped trusting, once they are trusted again', async () => {
    const mark = file(`untrusted/${teammate.keyId}.toml`);
    await keyring.trust(teammate.pem);
    await keyring.untrust(teammate.keyId);
    expect([statusOf(keyring, teammate.keyId), existsSync(mark)]).toEqual(['unknown', true]);
    await keyring.trust(teammate.pem);
    expect([statusOf(keyring, teammate.keyId), existsSync(mark)]).toEqual(['trusted', false]);
  });

  test('leave a key that the user trusts everywhere as it is', async () => {
    await keyring.trust(teammate.pem);
    write(projectKey(), renderTrustedKey({ key: teammate, owner: 'Tim' }));
    await keyring.trust(teammate.pem);
    expect(statusOf(open(join(base, 'elsewhere')), teammate.keyId)).toBe('trusted');
  });
});

describe('revoke', () => {
  test('ends trust at once, in keyrings that are open too, with a signed and dated file', async () => {
    await keyring.init();
    await keyring.trust(teammate.pem, { owner: 'Tim' });
    const watching = open();
    expect(verdictOf(watching, signed(teammate))).toBe('ok');
    const info = await keyring.revoke(teammate.keyId, { reason: 'left' });
    expect(info).toMatchObject({
      revoked: true,
      trusted: false,
      revoked_at: '2026-01-02T03:04:05Z',
      owner: 'Tim',
    });
    expect(verdictOf(watching, signed(teammate))).toBe('key_revoked');
    const text = readFileSync(file(`revoked/${teammate.keyId}.toml`), 'utf8');
    expect(
      checkText({ text, style: 'hash', keys: keyring, subject: revocationSubject(teammate.keyId) })
        .ok,
    ).toBe(true);
    expect(text).toContain('reason = "left"');
    await expect(keyring.trust(teammate.pem)).rejects.toThrow(code('key_revoked'));
    expect(await keyring.revoke(teammate.keyId)).toMatchObject({ revoked: true });
  });

  test('holds even when its file is damaged', async () => {
    await keyring.trust(teammate.pem);
    write(file(`revoked/${teammate.keyId}.toml`), 'torn');
    expect(keyring.find(teammate.keyId)).toMatchObject({ status: 'revoked', revokedAt: null });
  });

  test("of one's own key ends signing until it is rotated", async () => {
    const { key_id: old } = await keyring.init();
    const text = signed();
    await keyring.revoke(old, { reason: 'leaked' });
    expect(verdictOf(keyring, text)).toBe('key_revoked');
    expect(() => keyring.signer()).toThrow(code('key_revoked'));
    await keyring.rotate();
    expect(verdictOf(keyring, signed())).toBe('ok');
    expect(verdictOf(keyring, text)).toBe('key_revoked');
  });

  test('needs a key that exists and an id that is one', async () => {
    await keyring.init();
    await expect(keyring.revoke('0123456789abcdef')).rejects.toThrow(code('key_not_found'));
    await expect(keyring.revoke('../../x')).rejects.toThrow(code('invalid_input'));
  });
});

describe('rotate', () => {
  test('signs the new key with the old, which stays trusted and is archived', async () => {
    const { key_id: old } = await keyring.init();
    const before = signed();
    const result = await keyring.rotate();
    expect(result.old_key_id).toBe(old);
    expect(keyring.signer().keyId).toBe(result.key_id);
    expect(verdictOf(open(), before)).toBe('ok');
    expect(verdictOf(open(), signed())).toBe('ok');
    const passport = readFileSync(file(`trusted/${result.key_id}.toml`), 'utf8');
    expect(passport).toMatch(new RegExp(`:${old}\\n`));
    expect(statSync(file('archive', old, 'private_key.pem')).mode & 0o777).toBe(0o600);
    expect(statSync(file('signing', 'private_key.pem')).mode & 0o777).toBe(0o600);
  });

  test('lets a teammate who trusts the old key read the new one’s file', async () => {
    await keyring.init();
    const oldPem = keyring.export().pem;
    const { key_id: next } = await keyring.rotate();
    const theirs = openKeyring({ userSpacePath: join(base, 'other'), projectPath, now: () => NOW });
    await theirs.trust(oldPem);
    const passport = readFileSync(file(`trusted/${next}.toml`), 'utf8');
    expect(await theirs.trust(passport)).toMatchObject({ key_id: next, trusted: true });
  });

  test('keeps the keys that the old key vouched for, also when that one is revoked later', async () => {
    await keyring.init();
    await keyring.trust(teammate.pem);
    const { old_key_id: old } = await keyring.rotate();
    await keyring.revoke(old);
    expect(statusOf(open(), teammate.keyId)).toBe('trusted');
    expect(verdictOf(open(), signed(open().signer()))).toBe('ok');
  });

  test('that was cut short before the public key was replaced still leaves a working keyring', async () => {
    await keyring.init();
    const oldPublic = readFileSync(file('signing/public_key.pem'));
    await keyring.rotate();
    writeFileSync(file('signing/public_key.pem'), oldPublic);
    expect(verdictOf(open(), signed(open().signer()))).toBe('ok');
  });

  test('needs a key', async () => {
    await expect(keyring.rotate()).rejects.toThrow(code('key_missing'));
  });
});

test('a payload signer serves the log, and its verifier knows revocations', async () => {
  const { key_id: own } = await keyring.init();
  const signer = keyring.payloadSigner();
  const signature = signer.sign({ a: 1 });
  const found = keyring.payloadVerifier.find(own);
  expect(typeof found === 'object' && found.verify({ a: 1 }, signature)).toBe(true);
  await keyring.revoke(own);
  const revoked = keyring.payloadVerifier.find(own);
  const at = (timestamp: string) => {
    const payload = { timestamp };
    return typeof revoked === 'object' && revoked.verify(payload, signer.sign(payload));
  };
  expect(at('2026-01-02T03:04:04.999Z')).toBe(true);
  expect(at('2026-01-02T03:04:05.000Z')).toBe(false);
  expect(at('never')).toBe(false);
});

describe('what a file of a key limits', () => {
  const approver = (): string =>
    renderTrustedKey({ key: teammate, owner: 'bob', scope: { purposes: ['approve'] } });

  test('is not widened by a default: the user names what the key is for', async () => {
    await keyring.init();
    await expect(keyring.trust(approver())).rejects.toMatchObject({
      message: `the key file of ${teammate.keyId} is for approve alone`,
      hint: 'Name what you trust it for: --for approve',
    });
    const named = await keyring.trust(approver(), { purposes: ['approve'] });
    expect(named.purposes).toEqual(['approve']);
  });

  test('is the later end of two certificates', async () => {
    await keyring.init();
    await keyring.trust(stranger.pem, { owner: 'fleet', purposes: ['certify'] });
    const certify = (space: string, notAfter: number): void =>
      write(
        join(space, '.ai/config/keys/certified', `${teammate.keyId}.toml`),
        certificateText(stranger, { key: teammate, labels: ['w'], notAfter, now: NOW - 1000 }),
      );
    const [over, valid] = [NOW - 500, NOW + 60_000];
    for (const [user, project, expected] of [
      [over, valid, 'trusted'],
      [valid, over, 'trusted'],
      [over, over, 'revoked'],
    ] as const) {
      certify(userSpacePath, user);
      certify(projectPath, project);
      expect(statusOf(open(), teammate.keyId)).toBe(expected);
    }
  });
});

test('the key of a run without a key of the user signs records of threads and no item', () => {
  const run = testKey(9);
  const ring = openKeyring({ userSpacePath, projectPath, now: () => NOW, recordKey: run });
  expect(verdictOf(ring, signed(run))).toBe('key_out_of_scope');
  const subject = { kind: 'thread', id: 't' } as const;
  const text = signText({ text: 'Body\n', style: 'html', subject, key: run, now: NOW });
  expect(checkText({ text, style: 'html', keys: ring, subject })).toMatchObject({ ok: true });
  expect(statusOf(open(), run.keyId)).toBe('unknown');
});

test.each([
  ['names no file', '/nowhere/team.pem'],
  ['is a damaged key', '-----BEGIN PUBLIC KEY-----\nc2VjcmV0\n-----END PUBLIC KEY-----'],
  ['is a folder', '/'],
])(
  'keys of the environment are unsafe where their variable %s, and it is not shown',
  (_, value) => {
    const asking = (name: string) => {
      const ring = openKeyring({
        userSpacePath,
        projectPath,
        now: () => NOW,
        env: { [name]: value },
      });
      return () => (name === 'RYE_SIGNING_KEY' ? ring.signer() : ring.find(teammate.keyId));
    };
    for (const name of ['RYE_SIGNING_KEY', 'RYE_TRUSTED_KEYS']) {
      const message = expect.not.stringContaining('c2VjcmV0') as string;
      expect(asking(name), name).toThrow(expect.objectContaining({ code: 'key_unsafe', message }));
    }
  },
);
