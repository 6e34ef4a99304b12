import { execFile } from 'node:child_process';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { cliPackage } from '../helpers/run-cli.ts';
import { reply, startWireServer, type WireServer } from '../helpers/wire-server.ts';
import { temporaryWorkspace } from '../helpers/workspace.ts';

const PROMPT_BYTES = 200_000;

let made: Awaited<ReturnType<typeof temporaryWorkspace>>;
let server: WireServer;
let program = '';
let prompt = '';

beforeAll(async () => {
  made = await temporaryWorkspace({});
  program = path.join(await cliPackage(), 'bin', 'rye.js');
  server = await startWireServer(({ body }) => {
    prompt = JSON.stringify(body.messages);
    return reply('42');
  });
});
afterAll(async () => {
  await server.close();
  made.remove();
});
beforeEach(() => {
  prompt = '';
});

/** Runs a line of a shell, whose pipes are FIFOs; `spawn` of Node connects sockets. */
async function shell(line: string): Promise<{ readonly code: number; readonly text: string }> {
  const env = {
    PATH: process.env['PATH'],
    HOME: made.home,
    RYE: program,
    NODE: process.execPath,
    ANTHROPIC_API_KEY: 'k',
    ANTHROPIC_BASE_URL: server.url,
  };
  return await new Promise((resolve) => {
    execFile('sh', ['-c', line], { cwd: made.project, env }, (error, stdout, stderr) => {
      resolve({ code: Number(error?.code ?? 0), text: `${stdout}${stderr}` });
    });
  });
}

describe('text from a pipe of the shell', () => {
  it.each([
    ['that is there at once', 'echo quoll |', 'quoll\\n</stdin>'],
    [
      'that comes in two parts',
      '{ echo quoll; "$NODE" -e 0; echo wombat; } |',
      'quoll\\nwombat\\n',
    ],
    ['of many pages', `head -c ${PROMPT_BYTES} /dev/zero | tr '\\0' x |`, 'xxx\\n</stdin>'],
  ])('%s reaches the model', async (_name, source, expected) => {
    const asked = await shell(`${source} "$NODE" "$RYE" ask "What is it?"`);
    expect(asked).toEqual({ code: 0, text: '42\n' });
    expect(prompt).toContain(expected);
  });

  it('is refused if the directive does not use it', async () => {
    const refused = await shell('echo quoll | "$NODE" "$RYE" run hello');
    expect(refused.code).toBe(2);
    expect(refused.text).toContain('nothing uses the text that is piped to standard input');
  });
});
