import { describe, expect, test } from 'vitest';
import { ActiveSkills, type OfferedSkill } from '../../../src/features/skills/active-skills.ts';
import { createSkillTools, skillCatalog } from '../../../src/features/skills/skill-tools.ts';
import type { JsonObject } from '../../../src/kernel/core/json.ts';
import { textOf } from '../../../src/kernel/core/message.ts';
import { loadSkill } from '../../../src/kernel/items/skill.ts';
import { Project } from '../helpers.ts';

function offered(id: string, folder: string, more = '', mayRun = true): OfferedSkill {
  const text = `---\nname: ${id}\ndescription: Does <${id}>.\n${more}---\nThe body of ${id}.\n`;
  const { skill } = loadSkill(text, `/${id}/SKILL.md`);
  if (!skill) throw new Error(text);
  return { id, folder, skill, mayRun, admit: () => undefined, admitWhole: () => undefined };
}

/** The tools of some skills in a project, and what they asked to unlock. */
async function open(skills: (folder: string) => readonly OfferedSkill[], max = 20) {
  const project = await Project.create();
  const list = skills(project.path);
  const active = new ActiveSkills(list, max);
  const asked: string[] = [];
  const tools = createSkillTools({
    granted: list,
    skills: list,
    active,
    scripts: { env: {} },
    denies: () => false,
    unlock: (ids) => {
      asked.push(...ids);
      return ids;
    },
  });
  const use = async (input: JsonObject) => {
    const tool = tools.find(({ id }) => id === 'skills/use');
    const output = await tool?.execute(input, project.context());
    return textOf(output?.content ?? []);
  };
  return { project, tools, active, asked, use };
}

describe('the tools of skills', () => {
  // Requirement: skill-tools
  test('are three, two where none may be executed, and none without skills', async () => {
    const ids = async (...skills: OfferedSkill[]) => {
      const { tools, project } = await open(() => skills);
      await project[Symbol.asyncDispose]();
      return tools.map(({ id }) => id);
    };
    expect(await ids()).toEqual([]);
    expect(skillCatalog([])).toBe('');
    expect(await ids(offered('a', '/', '', false))).toEqual(['skills/use', 'skills/read']);
    expect(await ids(offered('a', '/', '', false), offered('b', '/'))).toEqual([
      'skills/use',
      'skills/read',
      'skills/run_script',
    ]);
    expect(skillCatalog([offered('b', '/'), offered('a', '/')])).toContain(
      '<skill name="a">Does &lt;a&gt;.</skill>\n<skill name="b">',
    );
  });

  // Requirement: skills-bounded
  test('load no more skills than are allowed, and the same one as often as they like', async () => {
    const { use, project } = await open(
      (folder) => ['a', 'b', 'c'].map((id) => offered(id, folder)),
      2,
    );
    await using _ = project;
    expect(await use({ name: 'a' })).toContain('The body of a.');
    expect(await use({ name: 'b' })).toContain('The body of b.');
    expect(await use({ name: 'c' })).toBe('2 skills are active already: a, b.');
    expect(await use({ name: 'a' })).toContain('The body of a.');
  });

  test('ask for what allowed-tools names, by the names of other programs too', async () => {
    const more =
      'allowed-tools: Read, Bash(git add:*) mcp__notes__read_all rye/search WebFetch Read\n';
    const { use, asked, project } = await open((folder) => [offered('a', folder, more)]);
    await using _ = project;
    const text = await use({ name: 'a' });
    expect(asked).toEqual(['rye/file-system/read', 'rye/bash', 'mcp/notes/read_all', 'rye/search']);
    expect(text).toContain('Meant to be used with: Read Bash(git add:*) mcp__notes__read_all');
  });
});

describe('a restriction', () => {
  const more = 'metadata: { rye-restrict-tools: "Read Bash(git:*)" }\n';

  // Requirement: skill-tools-restrict
  test('holds while its skill is active, and several add up', () => {
    const active = new ActiveSkills(
      [
        offered('narrow', '/', more),
        offered('plain', '/'),
        offered('other', '/', 'metadata: { rye-restrict-tools: Grep }\n'),
      ],
      20,
    );
    expect(active.refusal('rye/file-system/write')).toBeUndefined();
    active.activate('plain');
    expect(active.refusal('rye/file-system/write')).toBeUndefined();
    active.activate('narrow');
    expect(active.refusal('rye/file-system/read')).toBeUndefined();
    expect(active.refusal('rye/bash')).toBeUndefined();
    expect(active.refusal('rye/file-system/grep')).toContain('the active skill narrow');
    active.activate('other');
    expect(active.refusal('rye/file-system/grep')).toBeUndefined();
    expect(active.refusal('rye/file-system/write')).toContain('narrow, other');
  });

  test('is taken up from the conversation, and only for what is still offered and was loaded', () => {
    const active = new ActiveSkills([offered('narrow', '/', more), offered('failed', '/')], 20);
    const result = (skill: string, outcome: 'ok' | 'error', name = 'skills_use') =>
      ({ role: 'tool_result', call_id: 'c', name, content: [], outcome, data: { skill } }) as const;
    active.restore(
      [
        result('narrow', 'ok'),
        result('failed', 'error'),
        result('gone', 'ok'),
        result('failed', 'ok', 'rye_bash'),
      ],
      'skills_use',
    );
    expect(['narrow', 'failed', 'gone'].map((id) => active.has(id))).toEqual([true, false, false]);
    expect(active.refusal('rye/file-system/write')).toContain('narrow');
  });
});
