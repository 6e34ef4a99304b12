import { execFile } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { cliPackage } from '../helpers/run-cli.ts';
import { calls, reply, startWireServer, toolUse, type WireTurn } from '../helpers/wire-server.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const README = readFileSync('README.md', 'utf8');

interface Outcome {
  readonly code: number;
  readonly text: string;
}

/** Returns a shell in the project of `here`, whose `rye` is the built program and whose model follows the script. */
async function shellIn(
  here: Workspace,
  script: readonly WireTurn[],
): Promise<(line: string) => Promise<Outcome>> {
  const server = await startWireServer(script);
  onTestFinished(() => server.close());
  const program = path.join(await cliPackage(), 'bin', 'rye.js');
  const env = {
    PATH: process.env['PATH'],
    HOME: here.home,
    ANTHROPIC_API_KEY: 'k',
    ANTHROPIC_BASE_URL: server.url,
  };
  return async (line) =>
    await new Promise((resolve) => {
      const typed = `rye() { '${process.execPath}' '${program}' "$@"; }\n{ ${line}\n} 2>&1`;
      execFile('sh', ['-c', typed], { cwd: here.project, env }, (error, stdout) => {
        resolve({ code: Number(error?.code ?? 0), text: stdout });
      });
    });
}

function block(fence: string, at = 0): string {
  const parts = README.split(`\n${fence}\n`)[at + 1] ?? '';
  return parts.slice(0, parts.indexOf(`\n${/^`+/.exec(fence)?.[0] ?? ''}\n`) + 1);
}

it('the directive at its top runs as shown, in its first lines', async () => {
  const here = await workspace();
  const source = block('````markdown');
  mkdirSync(path.join(here.project, '.ai/directives'), { recursive: true });
  writeFileSync(path.join(here.project, '.ai/directives/changelog_summary.md'), source);
  writeFileSync(path.join(here.project, 'CHANGELOG.md'), '# 0.1\n\nSigned directives.\n');
  const summary = /^summary: (.+)$/m.exec(README)?.[1] ?? '';
  expect(README.split('\n').slice(0, 40).join('\n')).toContain(`summary: ${summary}`);
  const shell = await shellIn(here, [
    calls(toolUse('rye_file_system_read', { path: 'CHANGELOG.md' }, 'a')),
    calls(toolUse('rye_directive_return', { summary }, 'b')),
  ]);
  const signed = await shell('rye init && rye sign directive changelog_summary');
  expect(signed.text).toContain('signed .ai/directives/changelog_summary.md');
  const ran = await shell('rye run changelog_summary');
  expect(ran.code).toBe(0);
  expect(ran.text).toContain(`summary: ${summary}`);
  const verified = await shell('rye verify thread changelog_summary');
  expect(verified.code).toBe(0);
  expect(verified.text).toContain('ok   transcript (');
});

it('each command of the quick start works', async () => {
  const here = await workspace({ init: false });
  writeFileSync(path.join(here.project, 'notes.md'), '# Notes\n');
  const shell = await shellIn(here, []);
  const lines = block('```sh', 1)
    .replaceAll('\\\n', ' ')
    .split('\n')
    .filter((line) => line.startsWith('rye '));
  expect(lines.length).toBeGreaterThan(5);
  for (const line of lines) expect(await shell(line), line).toMatchObject({ code: 0 });
});

it('the questions and the chat are answered as shown', async () => {
  const here = await workspace();
  const answers = ['retry: Double the delay up to 30 seconds', 'retry: Cap the backoff'];
  const shell = await shellIn(
    here,
    [...answers, 'Hello.'].map((text) => reply(text)),
  );
  const [ask = '', again = '', chat = ''] = block('```console', 1)
    .split('\n')
    .filter((line) => line.startsWith('$ '))
    .map((line) => line.slice(2));
  expect(await shell(ask.replace('git diff', 'echo diff'))).toEqual({
    code: 0,
    text: `${answers[0]}\n`,
  });
  expect(await shell(again)).toEqual({ code: 0, text: `${answers[1]}\n` });
  expect(await shell(`echo Hi | ${chat}`)).toMatchObject({
    code: 0,
    text: expect.stringContaining('Hello.') as string,
  });
});
