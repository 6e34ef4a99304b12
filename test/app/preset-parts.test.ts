import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import type { McpServerOptions } from '../../src/kernel/app/api/rye.ts';
import { composePresets, type Preset } from '../../src/kernel/app/presets.ts';
import { mockModel } from '../../testing/index.ts';
import { reply } from '../helpers/wire-server.ts';
import { libraryLab } from './library-lab.ts';

const WORK = { directiveId: 'team/work' };

/** An MCP server with the tool `now`, which returns the variable HOUR. */
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

function clockAt(folder: string, hour: string): McpServerOptions {
  const file = path.join(folder, 'clock.mjs');
  writeFileSync(file, SERVER);
  return { command: process.execPath, args: [file], env: { HOUR: hour } };
}

function skill(folder: string, id: string, description: string): string {
  const place = path.join(folder, description, id);
  mkdirSync(place, { recursive: true });
  const text = `---\nname: ${id}\ndescription: ${description}\n---\nBoil the water.\n`;
  writeFileSync(path.join(place, 'SKILL.md'), text);
  return place;
}

// Requirement: presets-merge
it('composePresets merges servers by name, appends skills, and takes the later name and system text', () => {
  const one: McpServerOptions = { command: 'one' };
  const two: McpServerOptions = { command: 'two' };
  const below: Preset = {
    name: 'below',
    system: 'Below.',
    mcpServers: { a: one, b: one, c: one },
    skills: ['/a', '/b'],
  };
  expect(
    composePresets(below, { name: 'above', mcpServers: { b: two, c: null }, skills: ['/c'] }),
  ).toEqual({
    name: 'above',
    system: 'Below.',
    mcpServers: { a: one, b: two, c: null },
    skills: ['/a', '/b', '/c'],
  });
  const unset = { name: null, system: null, mcpServers: null, skills: null };
  expect(composePresets(below, unset)).toEqual(unset);
  expect(composePresets(unset, below)).toEqual(below);
});

describe('the system text of a preset', () => {
  // Requirement: per-run-system-text
  it('ends that of the directive, is in the plan, and the run overrides that of rye', async () => {
    const lab = await libraryLab([reply('Done.'), reply('Done.'), reply('Done.'), reply('More.')]);
    await lab.directive('work');
    const rye = lab.open({ preset: { system: 'Answer in verse.' } });
    const plan = await rye.threads.plan(WORK);
    expect(plan.context).toEqual([
      { position: 'system', id: 'program', source: 'program', content: 'Answer in verse.' },
    ]);
    expect(plan.integrity).toBe('unverified');
    const { threadId } = await rye.run(WORK);
    await rye.run({ ...WORK, preset: { system: 'Answer in prose.' }, system: 'Answer in Latin.' });
    await rye.run({ ...WORK, preset: { system: null } });
    // the record has it, so another program resumes with the same text
    await lab.open().recovery.resume({ threadId: String(threadId), message: 'More.' });
    const systems = lab.server.requests.map(({ body }) => JSON.stringify(body.system) ?? '');
    const texts = ['verse', 'prose', 'Latin'];
    expect(systems.map((system) => texts.filter((text) => system.includes(text)))).toEqual([
      ['verse'],
      ['Latin'],
      [],
      ['verse'],
    ]);
    expect(systems[3]).toBe(systems[0]);
    expect(await rye.threads.verify(String(threadId))).toMatchObject({ ok: true });
    expect((await lab.open().threads.plan(WORK)).integrity).toBe('verified');
  });

  it('is kept when the plan is refreshed', async () => {
    const lab = await libraryLab([reply('Done.'), reply('Done.')]);
    await lab.directive('work');
    const { threadId } = await lab.open().run({ ...WORK, system: 'Answer in verse.' });
    const request = { threadId: String(threadId), refresh: true, message: 'Again.' };
    await lab.open().recovery.resume(request);
    expect(JSON.stringify(lab.server.requests[1]?.body.system)).toContain('Answer in verse.');
  });
});

it('the name of a preset is the label of its threads, unless the run has one', async () => {
  const lab = await libraryLab([reply('Done.'), reply('Done.')]);
  await lab.directive('work');
  const rye = lab.open({ preset: { name: 'Night watch' } });
  await rye.run(WORK);
  await rye.run({ ...WORK, label: 'Mine' });
  const labels = (await rye.threads.list()).map(({ label }) => label);
  expect(new Set(labels)).toEqual(new Set(['Mine', 'Night watch']));
});

describe('servers and skills of a preset', () => {
  const GRANTED = {
    id: 'team/work',
    description: 'Works.',
    instructions: 'Work.',
    permissions: {
      optional: true,
      execute: { tool: 'mcp/*' },
      fetch: { skill: '*' },
      acknowledge: [{ risk: 'elevated', reason: 'A test.' }],
    },
  } as const;

  it('reach its runs, where the run overrides rye by name', async () => {
    const lab = await libraryLab();
    const now = { calls: [{ tool: 'mcp/clock/now' }] };
    const model = mockModel([now, 'Done.', now, 'Done.', now, 'Done.']);
    const preset = { mcpServers: { clock: clockAt(lab.project, 'noon') } };
    const rye = lab.open({ providers: { mock: model.kind }, preset });
    const directive = await rye.defineDirective(GRANTED);
    const request = { directive, provider: 'mock' };
    await rye.warmUp();
    await rye.run(request);
    const { threadId } = await rye.run({
      ...request,
      mcpServers: { clock: clockAt(lab.project, 'six') },
    });
    await rye.run({ ...request, preset: { mcpServers: { clock: null } } });
    const [, noon, , six, , none] = model.requests.map(({ messages }) =>
      JSON.stringify(messages.at(-1)),
    );
    expect(noon).toContain('It is noon');
    expect(six).toContain('It is six');
    expect(none).toContain('Unknown tool');
    const bare = lab.open({ providers: { mock: model.kind } });
    await bare.defineDirective(GRANTED);
    const resume = { threadId: String(threadId), message: 'More.' };
    await expect(bare.recovery.resume(resume)).rejects.toMatchObject({
      code: 'program_required',
      message: expect.stringContaining('the MCP servers clock') as string,
    });
  });

  it('are appended, and a later skill replaces one of its id', async () => {
    const lab = await libraryLab();
    const model = mockModel(['Done.']);
    const rye = lab.open({
      providers: { mock: model.kind },
      skills: [skill(lab.project, 'brew', 'Makes tea'), skill(lab.project, 'bake', 'Bakes bread')],
      preset: { skills: [skill(lab.project, 'brew', 'Makes coffee')] },
    });
    const directive = await rye.defineDirective(GRANTED);
    const sweep = skill(lab.project, 'sweep', 'Sweeps floors');
    await rye.run({ directive, provider: 'mock', preset: { skills: [sweep] } });
    const system = model.requests[0]?.system ?? '';
    for (const text of ['Makes coffee', 'Bakes bread', 'Sweeps floors']) {
      expect(system).toContain(text);
    }
    expect(system).not.toContain('Makes tea');
    expect(await rye.items.list('skill')).toMatchObject([{ id: 'brew' }, { id: 'bake' }]);
  });

  it('that are wrong end the run with their name', async () => {
    const lab = await libraryLab();
    const rye = lab.open({ providers: { mock: mockModel([]).kind } });
    const directive = await rye.defineDirective(GRANTED);
    const outcome = await rye.run({ directive, provider: 'mock', skills: ['relative/brew'] });
    expect(outcome).toMatchObject({
      kind: 'failed',
      error: { code: 'usage', message: expect.stringContaining('relative/brew') as string },
    });
  });
});
