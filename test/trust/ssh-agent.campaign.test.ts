import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { readPublicKey } from '../../src/kernel/trust/keys.ts';
import { agentSigner, sshAgent } from '../../src/kernel/trust/ssh-agent.ts';
import { directive } from '../attacks/lab.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { calls, reply, startWireServer, toolUse } from '../helpers/wire-server.ts';
import { workspace } from '../helpers/workspace.ts';

/** A real ssh-agent, with the keys of `names`; `add` is `ssh-add` with these arguments. */
async function agent(...names: readonly string[]) {
  const folder = mkdtempSync(path.join(tmpdir(), 'rye-agent-'));
  const socket = path.join(folder, 'agent.sock');
  const running = spawn('ssh-agent', ['-D', '-a', socket], { stdio: ['ignore', 'pipe', 'ignore'] });
  onTestFinished(async () => {
    running.kill();
    if (running.exitCode === null && running.signalCode === null) await once(running, 'exit');
    removeFolder(folder);
  });
  // it prints the place of its socket once that is open
  await once(running.stdout, 'data');
  const env = { SSH_AUTH_SOCK: socket };
  const file = (name: string) => path.join(folder, name);
  const add = (...args: readonly string[]) =>
    execFileSync('ssh-add', ['-q', ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  for (const name of names) {
    execFileSync('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-C', name, '-f', file(name)]);
    add(file(name));
  }
  return { env, file, add, socket };
}

// Requirement: signing-key-protected
it('a key of ssh-agent signs all that rye signs, and rye has no private key', async () => {
  const { env, file, add } = await agent('me@laptop', 'other');
  const here = await workspace({ init: false });
  const made = await here.rye(['keys', 'init', '--agent', 'me@laptop'], { env });
  expect(made.code, made.stderr).toBe(0);
  const folder = path.join(here.home, '.ai/config/keys/signing');
  expect(readdirSync(folder).toSorted()).toEqual(['agent_key', 'public_key.pem']);
  const shown = execFileSync('ssh-keygen', ['-l', '-f', file('me@laptop')]).toString();
  expect(shown).toContain(readFileSync(path.join(folder, 'agent_key'), 'utf8').trim());
  expect((await here.rye(['init'], { env })).code).toBe(0);
  const run = await here.rye(['run', 'hello', '--json'], { env });
  expect(run.code, run.stdout + run.stderr).toBe(0);
  const { thread_id: id } = JSON.parse(run.stdout) as { thread_id: string };
  // what needs no signature needs no agent
  expect((await here.rye(['verify', 'thread', id])).code).toBe(0);
  expect((await here.rye(['list', 'directive'])).stdout).toMatch(/example +project +\S+ +signed/);

  const sign = ['run', 'hello', '--json'];
  add('-d', file('me@laptop'));
  for (const [given, reason] of [
    [{}, 'SSH_AUTH_SOCK is not set'],
    [{ SSH_AUTH_SOCK: '/nowhere' }, 'ENOENT'],
    [env, 'does not hold the signing key SHA256:'],
  ] as const) {
    const refused = await here.rye(sign, { env: given });
    expect(refused.code).toBe(3);
    expect(refused.stdout).toContain('"key_unsafe"');
    expect(refused.stdout).toContain(reason);
    expect(refused.stdout).toContain('ssh-add FILE');
  }
  add(file('me@laptop'));
  expect((await here.rye(['keys', 'protect', '--off', '--json'], { env })).stdout).toContain(
    '"usage"',
  );
  const again = await here.rye(['keys', 'init', '--agent', 'other', '--json'], { env });
  expect(again.stdout).toContain('"already_exists"');
  expect((await here.rye(['keys', 'rotate', '-y'], { env })).code).toBe(0);
  expect(readdirSync(folder).toSorted()).toEqual(['private_key.pem', 'public_key.pem']);
  expect((await here.rye(['verify', 'thread', id])).code).toBe(0);
  expect((await here.rye(['run', 'hello'])).code).toBe(0);
}, 60_000);

it('a key that is not there, or one of two with a name, is refused with those that are', async () => {
  const { env, file } = await agent('twin', 'me');
  execFileSync('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-C', 'twin', '-f', file('b')]);
  execFileSync('ssh-add', ['-q', file('b')], { env, stdio: 'ignore' });
  const here = await workspace({ init: false });
  const init = async (name: string) =>
    (await here.rye(['keys', 'init', '--agent', name, '--json'], { env })).stdout;
  expect(await init('nope')).toMatch(/"key_not_found".*SHA256:.* \(me\)/);
  expect(await init('twin')).toContain('"ambiguous"');
  expect(existsSync(path.join(here.home, '.ai/config/keys/signing'))).toBe(false);
  const [, fingerprint = ''] = execFileSync('ssh-keygen', ['-l', '-f', file('b')])
    .toString()
    .split(' ');
  expect(await init(fingerprint)).toContain('"success":true');
});

