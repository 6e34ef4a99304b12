import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync } from 'node:fs';
import { createServer, type RequestListener, type Server } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { afterEach, describe, expect, onTestFinished, test } from 'vitest';
import { type AnswerBody, bodyOf, httpFetch } from '../../src/kernel/startup/http-fetch.ts';
import { removeFolder } from '../helpers/remove-folder.ts';

const servers: Server[] = [];

afterEach(() => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    server.close();
  }
});

async function listening(server: Server): Promise<number> {
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}

async function serve(answer: RequestListener): Promise<string> {
  return `http://127.0.0.1:${await listening(createServer(answer))}/v1`;
}

const POST = { method: 'POST', body: '{}' };

async function textOf(response: Response): Promise<string> {
  let text = '';
  const decoder = new TextDecoder();
  for await (const chunk of bodyOf(response) ?? []) text += decoder.decode(chunk, { stream: true });
  return text;
}

describe('a request', () => {
  test('has its method, headers and body, and asks for the answer as it is', async () => {
    const url = await serve((request, response) => {
      let body = '';
      request.setEncoding('utf8').on('data', (part: string) => {
        body += part;
      });
      request.on('end', () => {
        const { method, url: target, headers } = request;
        const { 'x-api-key': key, 'content-length': length, 'accept-encoding': coding } = headers;
        response.end(JSON.stringify({ method, target, key, length, coding, body }));
      });
    });
    const headers = new Headers({ 'x-api-key': 'k' });
    const response = await httpFetch(url, { method: 'POST', headers, body: '{"ü":1}' });
    expect(JSON.parse(await textOf(response))).toEqual({
      method: 'POST',
      target: '/v1',
      key: 'k',
      length: '8',
      coding: 'identity',
      body: '{"ü":1}',
    });
  });

  test('uses the connection of the one before it', async () => {
    const ports = new Set<number | undefined>();
    const url = await serve(({ socket }, response) => {
      ports.add(socket.remotePort);
      response.end('x');
    });
    for (let round = 0; round < 3; round += 1) await textOf(await httpFetch(url, POST));
    expect(ports.size).toBe(1);
  });

  test('uses the connection of an answer that was let go, also when that is aborted later', async () => {
    const ROUNDS = 20;
    const ports = new Set<number | undefined>();
    const url = await serve(({ socket }, response) => {
      ports.add(socket.remotePort);
      response.write('all that matters');
      response.end('the rest');
    });
    for (let round = 0; round < ROUNDS; round += 1) {
      const call = new AbortController();
      const body = bodyOf(await httpFetch(url, { ...POST, signal: call.signal }));
      for await (const _ of body ?? []) {
        body?.letGo();
        call.abort();
        break;
      }
      // its end comes in the background, as a rule by now
      await new Promise(setImmediate);
    }
    expect(ports.size).toBeLessThan(ROUNDS);
  });

  test.each([
    ['left', () => undefined],
    ['let go and does not end', (body: AnswerBody | undefined) => body?.letGo()],
  ])('ends the connection of an answer that is %s', async (_how, leave) => {
    let onGone = (): void => undefined;
    const gone = new Promise<void>((resolve) => {
      onGone = resolve;
    });
    const url = await serve((request, response) => {
      request.socket.on('close', onGone);
      response.write('begun');
    });
    const body = bodyOf(await httpFetch(url, POST));
    for await (const _ of body ?? []) {
      leave(body);
      break;
    }
    await gone;
  });

  test('that is aborted beforehand is not sent', async () => {
    let asked = 0;
    const url = await serve((_, response) => {
      asked += 1;
      response.end();
    });
    await expect(httpFetch(url, { ...POST, signal: AbortSignal.abort() })).rejects.toThrow('abort');
    expect(asked).toBe(0);
  });

  test('to a server that never ends the handshake fails in time', async () => {
    const silent = createTcpServer((socket) => {
      onTestFinished(() => void socket.destroy());
    });
    onTestFinished(() => void silent.close());
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
    const { port } = silent.address() as AddressInfo;
    const asked = httpFetch(`https://localhost:${port}/`, POST, { connectMs: 50 });
    await expect(asked).rejects.toMatchObject({ code: 'ETIMEDOUT' });
  });

  test('with an untrusted certificate gets no answer', async () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'rye-tls-'));
    const [key, cert] = ['key.pem', 'cert.pem'].map((name) => path.join(folder, name));
    const words = `req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=localhost -keyout ${key} -out ${cert}`;
    execFileSync('openssl', words.split(' '), { stdio: 'ignore' });
    const pair = { key: readFileSync(key ?? ''), cert: readFileSync(cert ?? '') };
    const port = await listening(createTlsServer(pair, (_, response) => response.end('secret')));
    removeFolder(folder);
    await expect(httpFetch(`https://localhost:${port}/`, POST)).rejects.toMatchObject({
      code: 'DEPTH_ZERO_SELF_SIGNED_CERT',
    });
  });
});

