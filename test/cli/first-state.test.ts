import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { openRye } from '../../src/open-rye.ts';
import { newPerson, type Person } from '../helpers/person.ts';

/** Returns what `git add -A` would add in a folder. */
const added = ({ git }: Person, folder?: string): readonly string[] =>
  git(['add', '-A', '-n'], folder).map((line) => line.slice("add '".length, -1));

const SESSION = `${JSON.stringify({ type: 'session', version: 3, id: 's', timestamp: '2026-01-01T00:00:00.000Z', cwd: '/' })}
${JSON.stringify({ type: 'message', id: '1', parentId: null, timestamp: '2026-01-01T00:00:00.000Z', message: { role: 'user', content: 'Hi', timestamp: 1 } })}
`;

describe('the first state that a command writes', () => {
  it.each([
    { words: ['ask', 'hi'], committed: [] },
    { words: ['run', 'hello'], committed: [] },
    { words: ['chat'], committed: [] },
    { words: ['search', 'hello'], committed: [] },
    { words: ['threads', 'import', 'session.jsonl'], committed: ['session.jsonl'] },
    {
      words: ['schedule', 'add', 'nightly', '--cron', '0 3 * * *', 'hello'],
      committed: ['.ai/config/schedules.yaml', '.ai/lock.json'],
    },
    {
      words: ['init'],
      committed: [
        '.ai/config/agent/resilience.yaml',
        '.ai/directives/example.md',
        '.ai/lock.json',
        '.gitignore',
      ],
    },
  ])('of `rye $words` is not for git', async ({ words, committed }) => {
    const person = await newPerson();
    person.git(['init', '-q']);
    if (committed.includes('session.jsonl'))
      writeFileSync(path.join(person.project, 'session.jsonl'), SESSION);
    const { code, err } = await person.rye(words, { stdin: words[0] === 'chat' ? 'hi\n' : '' });
    expect([code, err]).toEqual([0, expect.anything()]);
    expect(added(person)).toEqual(committed);
    // an export is in another folder
    expect((await person.rye(['run', 'hello'])).code).toBe(0);
    expect(added(person)).toEqual(committed);
  });

  it('of the library is not for git', async () => {
    const person = await newPerson();
    person.git(['init', '-q']);
    const rye = openRye({
      projectPath: person.project,
      userSpacePath: person.home,
      env: {},
      createKey: true,
    });
    expect(await rye.run({ directiveId: 'hello' })).toMatchObject({ kind: 'completed' });
    rye.close();
    expect(added(person)).toEqual([]);
  });

  it('leaves to git what people write', async () => {
    const person = await newPerson();
    person.git(['init', '-q']);
    await person.rye(['run', 'hello']);
    const own = [
      '.ai/config/agent/hooks.yaml',
      '.ai/config/keys/trusted/0123456789abcdef.toml',
      '.ai/directives/a.md',
      '.ai/knowledge/agent/notes.md',
      '.ai/lock.json',
      '.ai/rules/r.md',
      '.ai/signatures/directives/a.md.sig',
      '.ai/skills/s/SKILL.md',
      '.ai/tools/state/t.js',
    ];
    for (const name of own) {
      mkdirSync(path.dirname(path.join(person.project, name)), { recursive: true });
      writeFileSync(path.join(person.project, name), 'x');
    }
    expect(added(person)).toEqual(own);
  });

  it('of the user space keeps private keys and variables out of its repository', async () => {
    const person = await newPerson();
    person.git(['init', '-q'], person.home);
    await person.rye(['keys', 'init']);
    await person.rye(['keys', 'rotate'], { answer: 'y' });
    await person.rye(['run', 'hello']);
    writeFileSync(path.join(person.home, '.ai/.env'), 'A=b\n');
    const files = added(person, person.home);
    expect(files).not.toEqual([]);
    expect(
      files.filter((name) => !/^\.ai\/config\/keys\/(?:rotated|revoked|trusted)\//.test(name)),
    ).toEqual([]);
  });
});

describe('a .gitignore that is there', () => {
  const at = (person: Person, name = ''): string => path.join(person.project, '.ai', name);

  it.each([
    ['names the folders', 'state\n!knowledge/agent/threads/\n', true],
    ['names neither', '*.bak\n', false],
    ['names them in comments only', '# state and threads\n', false],
  ])('that %s is a person’s', async (_, text, isShared) => {
    const person = await newPerson();
    person.git(['init', '-q']);
    mkdirSync(at(person));
    writeFileSync(at(person, '.gitignore'), text);
    await person.rye(['run', 'hello']);
    expect(readFileSync(at(person, '.gitignore'), 'utf8')).toBe(text);
    const [first, ...others] = added(person);
    expect(first).toBe('.ai/.gitignore');
    expect(others.every((name) => name.startsWith('.ai/knowledge/agent/threads/'))).toBe(true);
    expect(others.length > 0).toBe(isShared);
  });

  it('is not written again after it was deleted, nor through a link', async () => {
    const person = await newPerson();
    mkdirSync(at(person));
    writeFileSync(path.join(person.home, 'mine'), 'mine\n');
    symlinkSync(path.join(person.home, 'mine'), at(person, '.gitignore'));
    await person.rye(['run', 'hello']);
    expect(readFileSync(path.join(person.home, 'mine'), 'utf8')).toBe('mine\n');
    expect(readFileSync(at(person, 'state/.gitignore'), 'utf8')).toBe('*\n');
  });
});