it('a key that needs a confirmation does not sign without it', async () => {
  const { env, file, add } = await agent('me');
  const here = await workspace({ init: false });
  expect((await here.rye(['keys', 'init', '--agent', 'me'], { env })).code).toBe(0);
  add('-d', file('me'));
  // there is no person to ask, so the agent refuses
  add('-c', file('me'));
  const refused = await here.rye(['init', '--json'], { env });
  expect(refused.stdout).toContain('refused to sign with SHA256:');
  expect(refused.code).toBe(3);
});

it('no tool is told where the agent is', async () => {
  const { env } = await agent('me');
  const here = await workspace({ init: false });
  await here.rye(['keys', 'init', '--agent', 'me'], { env });
  expect((await here.rye(['init'], { env })).code).toBe(0);
  const free = directive('free', {
    permissions:
      '<execute><tool>rye/bash</tool></execute><acknowledge risk="elevated">Tests.</acknowledge>',
  });
  writeFileSync(path.join(here.project, '.ai/directives/free.md'), free);
  expect((await here.rye(['sign', 'directive', 'free'], { env })).code).toBe(0);
  const bodies: string[] = [];
  const server = await startWireServer(({ body }) => {
    bodies.push(JSON.stringify(body));
    return bodies.length > 1
      ? reply('done')
      : calls(toolUse('rye_bash', { command: 'env; ssh-add -l; echo ran' }));
  });
  onTestFinished(async () => await server.close());
  const model = { ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: server.url };
  const run = await here.rye(['run', 'free', '--json'], { env: { ...env, ...model } });
  expect(run.code, run.stdout + run.stderr).toBe(0);
  expect(bodies[1]).toContain('ran');
  expect(bodies[1]).not.toContain(env.SSH_AUTH_SOCK);
  expect(bodies[1]).toContain('Could not open a connection');
});

it.each<readonly [string, Buffer]>([
  [
    'a signature of another key',
    Buffer.from(
      `0e000000530000000b${Buffer.from('ssh-ed25519').toString('hex')}00000040${'ab'.repeat(64)}`,
      'hex',
    ),
  ],
  ['an empty answer', Buffer.alloc(0)],
  ['a length that is not there', Buffer.from('0effffffff', 'hex')],
])('an agent that sends %s signs nothing', async (_, body) => {
  const folder = mkdtempSync(path.join(tmpdir(), 'rye-agent-'));
  const socket = path.join(folder, 'agent.sock');
  const length = Buffer.alloc(4);
  length.writeUInt32BE(body.length);
  // the test waits for the answer without an event loop, so the agent is another process
  const script = `require('node:net').createServer((s) => s.on('data', () => s.end(Buffer.from('${Buffer.concat([length, body]).toString('hex')}', 'hex')))).listen(${JSON.stringify(socket)}, () => console.log('up'))`;
  const running = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
  onTestFinished(async () => {
    running.kill();
    await once(running, 'exit');
    removeFolder(folder);
  });
  await once(running.stdout, 'data');
  const key = readPublicKey(ANY, 'a key');
  expect(() => agentSigner(key, sshAgent({ SSH_AUTH_SOCK: socket })).sign('text')).toThrow(
    /ssh-agent/,
  );
});

const ANY = `-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=
-----END PUBLIC KEY-----
`;
