import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { directive } from '../../attacks/lab.ts';
import { newPerson, type Person } from '../../helpers/person.ts';

function write(person: Person, name: string, text: string): void {
  const file = path.join(person.project, name);
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, text);
}

const TERMINAL = { stderrIsTty: true, answer: 'y' };

describe('rye sign with the name of one item', () => {
  it('creates a missing key, for an item that it signs only', async () => {
    const person = await newPerson();
    const key = path.join(person.home, '.ai/config/keys/signing');
    expect((await person.rye(['sign', 'directive', 'nope'])).code).toBe(6);
    write(person, '.ai/directives/bad.md', 'nothing');
    expect((await person.rye(['sign', 'directive', 'bad'])).code).toBe(2);
    write(person, '.ai/directives/a.md', directive('a'));
    expect(await person.rye(['sign', 'directive', 'a', '--dry-run'])).toEqual({
      code: 0,
      out: 'would sign .ai/directives/a.md\n',
      err: '',
    });
    expect(existsSync(key)).toBe(false);
    const signed = await person.rye(['sign', 'directive', 'a']);
    expect(signed.out).toBe('signed .ai/directives/a.md\n');
    expect(signed.err).toMatch(/^rye: new signing key \w{16}\n$/);
    expect((await person.rye(['verify', 'directive', 'a'])).code).toBe(0);
  });

  it.each([
    { words: ['./a.md'], cwd: '.ai/directives/team' },
    { words: ['directive', 'a.md'], cwd: '.ai/directives/team' },
    { words: ['directive', 'team/a.md'], cwd: '.' },
    { words: ['directives', './.ai/directives/team/a.md'], cwd: '.' },
    { words: ['../.ai/directives/team/a.md'], cwd: 'src' },
  ])('takes the path $words in $cwd', async ({ words, cwd }) => {
    const person = await newPerson();
    write(person, '.ai/directives/team/a.md', directive('a', { category: 'team' }));
    mkdirSync(path.join(person.project, 'src'));
    const signed = await person.rye(['sign', ...words], { cwd: path.join(person.project, cwd) });
    expect([signed.code, signed.out]).toEqual([0, expect.stringMatching(/^signed .*a\.md\n$/)]);
  });

  it.each([
    {
      words: ['sign', 'directive', './a.md'],
      move: 'mkdir -p .ai/directives/ && mv ./a.md .ai/directives/',
    },
    { words: ['sign', 'a.md'], move: 'mkdir -p .ai/directives/ && mv a.md .ai/directives/' },
    { words: ['run', './a.md'], move: 'mkdir -p .ai/directives/ && mv ./a.md .ai/directives/' },
    { words: ['sign', 'tool', './t.sh'], move: 'mkdir -p .ai/tools/ && mv ./t.sh .ai/tools/' },
  ])('tells for `rye $words` where the file has to be', async ({ words, move }) => {
    const person = await newPerson();
    write(person, 'a.md', directive('a'));
    write(person, 't.sh', 'true');
    const { code, err } = await person.rye(words);
    expect([code, err]).toEqual([2, expect.stringContaining(`hint: Move it there: ${move}\n`)]);
    const missing = await person.rye([...words.slice(0, -1), './none.md']);
    expect([missing.code, missing.err]).toEqual([
      6,
      expect.stringContaining('file not found: ./none.md ['),
    ]);
  });
});

describe('rye sign alone', () => {
  async function author(): Promise<Person> {
    const person = await newPerson();
    person.git(['init', '-q']);
    for (const id of ['a', 'b']) write(person, `.ai/directives/${id}.md`, directive(id));
    await person.rye(['sign', 'directive', 'a']);
    person.git(['add', '-A']);
    person.git(['commit', '-qm', 'all']);
    const file = path.join(person.project, '.ai/directives/a.md');
    writeFileSync(file, `${readFileSync(file, 'utf8')}One more.\nAnd one.\n`);
    write(person, '.ai/config/agent/resilience.yaml', 'limits: {spend: 1}\n');
    return person;
  }

  it('lists what lacks a signature, and signs it after a yes', async () => {
    const person = await author();
    const no = await person.rye(['sign'], { ...TERMINAL, answer: '' });
    expect(no.code).toBe(130);
    expect(no.out).toMatch(/^SIGNATURE +TYPE +ID +CHANGES +PATH\n/);
    expect(no.out).toMatch(
      /^changed since +directive +a +\+2 -0 lines since HEAD, signed 20\d\d-\d\d-\d\d /m,
    );
    expect(no.out).toMatch(/^missing +directive +b +\.ai\/directives\/b\.md$/m);
    expect(no.out).toMatch(/^missing +config +agent\/resilience /m);
    expect(no.err).toContain('Sign 3 items? [y/N] ');
    const yes = await person.rye(['sign'], TERMINAL);
    expect(yes.code).toBe(0);
    expect(yes.out.match(/^signed /gm)).toHaveLength(3);
    expect(await person.rye(['sign'], TERMINAL)).toMatchObject({
      code: 0,
      out: 'nothing to sign: every item of this project is signed\n',
    });
    expect(await person.rye(['run', 'a', '--dry-run'])).toMatchObject({ code: 0 });
  });

  it('signs nothing without a terminal unless --yes is given', async () => {
    const person = await author();
    const listed = await person.rye(['sign']);
    expect([listed.code, listed.err]).toEqual([
      3,
      'hint: Review them, then sign them with: rye sign --yes\n',
    ]);
    const document = await person.rye(['sign', 'directives', '--json']);
    expect([document.code, JSON.parse(document.out)]).toMatchObject([
      3,
      {
        success: false,
        error: { code: 'unsigned' },
        total: 2,
        items: [
          { id: 'a', status: 'would_sign', problems: [{ code: 'content_modified' }] },
          { id: 'b' },
        ],
      },
    ]);
    expect((await person.rye(['sign', '--dry-run'])).code).toBe(0);
    expect((await person.rye(['verify', 'directive', 'b'])).code).toBe(3);
    expect((await person.rye(['sign', '--yes'])).out.match(/^signed /gm)).toHaveLength(3);
  });

  it('lists what another key signed, and leaves it', async () => {
    const person = await author();
    await person.rye(['sign', '--yes']);
    const env = { HOME: path.join(person.home, 'bob') };
    const before = readFileSync(path.join(person.project, '.ai/directives/a.md'), 'utf8');
    const { code, out, err } = await person.rye(['sign', 'directive', '--yes'], { env });
    expect([code, err]).toEqual([3, expect.stringContaining('rye keys trust FILE')]);
    expect(out).toMatch(/^untrusted +directive +a +.*, by \w{16} /m);
    expect(readFileSync(path.join(person.project, '.ai/directives/a.md'), 'utf8')).toBe(before);
  });
});
