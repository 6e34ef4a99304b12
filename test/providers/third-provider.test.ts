import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import { embeddedConfig } from '../../src/kernel/providers/catalog.ts';
import { describeProvider, type Opened } from '../../testing/conformance/provider.ts';
import { type LibraryLab, libraryLab } from '../app/library-lab.ts';
import {
  LINES,
  type LineServer,
  type LineTurn,
  startLineServer,
} from '../helpers/line-provider.ts';
import { planOf } from '../loop/scripted.ts';
import { systemClock } from './fixtures.ts';

async function lines(turn: LineTurn): Promise<Opened> {
  const server = await startLineServer(() => turn);
  const provider = LINES.open({
    config: { ...embeddedConfig('made-up'), kind: 'lines', baseUrl: server.url },
    catalog: {},
    plan: planOf({}),
    env: {},
    clock: systemClock,
    stallSeconds: 60,
  });
  return {
    provider,
    close: server.close,
    disconnected: async () => (await server.requests[0]?.closed) ?? false,
    drained: () => server.requests[0]?.drained() ?? false,
  };
}

const USED = { used: { input: 7, output: 3 } };

describeProvider('a kind that rye does not ship', {
  answering: async ({ text, calls }) =>
    lines({
      lines: [
        ...text.split(/(?<= )/).map((word) => ({ text: word })),
        ...calls.map(({ name, input }) => ({ call: { name, input: input as JsonObject } })),
        USED,
      ],
    }),
  failing: async () => lines({ status: 500, message: 'something broke' }),
  hanging: async () => lines({ lines: [{ text: 'a' }], after: 'hang' }),
  flooding: async () => lines({ lines: [{ text: 'a' }], after: 'flood' }),
});

const FILE = `kind: lines
voice: calm
base_url: URL
api_key_env: LINES_KEY
models:
  tiny: { context_window: 100000, max_output_tokens: 1000, pricing: { input: 10, output: 20 } }
tiers: { general: tiny }
`;

async function project(yaml: string, script: (index: number) => LineTurn) {
  const lab = await libraryLab();
  const server = await startLineServer(script);
  onTestFinished(server.close);
  await configure(lab, yaml.replace('URL', server.url), server);
  return { lab, server };
}

async function configure(lab: LibraryLab, yaml: string, server: LineServer): Promise<void> {
  const file = path.join(lab.project, '.ai/config/agent/providers/made-up.yaml');
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, yaml.replace('URL', server.url));
  await lab.open().items.sign('config', 'agent/providers/made-up');
}

const CALLING: LineTurn = {
  lines: [
    { text: 'Looking. ' },
    { call: { name: 'rye_file_system_ls', input: {} } },
    { used: { input: 100, output: 10 } },
  ],
};
const ANSWERING: LineTurn = { lines: [{ text: 'Two ' }, { text: 'files.' }, USED] };

describe('a kind of provider that a program brings along', () => {
  it('runs a directive: it streams, calls a tool and is priced', async () => {
    const { lab, server } = await project(FILE, (index) => (index === 0 ? CALLING : ANSWERING));
    await lab.directive('work', ['rye/file-system/ls']);
    const env = { HOME: lab.project, LINES_KEY: 'sesame' };
    const rye = lab.open({ providers: { lines: LINES }, env });
    const heard: string[] = [];
    const outcome = await rye.run({
      directiveId: 'team/work',
      handlers: {
        token_delta: ({ payload }: { payload: { text: string } }) => void heard.push(payload.text),
      },
    });
    expect(outcome).toMatchObject({ kind: 'completed', result: 'Two files.' });
    expect(outcome.thread).toMatchObject({
      model: 'tiny',
      cost: { turns: 2, input_tokens: 107, output_tokens: 13, spend: 0.00133 },
    });
    expect(heard.join('')).toContain('Two files.');
    const [, second] = server.requests;
    expect(second?.headers).toMatchObject({ 'x-voice': '"calm"', 'x-key': 'sesame' });
    expect(second?.body.messages.at(-1)).toMatchObject({ role: 'tool_result', outcome: 'ok' });
  });

  it('is an error with a suggestion where the program does not bring it along', async () => {
    const { lab } = await project(FILE.replace('voice: calm\n', ''), () => ANSWERING);
    await lab.directive('work');
    const outcome = await lab.open().run({ directiveId: 'team/work' });
    expect(outcome).toMatchObject({
      kind: 'failed',
      threadId: null,
      error: { code: 'config_invalid', hint: 'Use anthropic or openai.' },
    });
    const misspelled = lab.open({ providers: { line: LINES } });
    await expect(misspelled.run({ directiveId: 'team/work' })).resolves.toMatchObject({
      error: { code: 'config_invalid', hint: 'Did you mean line?' },
    });
  });

  it('checks the members of the provider file that it alone has', async () => {
    const { lab } = await project(FILE.replace('calm', '7'), () => ANSWERING);
    await lab.directive('work');
    const outcome = await lab
      .open({ providers: { lines: LINES } })
      .run({ directiveId: 'team/work' });
    expect(outcome).toMatchObject({
      error: {
        code: 'config_invalid',
        message: expect.stringMatching(
          /made-up\.yaml:3: provider made-up: voice must be a text/,
        ) as string,
      },
    });
  });
});
