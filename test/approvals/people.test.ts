import { createHmac } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished, vi } from 'vitest';
import { calls, house, marks, toolUse } from './house.ts';

it('notifications carry the request, a webhook with an HMAC and to no other address; one that fails changes nothing', async () => {
  const got: { readonly url: string; readonly body: string; readonly signature: unknown }[] = [];
  const server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (text: string) => {
      body += text;
    });
    request.on('end', () => {
      const { url = '', headers } = request;
      got.push({ url, body, signature: headers['x-rye-signature'] });
      if (url === '/moved') response.writeHead(307, { location: '/elsewhere' });
      response.end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const here = await house(calls(marks('mark')));
  here.policy({
    rules: [{ tool: 'rye/bash', ask: 'me' }],
    notify: [
      { command: './missing' },
      { command: ['sh', '-c', 'cat > told.json; env > told.env'] },
      { webhook: `http://127.0.0.1:${port}/moved` },
      { webhook: `http://127.0.0.1:${port}/hook`, secret: 'env:HOOK_SECRET' },
    ],
  });
  const { code, stdout } = await here.cli(['run', 'pusher', '--json'], {
    env: { HOOK_SECRET: 'only-the-hook' },
  });
  expect(code, stdout).toBe(8);
  await vi.waitUntil(() => got.length > 1 && here.file('told.json') !== undefined, 60_000);
  const [request] = await here.waiting();
  expect(got.map(({ url }) => url).toSorted()).toEqual(['/hook', '/moved']);
  const hook = got.find(({ url }) => url === '/hook');
  const hmac = createHmac('sha256', 'only-the-hook')
    .update(hook?.body ?? '')
    .digest('hex');
  expect(hook?.signature).toBe(`sha256=${hmac}`);
  for (const text of [hook?.body, here.file('told.json')]) {
    expect(JSON.parse(text ?? '')).toMatchObject({
      event: 'approval_requested',
      approval: { id: request?.id, input: { command: 'echo ran >> mark' } },
    });
  }
  expect(here.file('told.env')).not.toContain('only-the-hook');
});

it('a program lists, watches and decides, also while its own run waits', async () => {
  const here = await house(calls(marks('mark')), calls(marks('other')));
  const rye = here.rye();
  const seen: string[] = [];
  const { status } = await here.run('pusher');
  expect(status).toBe('suspended');
  const stop = new AbortController();
  for await (const one of rye.approvals.watch({ signal: stop.signal })) {
    seen.push(one.id);
    stop.abort();
  }
  const [listed] = await rye.approvals.list();
  expect(seen).toEqual([listed?.id]);
  const decided = await rye.approvals.decide({
    id: seen[0] ?? '',
    decision: 'deny',
    resume: false,
  });
  expect(decided).toMatchObject({ state: 'denied', missing: 0, resumed: false });
  expect(await rye.approvals.list()).toEqual([]);
  const outcome = await rye.run({
    directiveId: 'pusher',
    onApproval: ({ input }) => {
      expect(input).toEqual({ command: 'echo ran >> other' });
      return { decision: 'approve', input: { command: 'echo ran >> other-changed' } };
    },
  });
  expect(outcome.kind).toBe('completed');
  expect([here.file('other'), here.file('other-changed')]).toEqual([undefined, 'ran\n']);
  expect(JSON.stringify(here.bodies.at(-1)?.messages)).toContain('A person approved this call');
});

it('an approval for the tool covers the number of calls that it names, and a replay makes no difference', async () => {
  const mark = () => calls(marks('mark'));
  const here = await house(
    mark(),
    calls(toolUse('rye_bash', { command: 'echo ran >> mark' })),
    mark(),
  );
  const { thread_id: id } = await here.json(['run', 'pusher'], 8);
  const thread = String(id);
  const [first] = await here.waiting();
  await here.json(['approve', first?.id ?? '', '--scope', 'tool', '--uses', '2', '--no-resume']);
  await here.json(['threads', 'resume', thread], 8);
  expect(here.file('mark')).toBe('ran\nran\n');
  const [second] = await here.waiting();
  expect(second?.id).not.toBe(first?.id);
  await here.json(['deny', second?.id ?? '', '--comment', 'Enough.', '--no-resume']);
  await here.json(['threads', 'resume', thread]);
  expect(here.file('mark')).toBe('ran\nran\n');
  await here.json(['verify', 'thread', thread]);
  await here.json(['threads', 'replay', thread]);
});

it('wait_inline keeps the process until a person in another one decides', async () => {
  const here = await house(calls(marks('mark')));
  here.policy({ rules: [{ tool: 'rye/bash', ask: 'me' }], wait_inline: '120s' });
  const run = here.cli(['run', 'pusher', '--json']);
  await vi.waitUntil(async () => (await here.waiting()).length === 1, 60_000);
  const [request] = await here.waiting();
  const decided = await here.json(['approve', request?.id ?? '']);
  expect(decided).toMatchObject({ success: true });
  const { code, stdout } = await run;
  expect([code, JSON.parse(stdout)]).toEqual([0, expect.objectContaining({ status: 'completed' })]);
  expect(here.file('mark')).toBe('ran\n');
});

it('an expired request with on_expiry: end ends the thread although another one still waits', async () => {
  const here = await house(
    calls(marks('mark'), toolUse('rye_file_system_write', { path: 'a.txt', content: 'x' })),
  );
  here.policy({
    rules: [
      { tool: 'rye/bash', ask: 'me', expires: '1s', on_expiry: 'end' },
      { tool: 'rye/file-system/write', ask: 'me' },
    ],
  });
  const { thread_id: id } = await here.json(['run', 'pusher'], 8);
  await vi.waitUntil(async () => (await here.waiting()).length === 1, 30_000);
  const { code, stdout } = await here.cli(['threads', 'resume', String(id), '--json']);
  expect(JSON.parse(stdout), String(code)).toMatchObject({ success: false, status: 'error' });
  expect([here.file('mark'), here.file('a.txt')]).toEqual([undefined, undefined]);
  expect(await here.waiting()).toEqual([]);
});
