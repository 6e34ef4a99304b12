import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import type { CredentialsContext } from '../../src/kernel/hooks/handlers.ts';
import { calls, reply, toolUse, type WireRequest, type WireTurn } from '../helpers/wire-server.ts';
import { libraryLab } from './library-lab.ts';

const WORK = { directiveId: 'team/work' };
const REFUSED: WireTurn = { status: 401, error: { type: 'authentication_error', message: 'no' } };
const OLD = 'sk-ant-test';
const FRESH = 'sk-ant-fresh-4c7e19a2b5';

const keyOf = ({ headers }: WireRequest): unknown =>
  headers['x-api-key'] ?? headers.authorization?.replace('Bearer ', '');

/** Answers those that have one of the keys, and refuses all others. */
const accepts =
  (...keys: readonly string[]) =>
  (request: WireRequest): WireTurn =>
    keys.includes(String(keyOf(request))) ? reply('Done.') : REFUSED;

async function everything(rye: Rye, threadId: string | null): Promise<string> {
  const texts: string[] = [];
  for await (const event of rye.threads.logs(String(threadId))) texts.push(JSON.stringify(event));
  texts.push(JSON.stringify(await rye.threads.show(String(threadId))));
  return texts.join('\n');
}

describe('a key that the provider refuses', () => {
  it('is replaced by a handler, once for an answer, and later runs use the new one', async () => {
    const lab = await libraryLab((request) => {
      if (keyOf(request) !== FRESH) return REFUSED;
      return request.index === 1 ? calls(toolUse('rye_file_system_ls', {}, 'a')) : reply('Done.');
    });
    await lab.directive('work', ['rye/file-system/ls']);
    const asked: CredentialsContext[] = [];
    const notices: string[] = [];
    const rye = lab.open({
      onNotice: (notice) => notices.push(notice),
      preset: {
        handlers: {
          credentials_refresh: async (context) => {
            asked.push(context);
            return { key: FRESH };
          },
        },
      },
    });
    const { kind, threadId } = await rye.run(WORK);
    expect(kind).toBe('completed');
    expect(lab.server.requests.map(keyOf)).toEqual([OLD, FRESH, FRESH]);
    expect(asked).toEqual([
      { thread_id: threadId, turn: 1, provider: 'anthropic', model: expect.any(String) },
    ]);
    await rye.run(WORK);
    expect(lab.server.requests.map(keyOf).slice(3)).toEqual([FRESH]);
    expect(asked).toHaveLength(1);
    const told = await everything(rye, threadId);
    expect(told).toContain('the key of the provider anthropic was renewed');
    expect(`${told}${notices.join()}`).not.toContain(FRESH);
  });

  it('ends the run if the new one is refused too', async () => {
    const lab = await libraryLab(accepts());
    await lab.directive('work');
    let asked = 0;
    const handlers = { credentials_refresh: () => ({ key: `${FRESH}${(asked += 1)}` }) };
    expect(await lab.open().run({ ...WORK, handlers })).toMatchObject({
      error: { code: 'provider_auth' },
    });
    expect([asked, lab.server.requests.length]).toEqual([1, 2]);
  });

  it.each<[string, () => unknown]>([
    ['gives nothing', () => undefined],
    ['gives the same', () => ({ key: OLD })],
    ['gives no key', () => ({ key: `${FRESH} and\nmore` })],
    ['gives no text', () => ({ key: 7 })],
    ['fails', () => Promise.reject(new Error('the login is over'))],
  ])('ends the run if the handler %s', async (_, credentials_refresh) => {
    const lab = await libraryLab(accepts(FRESH));
    await lab.directive('work');
    const rye = lab.open();
    const handlers = { credentials_refresh: credentials_refresh as () => undefined };
    const outcome = await rye.run({ ...WORK, handlers });
    expect(outcome).toMatchObject({ error: { code: 'provider_auth' } });
    expect(lab.server.requests).toHaveLength(1);
    expect(await everything(rye, outcome.threadId)).not.toContain(FRESH);
  });
});

