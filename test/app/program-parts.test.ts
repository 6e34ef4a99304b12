import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import type { McpServerOptions } from '../../src/app/api/rye.ts';
import { mockModel } from '../../src/testing/index.ts';
import { libraryLab } from './library-lab.ts';

const MOCKED = { provider: 'mock', behavior: { nudge: false } } as const;
const GRANTED = {
  id: 'team/work',
  description: 'Works.',
  instructions: 'Work.',
  permissions: {
    execute: { tool: 'mcp/clock/now' },
    fetch: { skill: 'brew' },
    acknowledge: [{ risk: 'elevated', reason: 'A test.' }],
  },
} as const;

/** An MCP server with the tool `now`. */
const SERVER = `
import { createInterface } from 'node:readline';
const send = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\\n');
createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  if (method === 'initialize') send({ id, result: { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 's', version: '1' } } });
  if (method === 'tools/list') send({ id, result: { tools: [{ name: 'now', description: 'Returns the time.', inputSchema: { type: 'object' } }] } });
  if (method === 'tools/call') send({ id, result: { content: [{ type: 'text', text: 'It is ' + process.env.HOUR }] } });
});
`;

function clock(folder: string): Readonly<Record<string, McpServerOptions>> {
  const file = path.join(folder, 'clock.mjs');
  writeFileSync(file, SERVER);
  return { clock: { command: process.execPath, args: [file], env: { HOUR: 'noon' } } };
}

function brew(folder: string): string {
  const skill = path.join(folder, 'code/brew');
  mkdirSync(skill, { recursive: true });
  const text = '---\nname: brew\ndescription: Makes tea.\n---\nBoil the water.\n';
  writeFileSync(path.join(skill, 'SKILL.md'), text);
  return skill;
}

describe('MCP servers from code', () => {
  it('offer their tools without a signed file, and only in this program', async () => {
    const lab = await libraryLab();
    const model = mockModel([
      { calls: [{ tool: 'mcp/clock/now' }] },
      ({ messages }) => JSON.stringify(messages.at(-1)),
    ]);
    const providers = { mock: model.kind };
    const rye = lab.open({
      providers,
      mcpServers: clock(lab.project),
    });
    const directive = await rye.defineDirective(GRANTED);
    const outcome = await rye.run({ ...MOCKED, directive });
    expect(outcome).toMatchObject({
      kind: 'completed',
      result: expect.stringContaining('It is noon') as string,
    });
    const bare = lab.open({ providers });
    await bare.defineDirective(GRANTED);
    const request = { threadId: outcome.threadId ?? '', message: 'Go on.' };
    await expect(bare.recovery.resume(request)).rejects.toMatchObject({
      code: 'program_required',
      message: expect.stringContaining('the MCP servers clock') as string,
    });
  });

  it('name the wrong member when they are needed', async () => {
    const lab = await libraryLab();
    await lab.directive('work');
    const providers = { mock: mockModel([]).kind };
    // @ts-expect-error `comand` is not a member of a server
    const rye = lab.open({ providers, mcpServers: { clock: { comand: 'node' } } });
    expect(await rye.run({ ...MOCKED, directiveId: 'team/work' })).toMatchObject({
      kind: 'failed',
      error: {
        code: 'config_invalid',
        message: expect.stringContaining('openRye(): the MCP server "clock"') as string,
        hint: expect.stringContaining('command') as string,
      },
    });
  });

  it('replace a configured server with a notice', async () => {
    const lab = await libraryLab();
    writeFileSync(
      path.join(lab.project, '.ai/config/mcp.yaml'),
      'servers:\n  clock:\n    command: no-such-program\n',
    );
    const notices: string[] = [];
    const rye = lab.open({
      env: { RYE_DEV_MODE: '1' },
      providers: { mock: mockModel([]).kind },
      mcpServers: clock(lab.project),
      onNotice: (notice) => notices.push(notice),
    });
    await rye.items.sign('config', 'mcp');
    const { id } = await rye.defineDirective(GRANTED);
    const plan = await rye.threads.plan({ ...MOCKED, directiveId: id });
    expect(plan.program?.mcp_servers).toBeUndefined(); // a plan alone starts no server
    expect(notices).toContain('ignored: the configured MCP server clock: the program has its own');
  });
});

describe('skills from code', () => {
  it('are offered without a signature, and only in this program', async () => {
    const lab = await libraryLab();
    const model = mockModel([
      { calls: [{ tool: 'skills/use', input: { name: 'brew' } }] },
      ({ messages }) => JSON.stringify(messages.at(-1)),
    ]);
    const providers = { mock: model.kind };
    const rye = lab.open({ providers, skills: [brew(lab.project)] });
    const directive = await rye.defineDirective(GRANTED);
    const outcome = await rye.run({ ...MOCKED, directive });
    expect(outcome).toMatchObject({
      kind: 'completed',
      result: expect.stringContaining('Boil the water.') as string,
    });
    const bare = lab.open({ providers });
    await bare.defineDirective(GRANTED);
    const request = { threadId: outcome.threadId ?? '', message: 'Go on.' };
    await expect(bare.recovery.resume(request)).rejects.toMatchObject({
      code: 'program_required',
      message: expect.stringContaining('the skills brew') as string,
    });
  });

  it('replace an installed skill of the same id with a notice', async () => {
    const lab = await libraryLab();
    const installed = path.join(lab.project, '.ai/skills/brew');
    mkdirSync(installed, { recursive: true });
    const text = '---\nname: brew\ndescription: Makes coffee.\n---\nGrind.\n';
    writeFileSync(path.join(installed, 'SKILL.md'), text);
    const notices: string[] = [];
    const rye = lab.open({
      providers: { mock: mockModel([]).kind },
      skills: [brew(lab.project)],
      onNotice: (notice) => notices.push(notice),
    });
    const { id } = await rye.defineDirective(GRANTED);
    const plan = await rye.threads.plan({ ...MOCKED, directiveId: id });
    expect(plan.program).toMatchObject({ directives: ['team/work'], skills: ['brew'] });
    expect(notices).toContain('ignored: the installed skill brew: the program has its own');
  });

  it.each([['code/brew'], ['/no/such/folder']])('refuse the folder %s', async (folder) => {
    const lab = await libraryLab();
    expect(() => lab.open({ skills: [folder] })).toThrow(
      expect.objectContaining({
        code: 'usage',
        message: expect.stringContaining(`the skill "${folder}"`) as string,
      }),
    );
  });
});
