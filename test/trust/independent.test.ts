import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import nacl from 'tweetnacl';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { naclEd25519, platformEd25519 } from '../../src/kernel/trust/ed25519.ts';
import { readPrivateKey } from '../../src/kernel/trust/keys.ts';
import { checkDocument, checkText, signText } from '../../src/kernel/trust/signature.ts';
import { openRye } from '../../src/open-rye.ts';
import { removeFolder } from '../helpers/remove-folder.ts';

/*
 * A second implementation of the format, from its description in docs/trust.md alone: nothing of src/kernel/trust takes part
 * in what it computes.
 */

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

/** The PKCS #8 PEM of a raw seed. */
const pkcs8 = (seed: Uint8Array): string => {
  const der = Buffer.concat([Buffer.from('302e020100300506032b657004220420', 'hex'), seed]);
  return `-----BEGIN PRIVATE KEY-----\n${der.toString('base64')}\n-----END PRIVATE KEY-----\n`;
};

/** The last 32 bytes of the DER inside of a PEM: the raw key of Ed25519 in SPKI as in PKCS #8. */
const rawKey = (pem: string): Uint8Array =>
  Buffer.from(pem.replaceAll(/-----[^-]+-----|\s/g, ''), 'base64').subarray(-32);

/** The subject of a file's signature. */
interface Named {
  readonly kind: string;
  readonly id: string;
}

const statementOf = ({ kind, id }: Named, time: string, hash: string): string =>
  ['rye-item-v2', `kind ${kind}`, `id ${id}`, `time ${time}`, `sha256 ${hash}`, ''].join('\n');

function verifies(
  line: string,
  content: string,
  { named, publicPem }: { readonly named: Named; readonly publicPem: string },
): boolean {
  const [, time = '', kind, id, hash = '', signature = '', keyId] =
    /rye:signed:v2:([-0-9T:]+Z):([a-z.-]+):([\w./-]+):([0-9a-f]{64}):([\w-]+):([0-9a-f]{16})/.exec(
      line,
    ) ?? [];
  return (
    kind === named.kind &&
    id === named.id &&
    sha256(content.replaceAll('\r\n', '\n')) === hash &&
    sha256(publicPem).slice(0, 16) === keyId &&
    nacl.sign.detached.verify(
      Buffer.from(statementOf(named, time, hash)),
      Buffer.from(signature, 'base64url'),
      rawKey(publicPem),
    )
  );
}

const TIME = '2026-01-02T03:04:05Z';

function signatureOf(
  content: string,
  { named, seed, publicPem }: { named: Named; seed: Uint8Array; publicPem: string },
): string {
  const hash = sha256(content);
  const { secretKey } = nacl.sign.keyPair.fromSeed(seed);
  const statement = Buffer.from(statementOf(named, TIME, hash));
  const signature = Buffer.from(nacl.sign.detached(statement, secretKey)).toString('base64url');
  const keyId = sha256(publicPem).slice(0, 16);
  return `rye:signed:v2:${TIME}:${named.kind}:${named.id}:${hash}:${signature}:${keyId}`;
}

/** Canonical JSON of values without numbers that need care: sorted members, no spaces. */
function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const members = Object.entries(value)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, member]) => `${JSON.stringify(name)}:${canonical(member)}`);
  return `{${members.join(',')}}`;
}

