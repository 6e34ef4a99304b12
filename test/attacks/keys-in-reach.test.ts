import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { generateKeyPair } from '../../src/kernel/trust/keys.ts';
import { runCli } from '../helpers/run-cli.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';
import { directive, openLab } from './lab.ts';

const FREE = directive('free', {
  limits: 'turns="4" spend="0.10"',
  permissions:
    '<execute><tool>rye/bash</tool></execute><acknowledge risk="elevated">Tests.</acknowledge>',
});

/** Climbs from a shell to its rye, without what is above that. */
const CLIMB = `p=$PPID; while [ "$(cat /proc/$p/comm)" != node ]; do p=$(awk '/^PPid/{print $2}' /proc/$p/status); done`;

/** Ways to print a private key that rye knows; `KEY` is its file. Each ends with a line that shows that it ran. */
const PRINTS = {
  'the environment of rye': `${CLIMB}; tr '\\0' '\\n' < /proc/$p/environ`,
  'the environment of rye, encoded': `${CLIMB}; base64 -w0 < /proc/$p/environ`,
  'the file': 'cat KEY',
  'each line between other text': `sed 's/.*/line: & ./' KEY`,
  'line feeds as \\n': `awk '{printf "%s\\\\n", $0}' KEY`,
  'as JSON': `node -p 'JSON.stringify(require("fs").readFileSync("KEY","utf8"))'`,
  'as JSON twice': `node -p 'JSON.stringify(JSON.stringify({k:require("fs").readFileSync("KEY","utf8")}))'`,
  'base64 of the file': 'base64 KEY',
  'base64 of the file on one line': 'base64 -w0 KEY',
  'hex of the file': `od -An -v -tx1 KEY | tr -d ' \\n'`,
  'hex of the DER': `sed 1d KEY | sed '$d' | base64 -d | od -An -v -tx1 | tr -d ' \\n'`,
  'upper-case hex of the seed': `sed 1d KEY | sed '$d' | base64 -d | tail -c 32 | od -An -v -tx1 | tr -d ' \\n' | tr a-f A-F`,
  'base64 of the seed': `sed 1d KEY | sed '$d' | base64 -d | tail -c 32 | base64`,
  'base64url of the seed': `sed 1d KEY | sed '$d' | base64 -d | tail -c 32 | base64 | tr '+/' '-_' | tr -d =`,
  'base64 of a key pair': `(sed 1d KEY | sed '$d' | base64 -d | tail -c 32; printf %32s x) | base64 -w0`,
  'in an address': `node -p 'encodeURIComponent(require("fs").readFileSync("KEY","utf8"))'`,
  'on stderr': 'cat KEY >&2',
  'of a key before': 'cat HOME/.ai/config/keys/archive/*/private_key.pem',
  'of a fleet': 'cat HOME/.ai/config/keys/fleet/*.pem',
} as const;

/** Returns texts that would tell a key, however it is printed. */
function traces(pem: string): readonly string[] {
  const body = pem.split('\n')[1] ?? '';
  const der = Buffer.from(body, 'base64');
  const seed = der.subarray(-32);
  return [
    body.slice(24),
    seed.toString('base64').slice(0, 40),
    seed.toString('base64url').slice(0, 40),
    seed.toString('hex').slice(0, 48),
    seed.toString('hex').slice(0, 48).toUpperCase(),
    Buffer.from(body).toString('hex').slice(60, 110),
    Buffer.from(pem).toString('base64').slice(78, 140),
    encodeURIComponent(body).slice(-40),
  ];
}

// Requirement: keys-nowhere-in-reach
it.each(['the environment', 'a file of the home'])(
  'no tool, log, result or request has a private key that rye holds in %s',
  async (place) => {
    const lab = await openLab();
    onTestFinished(async () => await lab.remove());
    lab.signed('directives/free.md', FREE);
    // in the sandbox there is no key to print
    lab.sandbox('off');
    const keys = join(lab.home, '.ai/config/keys');
    const own = join(keys, 'signing/private_key.pem');
    const pems = [generateKeyPair(), generateKeyPair(), generateKeyPair()].map(
      ({ privatePem }) => privatePem,
    );
    const [given = '', before = '', pool = ''] = pems;
    for (const [folder, pem, name] of [
      ['archive/0123456789abcdef', before, 'private_key.pem'],
      ['fleet', pool, '0123456789abcdef.pem'],
    ] as const) {
      mkdirSync(join(keys, folder), { recursive: true, mode: 0o700 });
      writeFileSync(join(keys, folder, name), pem, { mode: 0o600 });
    }
    const ofJob = join(lab.home, 'job.pem');
    writeFileSync(ofJob, given, { mode: 0o600 });
    const file = place === 'the environment' ? ofJob : own;
    const commands = Object.values(PRINTS).map((print) =>
      `{ ${print}; }; echo ran`.replaceAll('KEY', file).replaceAll('HOME', lab.home),
    );
    const bodies: string[] = [];
    await lab.model(({ body }) => {
      bodies.push(JSON.stringify(body));
      return bodies.length === 1
        ? calls(...commands.map((command) => toolUse('rye_bash', { command })))
        : reply('done');
    });
    const env = place === 'the environment' ? { RYE_SIGNING_KEY: given } : {};
    const run = await runCli(['run', 'free', '--json'], {
      cwd: lab.project,
      env: { ...lab.env, ...env },
      spawned: true,
    });
    expect(run.code, run.stdout + run.stderr).toBe(0);
    const state = join(lab.project, '.ai');
    const files = readdirSync(state, { recursive: true, encoding: 'utf8', withFileTypes: true })
      .filter((one) => one.isFile())
      .map((one) => readFileSync(join(one.parentPath, one.name), 'latin1'));
    const seen = [run.stdout, run.stderr, ...bodies, ...files].join('\n');
    expect(seen.split('ran').length).toBeGreaterThan(Object.keys(PRINTS).length);
    const secrets = [readFileSync(own, 'utf8'), ...pems].flatMap(traces);
    expect(secrets.filter((secret) => seen.includes(secret))).toEqual([]);
    expect(seen).not.toContain(Buffer.from('sk-ant-attack').toString('base64').slice(0, 12));
    expect(seen).not.toContain('sk-ant-attack-lab');
  },
  120_000,
);
