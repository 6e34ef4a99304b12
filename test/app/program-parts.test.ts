import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import type { McpServerOptions } from '../../src/kernel/app/api/rye.ts';
import type { ModelRequest } from '../../src/kernel/providers/provider.ts';
import { mockModel } from '../../testing/index.ts';
import { libraryLab } from './library-lab.ts';

const MOCKED = { provider: 'mock', behavior: { nudge: false } } as const;
const GRANTED = {
  id: 'team/work',
  description: 'Works.',
  instructions: 'Work.',
  permissions: {
    optional: true,
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

describe('items from code', () => {
  it('are listed, fetched and found like files, and replace a file of the same id', async () => {
    const lab = await libraryLab();
    await lab.directive('work');
    const rye = lab.open({ skills: [brew(lab.project)] });
    await rye.defineDirective({ ...GRANTED, description: 'Pours beverages.' });
    const directives = (await rye.items.list('directive')).filter(({ id }) => id === 'team/work');
    expect(directives).toMatchObject([
      { path: null, signature: 'program', description: 'Pours beverages.', version: '1.0.0' },
      { signature: 'signed', shadowed_by: 'project' },
    ]);
    expect(await rye.items.list('directive', { space: 'user' })).toEqual([]);
    expect(await rye.items.list('skill')).toMatchObject([{ id: 'brew', signature: 'program' }]);
    expect(await rye.items.fetch('skill', 'brew')).toMatchObject({
      signature: 'program',
      metadata: { description: 'Makes tea.' },
      content: expect.stringContaining('Boil the water.') as string,
    });
    await expect(
      rye.items.fetch('directive', 'team/work', { copyTo: 'user' }),
    ).rejects.toMatchObject({
      code: 'usage',
      message: 'team/work is a part of the program and has no file to copy',
    });
    expect(await rye.items.search('all', 'beverages')).toMatchObject({
      total: 1,
      results: [{ type: 'directive', id: 'team/work', path: 'program:team/work', verified: false }],
    });
    expect(await rye.items.search('directive', 'boil water')).toMatchObject({ total: 0 });
    expect(await rye.items.search('all', 'boil water')).toMatchObject({
      results: [{ id: 'brew', signature: 'program' }],
    });
    // the best match is first, wherever it is from
    await lab.directive('boil', [], { body: 'Boil, boil and boil the water again.' });
    const found = async (limit?: number) =>
      (await rye.items.search('all', 'boil', limit === undefined ? {} : { limit })).results;
    expect((await found()).map(({ id }) => id)).toEqual(['team/boil', 'brew']);
    expect((await found(1)).map(({ id }) => id)).toEqual(['team/boil']);
    const [first, second] = await found();
    expect(first?.score).toBeGreaterThan(second?.score ?? Number.NaN);
  });

  it('are found and fetched by the models that may fetch them', async () => {
    const lab = await libraryLab();
    const shown = ({ messages }: ModelRequest): string => JSON.stringify(messages.at(-1));
    const model = mockModel([
      { calls: [{ tool: 'rye/fetch', input: { item_type: 'skill', query: 'boil' } }] },
      { calls: [{ tool: 'rye/fetch', input: { item_type: 'skill', item_id: 'brew' } }] },
      shown,
    ]);
    const rye = lab.open({ providers: { mock: model.kind }, skills: [brew(lab.project)] });
    const directive = await rye.defineDirective(GRANTED);
    const { result } = await rye.run({ ...MOCKED, directive });
    expect(JSON.stringify(model.requests[1]?.messages.at(-1))).toContain('brew');
    expect(result).toContain('Boil the water.');
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
