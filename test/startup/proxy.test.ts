import { expect, test } from 'vitest';
import { proxySecrets } from '../../src/kernel/core/proxy-secrets.ts';
import { proxyFor } from '../../src/kernel/startup/proxy.ts';

const P = 'http://p.test:3128';

test.each([
  ['http://a.test', { http_proxy: P }, 'http_proxy'],
  ['http://a.test', { HTTP_PROXY: P }, 'HTTP_PROXY'],
  ['http://a.test', { HTTP_PROXY: 'http://other.test', http_proxy: P }, 'http_proxy'],
  ['http://a.test', { HTTP_PROXY: P, REQUEST_METHOD: 'GET' }, undefined],
  ['http://a.test', { http_proxy: P, REQUEST_METHOD: 'GET' }, 'http_proxy'],
  ['http://a.test', { HTTPS_PROXY: P }, undefined],
  ['https://a.test', { HTTP_PROXY: P }, undefined],
  ['https://a.test', { HTTPS_PROXY: P }, 'HTTPS_PROXY'],
  ['https://a.test', { https_proxy: 'p.test:3128' }, 'https_proxy'],
  ['https://a.test', { HTTPS_PROXY: ' ', ALL_PROXY: P }, 'ALL_PROXY'],
  ['http://a.test', { all_proxy: P }, 'all_proxy'],
  ['https://a.test', { HTTPS_PROXY: 'https://p.test', ALL_PROXY: 'socks5://s' }, 'HTTPS_PROXY'],
  // another machine's proxy does not reach this machine; one of this machine does
  ['http://127.0.0.1:11434', { HTTP_PROXY: P }, undefined],
  ['http://localhost:11434', { HTTP_PROXY: P }, undefined],
  ['http://[::1]:11434', { HTTP_PROXY: P }, undefined],
  ['http://127.0.0.1:11434', { HTTP_PROXY: 'http://localhost:8080' }, 'HTTP_PROXY'],
  ['https://a.test', {}, undefined],
])('%s with %j is called by way of %s', (address, env, variable) => {
  expect(proxyFor(new URL(address), env)?.variable).toBe(variable);
});

test.each([
  ['*', 'https://a.test', true],
  ['a.test', 'https://a.test', true],
  ['a.test', 'https://x.a.test', true],
  ['a.test', 'https://ba.test', false],
  ['.a.test', 'https://x.a.test', true],
  ['.a.test', 'https://a.test', true],
  ['*.a.test', 'https://x.y.a.test', true],
  ['A.TEST.', 'https://a.test', true],
  ['a.test', 'https://A.test.', true],
  ['b.test, a.test', 'https://a.test', true],
  ['b.test a.test', 'https://a.test', true],
  ['b.test,,\ta.test', 'https://a.test', true],
  ['a.test:443', 'https://a.test', true],
  ['a.test:8443', 'https://a.test', false],
  ['a.test:8443', 'https://x.a.test:8443', true],
  ['10.0.0.0/8', 'http://10.1.2.3', true],
  ['10.0.0.0/8', 'http://11.1.2.3', false],
  ['10.0.0.0/33', 'http://10.0.0.0', false],
  ['10.0.0.0/8', 'http://10.a.test', false],
  ['192.168.1.7', 'http://192.168.1.7:8080', true],
  ['192.168.1.7:8080', 'http://192.168.1.7:8080', true],
  ['192.168.', 'http://192.168.1.7', true],
  ['192.168.*', 'http://192.168.1.7', true],
  ['192.168.1', 'http://192.168.1.7', false],
  ['fd00::/8', 'http://[fd12::1]', true],
  ['fd00::/8', 'http://[fe80::1]', false],
  ['[fd12::1]', 'http://[fd12::1]', true],
  ['[fd12::1]:80', 'http://[fd12::1]', true],
  ['fd12::1', 'http://[fd12::1]', true],
  ['', 'https://a.test', false],
  [',', 'https://a.test', false],
  ['.', 'https://a.test', false],
])('the exceptions %j cover %s: %s', (no_proxy, address, isDirect) => {
  for (const name of ['no_proxy', 'NO_PROXY']) {
    const env = { http_proxy: P, https_proxy: P, [name]: no_proxy };
    expect(proxyFor(new URL(address), env) === undefined).toBe(isDirect);
  }
});

test.each([
  ['socks5://p.test:1080', 'names a SOCKS proxy'],
  ['ftp://p.test', 'is not the address of a proxy'],
  ['http://', 'is not the address of a proxy'],
  ['http://me:secret@:99999', 'is not the address of a proxy'],
])('a proxy %s is refused with the name of its variable', (HTTPS_PROXY, problem) => {
  const call = () => proxyFor(new URL('https://a.test'), { HTTPS_PROXY });
  expect(call).toThrow(`HTTPS_PROXY ${problem}`);
  expect(call).toThrow(expect.objectContaining({ code: 'proxy_refused' }));
});

test('secrets of proxies are their logins, in each form', () => {
  const env = {
    HTTPS_PROXY: 'http://me:p%40ssword1@p.test:3128/',
    all_proxy: 'me:short@p.test',
    HTTP_PROXY: P,
    NO_PROXY: 'a@b',
    MY_PROXY: 'x:longenough@y',
  };
  expect(proxySecrets(env)).toEqual([
    'me:p%40ssword1',
    'me:p@ssword1',
    Buffer.from('me:p@ssword1').toString('base64'),
    'p%40ssword1',
    'p@ssword1',
    'me:short',
    Buffer.from('me:short').toString('base64'),
  ]);
});
