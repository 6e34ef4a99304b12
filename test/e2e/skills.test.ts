import { mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { LogEvent } from '../../src/kernel/core/events.ts';
import { calls, reply, startWireServer, toolUse, type WireScript } from '../helpers/wire-server.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

function write(folder: string, file: string, text: string): string {
  const full = path.join(folder, file);
  mkdirSync(path.dirname(full), { recursive: true });
  writeFileSync(full, text);
  return full;
}

function skill(folder: string, name: string, more = '', body = ''): string {
  const text = `---\nname: ${name}\ndescription: How to do ${name}.\n${more}---\n\nThe body of ${name}: !\`touch ran\`\n${body}`;
  return write(folder, `${name}/SKILL.md`, text);
}

async function signed(here: Workspace, type: string, id: string): Promise<void> {
  expect(await here.rye(['sign', type, id])).toMatchObject({ code: 0 });
}

async function directive(here: Workspace, permissions: string): Promise<void> {
  write(
    here.project,
    '.ai/directives/work.md',
    `# Work\n\n\`\`\`xml\n<directive name="work" version="1.0.0"><metadata><description>Use skills.</description><category></category><author>test</author><permissions>${permissions}</permissions></metadata></directive>\n\`\`\`\n\nUse the skills.\n`,
  );
  await signed(here, 'directive', 'work');
}

async function serve(script: WireScript) {
  const server = await startWireServer(script);
  onTestFinished(() => server.close());
  const env = { ANTHROPIC_API_KEY: 'sk-ant-of-this-test', ANTHROPIC_BASE_URL: server.url };
  return { server, env };
}

/** Returns the texts of the results in a request's last message. */
function results(body: unknown): string {
  return JSON.stringify((body as { messages: readonly unknown[] }).messages.at(-1));
}

// Requirement: skill-list, skill-on-demand, skill-activation, skill-commands, skill-files
test('a thread loads the skills that it may fetch, reads their files and gains nothing by allowed-tools', async () => {
  const here = await workspace();
  const skills = path.join(here.project, '.ai/skills');
  skill(skills, 'tables', 'allowed-tools: rye/bash Bash(git add:*)\n');
  skill(skills, 'unsigned');
  skill(skills, 'private');
  write(skills, 'tables/references/form.md', 'the form of a table');
  write(here.project, 'outside.txt', 'not of the skill');
  symlinkSync(path.join(here.project, 'outside.txt'), path.join(skills, 'tables/link.md'));
  await signed(here, 'skill', 'tables');
  await signed(here, 'skill', 'private');
  write(skills, 'tables/references/late.md', 'unsigned content');
  await directive(
    here,
    '<fetch><skill>tables</skill></fetch><fetch><skill optional="true">unsigned</skill></fetch>',
  );
  const { server, env } = await serve([
    calls(toolUse('skills_read', { name: 'tables', path: 'references/form.md' }, 'a')),
    calls(
      toolUse('skills_use', { name: 'tables' }, 'b'),
      toolUse('skills_use', { name: 'private' }, 'c'),
    ),
    calls(
      toolUse('skills_read', { name: 'tables', path: 'references/form.md' }, 'd'),
      toolUse('skills_read', { name: 'tables', path: '../private/SKILL.md' }, 'e'),
      toolUse('skills_read', { name: 'tables', path: 'link.md' }, 'f'),
      toolUse('rye_bash', { command: 'echo widened' }, 'g'),
      toolUse('skills_read', { name: 'tables', path: 'references/late.md' }, 'h'),
      toolUse('skills_run_script', { name: 'tables', path: 'references/form.md' }, 'i'),
    ),
    reply('done'),
  ]);
  expect(await here.json(['run', 'work'], { env })).toMatchObject({
    success: true,
    result: 'done',
  });
  const [first, second, third, fourth] = server.requests.map(({ body }) => body);
  const system = JSON.stringify(first?.system);
  expect(system).toContain('How to do tables.');
  expect(system).not.toContain('How to do unsigned.');
  expect(system).not.toContain('How to do private.');
  expect(system).not.toContain('The body of tables');
  expect((first?.tools ?? []).map(({ name }) => name)).not.toContain('skills_run_script');
  expect(results(second)).toContain('skills_use');
  expect(results(second)).not.toContain('the form of a table');
  expect(results(third)).toContain('The body of tables: !`touch ran`');
  expect(results(third)).toContain('references/form.md');
  expect(results(third)).toContain('Bash(git add:*)');
  expect(results(third)).toContain('You can call none of these tools.');
  expect(results(third)).toContain('does not hold the capability rye.fetch.skill.private');
  const last = results(fourth);
  expect(last).toContain('the form of a table');
  expect(last).not.toContain('The body of private');
  expect(last).not.toContain('not of the skill');
  expect(last).toContain('does not hold the capability rye.execute.tool.rye.bash');
  expect(last).not.toContain('unsigned content');
  expect(last).toContain('references/late.md is not in its signed list');
  expect(last).toContain('Unknown tool: skills_run_script');
});

const SCRIPT = `
import json, os, sys
from pathlib import Path
import helper
params = json.load(sys.stdin)
print(json.dumps({
    "args": sys.argv[1:], "params": params, "helper": helper.WORD, "cwd": os.getcwd(),
    "key": "ANTHROPIC_API_KEY" in os.environ, "neighbours": sorted(p.name for p in Path(__file__).parent.iterdir()),
}))
`;

// Requirement: skill-files
test('a script of a skill runs as it was signed: no shell, a reduced environment, nothing that was added since', async () => {
  const here = await workspace();
  const skills = path.join(here.project, '.ai/skills');
  skill(skills, 'counting');
  skill(skills, 'reading');
  write(skills, 'counting/scripts/count.py', SCRIPT);
  const helper = write(skills, 'counting/scripts/helper.py', 'WORD = "as signed"\n');
  write(skills, 'reading/scripts/x.sh', 'echo never\n');
  write(here.project, 'outside.sh', 'echo outside\n');
  symlinkSync(path.join(here.project, 'outside.sh'), path.join(skills, 'counting/scripts/link.sh'));
  await signed(here, 'skill', '*');
  write(skills, 'counting/scripts/added.py', 'import os; os.system("touch added")\n');
  const granted =
    '<acknowledge risk="elevated">Runs the scripts of the test.</acknowledge><fetch><skill>*</skill></fetch><execute><skill>counting</skill></execute>';
  await directive(here, granted);
  const run = (file: string, id: string, more: object = {}) =>
    toolUse('skills_run_script', { name: 'counting', path: file, ...more }, id);
  const { server, env } = await serve([
    calls(run('scripts/count.py', 'a')),
    calls(
      toolUse('skills_use', { name: 'counting' }, 'b'),
      toolUse('skills_use', { name: 'reading' }, 'c'),
    ),
    calls(
      run('scripts/count.py', 'd', { args: ['$(touch ran)', 'a b'], params: { n: 1 } }),
      run('scripts/added.py', 'e'),
      run('../reading/scripts/x.sh', 'f'),
      run('scripts/link.sh', 'g'),
      run('SKILL.md', 'h'),
      toolUse('skills_run_script', { name: 'reading', path: 'scripts/x.sh' }, 'i'),
    ),
    reply('done'),
    calls(toolUse('skills_use', { name: 'counting' }, 'j')),
    calls(run('scripts/count.py', 'k')),
    reply('done'),
  ]);
  expect(await here.json(['run', 'work'], { env })).toMatchObject({ success: true });
  const bodies = server.requests.map(({ body }) => body);
  expect(results(bodies[1])).toContain('Load the skill with skills_use');
  const answers = (
    bodies[3] as unknown as { messages: { content: { content: { text: string }[] }[] }[] }
  ).messages
    .at(-1)
    ?.content.map(({ content }) => content.map(({ text }) => text).join('\n'));
  expect(JSON.parse(answers?.[0] ?? '')).toEqual({
    args: ['$(touch ran)', 'a b'],
    params: { n: 1 },
    helper: 'as signed',
    cwd: here.project,
    key: false,
    neighbours: ['count.py', 'helper.py'],
  });
  const [, added, outside, link, text, other] = answers ?? [];
  expect(added).toContain('scripts/added.py is not in its signed list');
  expect(outside).toContain('leads outside');
  expect(link).not.toContain('outside\n');
  expect(text).toContain('no interpreter is known for counting/SKILL.md');
  expect(other).toContain('does not hold the capability rye.execute.skill.reading');
  writeFileSync(helper, 'WORD = "changed"\n');
  const late = await here.rye(['run', 'work'], { env });
  expect(late.stderr).toContain('skill counting was modified after it was signed');
  expect(late.stderr).toContain('scripts/helper.py was changed');
  expect([late.code, server.requests.length]).toEqual([3, 4]);
  const verified = await here.rye(['verify', 'skill', 'counting']);
  expect(verified.code).toBe(3);
  const { items } = (await here.json(['list', 'skill'])) as {
    items: { id: string; signature: string }[];
  };
  expect(items.map(({ id, signature }) => [id, signature])).toEqual([
    ['counting', 'unsigned'],
    ['reading', 'signed'],
  ]);
  const copied = await here.rye(['fetch', 'skill', 'reading', '--copy-to', 'user']);
  expect(copied.code).toBe(0);
  const copy = path.join(here.home, '.ai/skills/reading/scripts/x.sh');
  expect(readFileSync(copy, 'utf8')).toBe('echo never\n');
  expect((await here.rye(['verify', 'skill', 'reading'])).code).toBe(0);
});

// Requirement: activation-event, first-run-restores
test('a resumed thread still has its skills and the tools that they brought, and their text is never cut', async () => {
  const here = await workspace();
  const skills = path.join(here.project, '.ai/skills');
  const long = `${'A line of a long skill.\n'.repeat(2000)}The last words.\n`;
  skill(
    skills,
    'long',
    'allowed-tools: Read, Grep\nmetadata: { rye-restrict-tools: "Read Grep" }\n',
    long,
  );
  write(skills, 'long/references/form.md', 'the form of a table');
  await signed(here, 'skill', 'long');
  await directive(
    here,
    '<fetch><skill>*</skill></fetch><execute><tool>rye/file-system/*</tool></execute>',
  );
  await signed(here, 'directive', 'work');
  write(here.project, 'note.txt', 'the text of the note');
  const { server, env } = await serve([
    calls(toolUse('skills_use', { name: 'long' }, 'a')),
    reply('done'),
    calls(
      toolUse('skills_read', { name: 'long', path: 'references/form.md' }, 'b'),
      toolUse('rye_file_system_read', { path: 'note.txt' }, 'c'),
      toolUse('rye_file_system_ls', { path: '.' }, 'd'),
    ),
    reply('done again'),
  ]);
  const tight = { env, args: ['-c', 'resilience.tool_preload.max_tokens=0'] };
  const result = await here.json([...tight.args, 'run', 'work'], { env });
  const id = String(result['thread_id']);
  const loaded = results(server.requests[1]?.body);
  const told = [
    'The last words.',
    'Of these you can call: rye_file_system_read, rye_file_system_grep',
  ];
  expect(told.map((words) => loaded.includes(words))).toEqual([true, true]);
  const offered = server.requests.map(({ body }) => (body.tools ?? []).map(({ name }) => name));
  expect(offered[0]).not.toContain('rye_file_system_read');
  expect(offered[1]).toContain('rye_file_system_read');
  const again = await here.rye(['--json', 'threads', 'resume', id, '--message', 'Continue.'], {
    env,
  });
  expect(again.code).toBe(0);
  const last = results(server.requests.at(-1)?.body);
  expect(last).toContain('the form of a table');
  expect(last).toContain('the text of the note');
  expect(last).toContain('the active skill long restricts the tools to');
  const activated = async (thread: unknown) => {
    const { events } = await here.json(['threads', 'logs', String(thread)]);
    return (events as LogEvent[]).filter(
      ({ event_type, thread_id }) => event_type === 'skill_activated' && thread_id === thread,
    );
  };
  const payload = { skill: 'long', tools: ['rye_file_system_read', 'rye_file_system_grep'] };
  expect(JSON.parse(again.stdout)).toMatchObject({ thread_id: id });
  expect(await activated(id)).toMatchObject([
    { payload: { ...payload, via: 'model' } },
    { payload: { ...payload, via: 'resume' } },
  ]);
});

// Requirement: project-skill-first
test('skills of other programs are used if configured and signed, after rye’s own', async () => {
  const here = await workspace();
  const mine = path.join(here.project, '.claude/skills');
  const theirs = path.join(here.home, '.claude/skills');
  const file = skill(mine, 'both', 'model: opus\n');
  skill(theirs, 'both');
  skill(theirs, 'home');
  skill(theirs, 'unsigned');
  skill(path.join(here.project, '.ai/skills'), 'own');
  skill(mine, 'own');
  await directive(here, '<fetch><skill>*</skill></fetch>');
  expect(JSON.stringify(await here.json(['list', 'skill']))).not.toContain('both');
  write(here.home, '.ai/config/agent/agent.yaml', 'skills: { compat: true }\n');
  const before = readFileSync(file, 'utf8');
  for (const id of ['both', 'home', 'own']) await signed(here, 'skill', id);
  expect(readFileSync(file, 'utf8')).toBe(before);
  const { items } = (await here.json(['list', 'skill'])) as {
    items: { id: string; path: string; shadowed_by: string | null; signature: string }[];
  };
  const rows = items.map(({ id, path: at, shadowed_by, signature }) => [
    id,
    at.startsWith(here.home) ? 'home' : 'project',
    at.includes('.claude'),
    shadowed_by,
    signature,
  ]);
  expect(rows).toEqual([
    ['both', 'project', true, null, 'signed'],
    ['both', 'home', true, 'project', 'unsigned'],
    ['home', 'home', true, null, 'signed'],
    ['own', 'project', false, null, 'signed'],
    ['own', 'project', true, 'project', 'unsigned'],
    ['unsigned', 'home', true, null, 'unsigned'],
  ]);
  const { server, env } = await serve([
    calls(toolUse('skills_use', { name: 'both' }, 'a')),
    reply('done'),
  ]);
  await here.json(['run', 'work'], { env });
  const system = JSON.stringify(server.requests[0]?.body.system);
  for (const name of ['both', 'home', 'own']) expect(system).toContain(`How to do ${name}.`);
  expect(system).not.toContain('How to do unsigned.');
  expect(results(server.requests[1]?.body)).toContain('The body of both');
});

// Requirement: skill-foreign
test('a skill of another program signs with warnings, is listed with its description, and is an error of validate', async () => {
  const here = await workspace();
  const skills = path.join(here.project, '.ai/skills');
  const head = 'description: >-\n  Made for\n  another program.\ndisable-model-invocation: true\n';
  write(
    skills,
    'foreign/SKILL.md',
    `\uFEFF---\nname: Foreign\n${head}argument-hint: [a] [b]\n---\nBody\n`,
  );
  write(
    skills,
    'long/SKILL.md',
    `---\nname: long\ndescription: ${'Words. '.repeat(200)}\n---\nBody\n`,
  );
  write(skills, 'broken/SKILL.md', '---\nname: broken\n---\nBody\n');
  const sign = await here.rye(['sign', 'skill', '*', '--json']);
  const { items } = JSON.parse(sign.stdout) as { items: readonly { id: string; status: string }[] };
  expect(items.map(({ id, status }) => `${id} ${status}`)).toEqual([
    'broken failed',
    'foreign signed',
    'long signed',
  ]);
  const listed = await here.rye(['list', 'skill']);
  expect(listed.stdout).toContain('Made for another program.');
  for (const id of ['foreign', 'long']) {
    expect(await here.rye(['verify', 'skill', id])).toMatchObject({ code: 0 });
    expect((await here.rye(['validate', 'skill', id])).code).not.toBe(0);
  }
});

test('a skill is refused if signed files changed or disappeared, and the message names them', async () => {
  const here = await workspace();
  const skills = path.join(here.project, '.ai/skills');
  skill(skills, 'tables');
  write(skills, 'tables/references/form.md', 'the form of a table');
  write(skills, 'tables/references/gone.md', 'soon gone');
  write(skills, 'tables/scripts/run.sh', 'echo signed\n');
  skill(skills, 'sound');
  await signed(here, 'skill', 'tables');
  await signed(here, 'skill', 'sound');
  await directive(here, '<fetch><skill>*</skill></fetch>');
  const wire = await serve(({ index }) =>
    index === 0 ? calls(toolUse('skills_use', { name: 'sound' }, 'a')) : reply('Done.'),
  );
  write(skills, 'tables/scripts/run.sh', 'echo changed\n');
  rmSync(path.join(skills, 'tables/references/gone.md'));
  const run = await here.rye(['run', 'work'], { env: wire.env });
  expect(run.code, run.stderr).toBe(3);
  expect(run.stderr).toContain('skill tables was modified after it was signed');
  expect(run.stderr).toContain('scripts/run.sh was changed, references/gone.md is missing');
  expect(run.stderr).toContain('rye sign skill tables');
  expect(wire.server.requests).toEqual([]);
  await signed(here, 'skill', 'tables');

  // one that changes while the thread runs is refused when it is loaded
  const late = await serve(({ index }) => {
    if (index > 0) return reply('Done.');
    write(skills, 'sound/SKILL.md', '---\nname: sound\ndescription: x\n---\n\nEVIL BODY\n');
    return calls(toolUse('skills_use', { name: 'sound' }, 'a'));
  });
  await here.rye(['run', 'work'], { env: late.env });
  expect(results(late.server.requests[1]?.body)).toContain('SKILL.md was changed');
  expect(results(late.server.requests[1]?.body)).not.toContain('EVIL BODY');
});