/** A project whose provider gets its token from a program that prints the text of a file, and notes each of its runs. */
async function commandLab(script: (request: WireRequest) => WireTurn, isSigned = true) {
  const lab = await libraryLab(script);
  await lab.directive('work');
  const [login, token, runs] = ['login.mjs', 'token', 'runs'].map((name) =>
    path.join(lab.project, name),
  ) as [string, string, string];
  writeFileSync(
    login,
    `import { appendFileSync, readFileSync } from 'node:fs';
appendFileSync(${JSON.stringify(runs)}, JSON.stringify(Object.keys(process.env)) + '\\n');
const text = readFileSync(${JSON.stringify(token)}, 'utf8');
process.stdout.write(text);
process.stderr.write(text);
if (text.includes('exit')) process.exitCode = 3;
`,
  );
  const folder = path.join(lab.project, '.ai/config/agent/providers');
  mkdirSync(folder, { recursive: true });
  const file = { auth_token_env: 'LAB_TOKEN', credential_command: [process.execPath, login] };
  writeFileSync(path.join(folder, 'anthropic.yaml'), JSON.stringify(file));
  const { url } = lab.server;
  const notices: string[] = [];
  const rye = lab.open({
    env: {
      HOME: path.dirname(lab.project),
      ANTHROPIC_BASE_URL: url,
      PRIVATE_TOKEN: 'x'.repeat(20),
    },
    onNotice: (notice) => notices.push(notice),
  });
  if (isSigned) await rye.items.sign('config', 'agent/providers/anthropic');
  const ran = (): readonly string[] =>
    existsSync(runs) ? readFileSync(runs, 'utf8').trim().split('\n') : [];
  return { lab, rye, token, ran, notices };
}

describe('a credential_command', () => {
  it('prints the token when it is needed, and again when it was refused', async () => {
    const { lab, rye, token, ran, notices } = await commandLab((request) =>
      keyOf(request) === FRESH ? reply('Done.') : REFUSED,
    );
    writeFileSync(token, `${FRESH}\n`);
    const first = await rye.run(WORK);
    expect(first).toMatchObject({ kind: 'completed' });
    expect(ran()).toHaveLength(1);
    expect(ran()[0]).not.toContain('PRIVATE_TOKEN');
    await rye.run(WORK);
    expect(ran()).toHaveLength(1);
    const sent = lab.server.requests.map(({ headers }) => headers.authorization);
    expect(sent).toEqual([`Bearer ${FRESH}`, `Bearer ${FRESH}`]);
    expect(`${await everything(rye, first.threadId)}${notices.join()}`).not.toContain(FRESH);
  });

  it('is run again for a token that has expired, once for an answer', async () => {
    const next = `${FRESH}-next`;
    const { lab, rye, token, ran } = await commandLab((request) => {
      if (request.index === 0) writeFileSync(token, next);
      return keyOf(request) === next ? reply('Done.') : REFUSED;
    });
    writeFileSync(token, FRESH);
    expect(await rye.run(WORK)).toMatchObject({ kind: 'completed' });
    expect(lab.server.requests.map(keyOf)).toEqual([FRESH, next]);
    expect(ran()).toHaveLength(2);
    writeFileSync(token, FRESH);
    expect(lab.server.requests).toHaveLength(2);
  });

  it.each<[string, string, string]>([
    ['fails', `${FRESH} exit`, 'exit 3'],
    ['prints nothing', '', 'is not a key'],
    ['prints more than a key', `${FRESH}\n${FRESH}`, 'is not a key'],
    ['floods', FRESH.repeat(5000), 'more than 16384 bytes'],
  ])('that %s ends the run without its output', async (_, text, why) => {
    const { lab, rye, token } = await commandLab(accepts(FRESH));
    writeFileSync(token, text);
    const outcome = await rye.run(WORK);
    expect(outcome).toMatchObject({ kind: 'failed' });
    expect(lab.server.requests).toEqual([]);
    const told = `${JSON.stringify(outcome)}${await everything(rye, outcome.threadId)}`;
    expect(told).toContain(why);
    expect(told).not.toContain(FRESH);
  });

  it('of a file that is not signed is never run', async () => {
    const { lab, rye, token, ran } = await commandLab(accepts(FRESH), false);
    writeFileSync(token, FRESH);
    await rye.run({ ...WORK, provider: 'anthropic' });
    expect(ran()).toEqual([]);
    expect(lab.server.requests).toEqual([]);
  });

  it('needs the name of a variable', async () => {
    const lab = await libraryLab();
    const folder = path.join(lab.project, '.ai/config/agent/providers');
    mkdirSync(folder, { recursive: true });
    const file = 'kind: openai\nbase_url: http://127.0.0.1:1\ncredential_command: [login]\n';
    writeFileSync(path.join(folder, 'lab.yaml'), file);
    const [signed] = await lab.open().items.sign('config', 'agent/providers/lab');
    expect(signed?.status).toBe('failed');
    expect(JSON.stringify(signed)).toContain('credential_command has no variable to fill');
  });
});
