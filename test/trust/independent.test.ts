import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import nacl from 'tweetnacl';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openRye } from '../../src/app/open-rye.ts';
import { readPrivateKey } from '../../src/trust/keys.ts';
import { checkDocument, checkText } from '../../src/trust/signature.ts';

/*
 * A second implementation of the format, from its description in docs/trust.md alone: nothing of src/trust takes part
 * in what it computes.
 */

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

/** The last 32 bytes of the DER inside of a PEM: the raw key of Ed25519 in SPKI as in PKCS #8. */
const rawKey = (pem: string): Uint8Array =>
  Buffer.from(pem.replaceAll(/-----[^-]+-----|\s/g, ''), 'base64').subarray(-32);

function verifies(line: string, content: string, publicPem: string): boolean {
  const [, hash = '', signature = '', keyId = ''] =
    /rye:signed:[^:]+:[^:]+:[^:]+Z:([0-9a-f]{64}):([A-Za-z0-9_-]+):([0-9a-f]{16})/.exec(line) ?? [];
  return (
    sha256(content.replaceAll('\r\n', '\n')) === hash &&
    sha256(publicPem).slice(0, 16) === keyId &&
    nacl.sign.detached.verify(
      Buffer.from(hash),
      Buffer.from(signature, 'base64url'),
      rawKey(publicPem),
    )
  );
}

function signatureOf(content: string, seed: Uint8Array, publicPem: string): string {
  const hash = sha256(content);
  const { secretKey } = nacl.sign.keyPair.fromSeed(seed);
  const signature = Buffer.from(nacl.sign.detached(Buffer.from(hash), secretKey)).toString(
    'base64url',
  );
  return `rye:signed:2026-01-02T03:04:05Z:${hash}:${signature}:${sha256(publicPem).slice(0, 16)}`;
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
  const rye = openRye({ projectPath, userSpacePath, env: { PATH: process.env['PATH'] } });
  const keyFile = (name: string): string =>
    readFileSync(join(userSpacePath, '.ai/config/keys/signing', name), 'utf8');

  beforeAll(async () => {
    await rye.init();
    await rye.threads.execute({ directiveId: 'hello', threadId: 'one' });
  });
  afterAll(() => {
    rye.close();
    rmSync(folder, { recursive: true });
  });

  it.each([
    '.ai/directives/example.md',
    '.ai/config/agent/resilience.yaml',
    '.ai/state/threads/one/capabilities.md',
    '.ai/knowledge/agent/threads/hello/one.md',
  ])('verifies %s, which rye signed, and notices an edit', (name) => {
    const [line = '', ...rest] = readFileSync(join(projectPath, name), 'utf8').split('\n');
    const content = rest.join('\n');
    expect(verifies(line, content, keyFile('public_key.pem'))).toBe(true);
    expect(verifies(line, `${content}x`, keyFile('public_key.pem'))).toBe(false);
  });

  it('verifies thread.json, which rye signed, over its canonical JSON', () => {
    const path = join(projectPath, '.ai/state/threads/one/thread.json');
    const { _signature, ...document } = JSON.parse(readFileSync(path, 'utf8'));
    expect(verifies(_signature, canonical(document), keyFile('public_key.pem'))).toBe(true);
  });

  it('verifies every checkpoint of the log, and that they hang together', () => {
    const log = readFileSync(join(projectPath, '.ai/state/threads/one/transcript.jsonl'));
    let prev = sha256('one');
    let count = 0;
    for (const line of log.toString().trimEnd().split('\n')) {
      const { event_type: type, payload } = JSON.parse(line);
      if (type !== 'checkpoint') continue;
      const { signature, ...statement } = payload;
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
    const signature = signatureOf(content, seed, pem);
    for (const [style, text] of [
      ['html', `<!-- ${signature} -->\n${content}`],
      ['hash', `#!/bin/sh\n# ${signature}\n${content}`],
      ['yaml', `# ${signature}\r\n${content.replaceAll('\n', '\r\n')}`],
      ['slash', `// ${signature}\n${content}`],
    ] as const) {
      expect(checkText({ text, style, keys })).toMatchObject({ ok: true });
      expect(checkText({ text: `${text}x`, style, keys })).toMatchObject({
        code: 'content_modified',
      });
    }
    const document = { b: [true, null, 'ü'], a: { z: '1', y: 'x' } };
    const signed = { ...document, _signature: signatureOf(canonical(document), seed, pem) };
    expect(checkDocument(signed, keys)).toMatchObject({ ok: true });
  });
});
