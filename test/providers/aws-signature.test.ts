import { expect, test } from 'vitest';
import { awsHeaders } from '../../src/kernel/providers/aws-signature.ts';

const CREDENTIALS = {
  accessKeyId: 'AKIDEXAMPLE',
  secretAccessKey: 'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY',
  sessionToken: undefined,
  region: 'us-east-1',
};
const NOW = Date.UTC(2015, 7, 30, 12, 36, 0);

interface Vector {
  readonly name: string;
  readonly method: string;
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly signature: string;
}

/** From the test suite that AWS publishes for Signature Version 4. */
const VECTORS: readonly Vector[] = [
  {
    name: 'get-vanilla',
    method: 'GET',
    path: '/',
    signature: '5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31',
  },
  {
    name: 'get-vanilla-query-order-key-case',
    method: 'GET',
    path: '/?Param2=value2&Param1=value1',
    signature: 'b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500',
  },
  {
    name: 'post-vanilla',
    method: 'POST',
    path: '/',
    signature: '5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b',
  },
  {
    name: 'post-x-www-form-urlencoded',
    method: 'POST',
    path: '/',
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: 'Param1=value1',
    signature: 'ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a',
  },
];

test.each(VECTORS)(
  '$name of the suite of AWS',
  ({ method, path, headers = {}, body = '', signature }) => {
    const url = new URL(path, 'https://example.amazonaws.com');
    const scope = { credentials: CREDENTIALS, service: 'service', nowMs: NOW };
    const { authorization } = awsHeaders({ method, url, headers, body }, scope);
    expect(authorization).toContain(`Signature=${signature}`);
    expect(authorization).toContain(
      'Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request',
    );
  },
);

test('a session token is sent and signed', () => {
  const credentials = { ...CREDENTIALS, sessionToken: 'token' };
  const request = { method: 'GET', url: new URL('https://a.b/'), headers: {}, body: '' };
  const added = awsHeaders(request, { credentials, service: 's', nowMs: NOW });
  expect(added).toMatchObject({
    'x-amz-security-token': 'token',
    'x-amz-date': '20150830T123600Z',
  });
  expect(added['authorization']).toContain('SignedHeaders=host;x-amz-date;x-amz-security-token');
});
