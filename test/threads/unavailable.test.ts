import { rmSync } from 'node:fs';
import { expect, it, onTestFinished } from 'vitest';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { reply } from '../helpers/wire-server.ts';

async function lab(): Promise<Lab> {
  const made = await openLab();
  onTestFinished(async () => await made.remove());
  return made;
}

const SKILL = '---\nname: helper\ndescription: Helps.\n---\nBody.\n';
const TOOL = '# rye tool\n__category__ = "t"\ndef execute(params, path):\n    return {}\n';
const NOTE = '---\nname: note\nentry_type: note\ncategory: ""\n---\nText.\n';
const SERVERS = 'servers:\n  broken: {command: /bin/false}\n';
const execute = (id: string) => `<execute><tool OPTIONAL>${id}</tool></execute>`;
const fetch = (id: string) => `<fetch><skill OPTIONAL>${id}</skill></fetch>`;

/** Entries of a directive, the reason why each is of no use, and how it comes to that. */
const CASES: readonly [string, string, RegExp, ((here: Lab) => void)?][] = [
  ['a tool that does not exist', execute('t/none'), /t\.none matches no tool/],
  [
    'an unsigned tool',
    execute('t/raw'),
    /raw is not signed/,
    (here) => here.write('tools/t/raw.py', TOOL),
  ],
  [
    'a server that is not configured',
    execute('mcp/none/*'),
    /the MCP server none is not configured/,
  ],
  [
    'a server that fails',
    execute('mcp/broken/look'),
    /broken/,
    (here) => here.signed('config/mcp.yaml', SERVERS),
  ],
  [
    'a server of an unsigned file',
    execute('mcp/broken/*'),
    /the MCP server broken cannot be used: .*mcp\.yaml: config mcp is not signed/,
    (here) => here.write('config/mcp.yaml', SERVERS),
  ],
  ['a skill that does not exist', fetch('none'), /unknown skill none/],
  [
    'an unsigned skill',
    fetch('helper'),
    /helper is not signed/,
    (here) => here.write('skills/helper/SKILL.md', SKILL),
  ],
  [
    'a context entry that does not exist',
    '<context><before OPTIONAL>none</before></context>',
    /the context none cannot be used/,
  ],
  [
    'an unsigned context entry',
    '<context><before OPTIONAL>note</before></context>',
    /the context note cannot be used/,
    (here) => here.write('knowledge/note.md', NOTE),
  ],
];

function naming(entry: string, isOptional: boolean): string {
  const written = entry.replace(' OPTIONAL', isOptional ? ' optional="true"' : '');
  const accepted = '<acknowledge risk="elevated">A test.</acknowledge>';
  return directive(
    'job',
    written.startsWith('<context>')
      ? { metadata: written }
      : { permissions: `${written}${accepted}` },
  );
}

it.each(CASES)(
  'a directive that names %s does not start, unless it is optional',
  async (_, entry, reason, prepare) => {
    const here = await lab();
    const { requests } = await here.model([reply('Done.')]);
    prepare?.(here);
    here.signed('directives/job.md', naming(entry, false));
    await expect(here.run('job')).rejects.toMatchObject({
      code: 'tool_unavailable',
      exitCode: 4,
      message: expect.stringMatching(reason) as string,
      hint: expect.stringContaining('optional="true"') as string,
    });
    expect(requests).toEqual([]);
    expect(await here.rye().threads.list()).toEqual([]);
    rmSync(here.path('directives/job.md'));
    here.signed('directives/job.md', naming(entry, true));
    const result = await here.run('job');
    expect(result).toMatchObject({ status: 'completed', result: 'Done.' });
    expect(result.warnings).toContainEqual(expect.stringMatching(reason));
  },
);

it('a tool with a broken signature is refused with the code of that fault', async () => {
  const here = await lab();
  here.signed('tools/t/raw.py', TOOL, here.stranger);
  here.signed('directives/job.md', naming(execute('t/raw'), false));
  await expect(here.run('job')).rejects.toMatchObject({ code: 'key_untrusted', exitCode: 3 });
});

it('a wildcard names nothing', async () => {
  const here = await lab();
  await here.model([reply('Done.')]);
  here.write('skills/helper/SKILL.md', SKILL);
  here.write('tools/t/raw.py', TOOL);
  here.signed('config/mcp.yaml', SERVERS);
  here.signed('directives/job.md', naming('<execute>*</execute><fetch>*</fetch>', false));
  const { status, warnings = [] } = await here.run('job');
  expect(status).toBe('completed');
  expect(warnings.join()).toContain('broken');
  expect(warnings.join()).toContain('skill helper is not signed [unsigned]');
});
