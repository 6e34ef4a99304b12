import { describe, expect, it, test } from 'vitest';
import { loadSkill, parseSkill, readSkill } from '../../src/kernel/items/skill.ts';
import { errorOf } from './helpers.ts';

const PATH = '.ai/skills/pdf-forms/SKILL.md';

function file(frontmatter: string): string {
  return `---\n${frontmatter}\n---\n\n# How\n`;
}

const GOOD = 'name: pdf-forms\ndescription: Fills forms.';

describe('parseSkill', () => {
  // Requirement: skill-folder, skill-optional-members
  it('reads all members', () => {
    const text = file(
      `${GOOD}\nlicense: MIT\ncompatibility: Linux\nmetadata: {author: me, version: 1.5}\nallowed-tools: Read Bash(git:*)`,
    );
    expect(parseSkill(text, PATH)).toEqual({
      path: PATH,
      name: 'pdf-forms',
      description: 'Fills forms.',
      license: 'MIT',
      compatibility: 'Linux',
      metadata: { author: 'me', version: '1.5' },
      allowedTools: ['Read', 'Bash(git:*)'],
      body: '# How',
    });
  });

  test.each([
    ['no name', 'description: D', 'has no name'],
    ['another name than the folder', 'name: pdf\ndescription: D', 'differs from the folder name'],
    ['capitals', 'name: PDF-forms\ndescription: D', 'not a skill name'],
    ['a doubled hyphen', 'name: pdf--forms\ndescription: D', 'not a skill name'],
    ['a trailing hyphen', 'name: pdf-\ndescription: D', 'not a skill name'],
    ['a long name', `name: ${'a'.repeat(65)}\ndescription: D`, 'longer than 64'],
    ['no description', 'name: pdf-forms', 'no description'],
    ['a long description', `name: pdf-forms\ndescription: ${'d'.repeat(1025)}`, 'longer than 1024'],
    ['a long compatibility', `${GOOD}\ncompatibility: ${'c'.repeat(501)}`, 'longer than 500'],
    ['an unknown member', `${GOOD}\nversion: 1`, '"version" is not a member'],
    ['metadata that is a list', `${GOOD}\nmetadata: [a]`, 'not a mapping of texts'],
    ['nested metadata', `${GOOD}\nmetadata: {a: {b: 1}}`, 'not a mapping of texts'],
    ['broken YAML', 'name: [', 'not YAML'],
    // Requirement: skill-name, skill-description
  ])('refuses %s', (_, frontmatter, message) => {
    const error = errorOf(() => parseSkill(file(frontmatter), PATH));
    expect(error.code).toBe('skill_malformed');
    expect(error.message).toContain(message);
  });

  it('collects all problems for validate', () => {
    const { problems } = readSkill(file('name: X\nextra: 1'), PATH);
    expect(problems.all.map(({ location }) => location.line)).toEqual([2, 2, 3]);
  });
});

describe('loadSkill', () => {
  // Requirement: skill-validation
  it('loads in spite of problems of the name', () => {
    const { skill, diagnostics } = loadSkill(file('name: Other\ndescription: D\nextra: 1'), PATH);
    expect(skill?.name).toBe('Other');
    expect(diagnostics).toHaveLength(2);
  });

  it('takes the folder for a missing name', () => {
    expect(loadSkill(file('description: D'), PATH).skill?.name).toBe('pdf-forms');
  });

  // Requirement: skill-validation
  it('repairs values with a colon', () => {
    const { skill } = loadSkill(file('name: pdf-forms\ndescription: Use when: forms'), PATH);
    expect(skill?.description).toBe('Use when: forms');
  });

  // Requirement: skill-validation
  test.each([
    ['a byte order mark', `\uFEFF${file(GOOD)}`, 'Fills forms.'],
    ['a mark and CRLF', `\uFEFF${file(GOOD).replaceAll('\n', '\r\n')}`, 'Fills forms.'],
    [
      'an argument hint that is no YAML',
      file(`${GOOD}\nargument-hint: [file] [format]`),
      'Fills forms.',
    ],
    ['an argument hint that is a list', file(`${GOOD}\nargument-hint: [file]`), 'Fills forms.'],
    [
      'members of Claude Code',
      file(
        `${GOOD}\ndisable-model-invocation: true\nuser-invocable: false\ncontext: fork\nagent: Explore\nmodel: inherit\nhooks: {}`,
      ),
      'Fills forms.',
    ],
    ['a mapping for the tools', file(`${GOOD}\nallowed-tools: {a: b}`), 'Fills forms.'],
    ['a mapping for the license', file(`${GOOD}\nlicense: {a: b}`), 'Fills forms.'],
    ['a list for the name', file('name: [a]\ndescription: Fills forms.'), 'Fills forms.'],
    ['a folded description', file('description: >-\n  Fills\n  forms.'), 'Fills forms.'],
    ['a quoted description of two lines', file('description: "Fills\n  forms."'), 'Fills forms.'],
    [
      'a plain description of two lines',
      file('description: Fills:\n  forms: all'),
      'Fills: forms: all',
    ],
    ['a mention', file('description: @forms fills'), '@forms fills'],
    ['a bold word', file('description: **Fills** forms'), '**Fills** forms'],
    ['text behind quotes', file('description: "Fill" forms'), '"Fill" forms'],
    ['a back tick', file('description: `fill` forms'), '`fill` forms'],
    ['a percent sign', file('description: %fill'), '%fill'],
  ])('loads with %s', (_, text, description) => {
    expect(loadSkill(text, PATH).skill).toMatchObject({ description, body: '# How' });
  });

  test.each([
    ['no description', file('name: pdf-forms')],
    ['broken YAML', file('name: [')],
    ['no frontmatter', '# Hi'],
    // Requirement: skill-validation
  ])('skips a skill with %s and reports why', (_, text) => {
    const { skill, diagnostics } = loadSkill(text, PATH);
    expect(skill).toBeUndefined();
    expect(diagnostics.length).toBeGreaterThan(0);
  });
});