describe('an independent implementation', () => {
  const folder = mkdtempSync(join(tmpdir(), 'rye-independent-'));
  const projectPath = join(folder, 'project');
  const userSpacePath = join(folder, 'home');
  mkdirSync(projectPath);
  const rye = openRye({ projectPath, userSpacePath, env: { PATH: process.env['PATH'] } });
  const keyFile = (name: string): string =>
    readFileSync(join(userSpacePath, '.ai/config/keys/signing', name), 'utf8');

  beforeAll(async () => {
    await rye.init();
    await rye.threads.execute({ directiveId: 'hello', threadId: 'one' });
  });
  afterAll(() => {
    rye.close();
    removeFolder(folder);
  });

  it.each([
    ['.ai/directives/example.md', 'directive', 'example'],
    ['.ai/config/agent/resilience.yaml', 'config', 'agent/resilience'],
    ['.ai/state/threads/one/capabilities.md', 'capabilities', 'one'],
    ['.ai/knowledge/agent/threads/hello/one.md', 'knowledge', 'agent/threads/hello/one'],
  ])('verifies %s, which rye signed as %s %s, and notices an edit', (name, kind, id) => {
    const [line = '', ...rest] = readFileSync(join(projectPath, name), 'utf8').split('\n');
    const content = rest.join('\n');
    const expected = { named: { kind, id }, publicPem: keyFile('public_key.pem') };
    expect(verifies(line, content, expected)).toBe(true);
    expect(verifies(line, `${content}x`, expected)).toBe(false);
    expect(verifies(line.replace(/v2:\d{4}/, 'v2:2020'), content, expected)).toBe(false);
  });

  // Requirement: canonical-json-language
  it('verifies thread.json, which rye signed, over its canonical JSON', () => {
    const path = join(projectPath, '.ai/state/threads/one/thread.json');
    const { _signature, ...document } = JSON.parse(readFileSync(path, 'utf8'));
    const expected = {
      named: { kind: 'thread', id: 'one' },
      publicPem: keyFile('public_key.pem'),
    };
    expect(verifies(_signature, canonical(document), expected)).toBe(true);
  });

  // Requirement: independent-verification
  it('verifies every checkpoint of the log, and that they hang together', () => {
    const log = readFileSync(join(projectPath, '.ai/state/threads/one/transcript.jsonl'));
    let prev = sha256('one');
    let count = 0;
    for (const line of log.toString().trimEnd().split('\n')) {
      const { event_type: type, payload, seq, timestamp, thread_id } = JSON.parse(line);
      if (type !== 'checkpoint') continue;
      const { signature, version, ...facts } = payload;
      expect(version).toBe(2);
      const statement = { domain: 'rye-log-v2', thread_id, seq, timestamp, ...facts };
      const bytes = log.subarray(payload.from, payload.to);
      expect(createHash('sha256').update(bytes).digest('hex')).toBe(payload.sha256);
      expect(payload.prev).toBe(prev);
      const isSigned = nacl.sign.detached.verify(
        Buffer.from(canonical(statement)),
        Buffer.from(signature, 'base64url'),
        rawKey(keyFile('public_key.pem')),
      );
      expect(isSigned).toBe(true);
      prev = sha256(`${line}\n`);
      count += 1;
    }
    expect(count).toBeGreaterThan(0);
  });

  it('signs what rye verifies: text in every style, and documents', () => {
    const seed = rawKey(keyFile('private_key.pem'));
    const pem = keyFile('public_key.pem');
    const key = readPrivateKey(keyFile('private_key.pem'), 'own');
    const keys = { find: () => ({ status: 'trusted', key }) as const };
    const content = 'line one\nzwei\n';
    const subject = { kind: 'tool.sh', id: 'demo/run' };
    const signing = { named: subject, seed, publicPem: pem };
    const signature = signatureOf(content, signing);
    for (const [style, text] of [
      ['html', `<!-- ${signature} -->\n${content}`],
      ['hash', `#!/bin/sh\n# ${signature}\n${content}`],
      ['yaml', `# ${signature}\r\n${content.replaceAll('\n', '\r\n')}`],
      ['slash', `// ${signature}\n${content}`],
    ] as const) {
      expect(checkText({ text, style, keys, subject })).toMatchObject({ ok: true });
      expect(checkText({ text: `${text}x`, style, keys, subject })).toMatchObject({
        code: 'content_modified',
      });
    }
    const document = { b: [true, null, 'ü'], a: { z: '1', y: 'x' } };
    const signed = { ...document, _signature: signatureOf(canonical(document), signing) };
    expect(checkDocument(signed, { keys, subject })).toMatchObject({ ok: true });
  });

  it.each([
    [
      '9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60',
      '7f2d9ed0b71b8e5a',
      'swB-96Ktw4QR9sZykDceeLwapagEp94rI8zF6z8KlYt0hGghBYrXDUsQpVvfTsostmlExTJ7qkBG3JUeJMBjDg',
    ],
    [
      '4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb',
      'bf019c455f05e75c',
      'lxkIH3-k9Cj-mlu_uN0-akNVnK_Uu5IbX4nuRp5inHKVHn0uHXzoVajXoHjOWYwFenGdAuwlGUIKm75Ltw6bAw',
    ],
  ])('and both of rye reproduce the known line of the RFC 8032 key %s', (hex, keyId, signature) => {
    const seed = Buffer.from(hex, 'hex');
    const subject = { kind: 'config', id: 'agent/hooks' };
    const text = 'hooks: []\n';
    const line = `# rye:signed:v2:${TIME}:config:agent/hooks:${sha256(text)}:${signature}:${keyId}`;
    for (const crypto of [platformEd25519, naclEd25519]) {
      const key = readPrivateKey(pkcs8(seed), 'a vector', crypto);
      const keys = { find: () => ({ status: 'trusted', key }) as const };
      const signed = signText({ text, style: 'yaml', subject, key, now: Date.parse(TIME) });
      expect(signed).toBe(`${line}\n${text}`);
      expect(checkText({ text: signed, style: 'yaml', keys, subject })).toMatchObject({ ok: true });
      const publicPem = key.pem;
      expect(verifies(line, text, { named: subject, publicPem })).toBe(true);
      expect(`# ${signatureOf(text, { named: subject, seed, publicPem })}`).toBe(line);
    }
  });
});