describe('a response', () => {
  test.each([
    ['gzip', gzipSync],
    ['x-gzip', gzipSync],
    ['deflate', deflateSync],
    ['br', brotliCompressSync],
    ['GZIP', gzipSync],
  ] as const)('in the encoding %s is decoded', async (coding, encode) => {
    const text = 'data: {"a":"ü"}\n\n'.repeat(500);
    const url = await serve((_, response) => {
      response.writeHead(200, { 'content-encoding': coding });
      response.end(encode(text));
    });
    expect(await textOf(await httpFetch(url, POST))).toBe(text);
  });

  test('in an unknown encoding fails', async () => {
    const url = await serve((_, response) => {
      response.writeHead(200, { 'content-encoding': 'rot13' });
      response.end('x');
    });
    await expect(httpFetch(url, POST)).rejects.toThrow('unknown encoding rot13');
  });

  test('is there before its body has ended, and an abort ends it', async () => {
    let onGone = (): void => undefined;
    const gone = new Promise<void>((resolve) => {
      onGone = resolve;
    });
    const url = await serve((_, response) => {
      response.on('close', onGone);
      response.write('begun');
    });
    const call = new AbortController();
    const response = await httpFetch(url, { ...POST, signal: call.signal });
    const read = async (): Promise<void> => {
      for await (const _ of bodyOf(response) ?? []) call.abort();
    };
    await expect(read()).rejects.toThrow('aborted');
    await gone;
  });

  test('that breaks off inside an encoding is an error, not an end', async () => {
    const bytes = gzipSync('x'.repeat(100_000));
    const url = await serve((_, response) => {
      response.writeHead(200, { 'content-encoding': 'gzip', 'content-length': bytes.length });
      response.write(bytes.subarray(0, 50), () => response.destroy());
    });
    await expect(httpFetch(url, POST).then(textOf)).rejects.toThrow('aborted');
  });

  test.each([
    ['to another host', 'https://elsewhere.test/v2?key=1', 'https://elsewhere.test'],
    ['to another path', '/v2', 'another address'],
  ])('that redirects %s is refused without being followed', async (_, location, where) => {
    const paths: string[] = [];
    const url = await serve((request, response) => {
      paths.push(request.url ?? '');
      response.writeHead(307, { location });
      response.end();
    });
    const response = await httpFetch(url, POST);
    expect([response.status, response.ok, await response.text()]).toEqual([
      307,
      false,
      `{"type":"error","error":{"type":"redirected","message":"${new URL(url).host} redirects to ${where}, which is not followed"}}`,
    ]);
    expect(paths).toEqual(['/v1']);
  });

  test('of a failure is read up to a size that an error may have', async () => {
    const url = await serve((_, response) => {
      response.writeHead(500, { 'request-id': 'r1' });
      const fill = (): void => {
        while (response.write('x'.repeat(1 << 16)));
      };
      response.on('drain', fill);
      fill();
    });
    const response = await httpFetch(url, POST);
    expect([response.status, response.headers.get('request-id')]).toEqual([500, 'r1']);
    const { length } = await response.text();
    expect(length).toBeGreaterThan(1 << 20);
    expect(length).toBeLessThan(1 << 22);
  });
});
