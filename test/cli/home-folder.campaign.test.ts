import { existsSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { newPerson, type Person } from '../helpers/person.ts';

const at = (person: Person, name: string): string => path.join(person.home, '.ai', name);

describe('the home folder as the working folder', () => {
  it.each([
    ['HOME', (person: Person) => ({ cwd: person.home })],
    ['RYE_USER_SPACE', (person: Person) => ({ env: { RYE_USER_SPACE: person.project } })],
    ['RYE_USER_SPACE that is relative', () => ({ env: { RYE_USER_SPACE: '.' } })],
    [
      'HOME that is a link',
      (person: Person) => {
        symlinkSync(person.home, `${person.home}-link`);
        return { cwd: person.home, env: { HOME: `${person.home}-link` } };
      },
    ],
    [
      'a folder that is a link',
      (person: Person) => {
        symlinkSync(person.home, `${person.home}-link`);
        return { cwd: `${person.home}-link` };
      },
    ],
  ])('works when it is the folder of %s', async (_, where) => {
    const person = await newPerson();
    const options = where(person);
    expect(await person.rye(['ask', 'Why?'], options)).toMatchObject({ code: 0, out: '42\n' });
    expect(await person.rye(['run', 'hello'], options)).toMatchObject({ code: 0 });
    const chatted = await person.rye(['chat'], { ...options, stdin: 'Hi\n' });
    expect(chatted).toMatchObject({ code: 0, out: '42\n' });
    const made = await person.rye(['init'], options);
    expect(made.out).toMatch(/^created \.ai\/directives\/example\.md\nsigning key \w+\n$/);
    expect(await person.rye(['run', 'example'], options)).toMatchObject({ code: 0 });
    expect((await person.rye(['threads'], options)).out.trim().split('\n')).toHaveLength(5);
    expect((await person.rye(['doctor'], options)).code).toBe(0);
  });

  it('is the user space only: its items are the user’s, and its configuration needs no signature', async () => {
    const person = await newPerson();
    await person.rye(['init'], { cwd: person.home });
    mkdirSync(at(person, 'config/agent'), { recursive: true });
    writeFileSync(at(person, 'config/agent/resilience.yaml'), 'limits: {spend: 0.5}\n');
    const here = await person.rye(['list', 'directive'], { cwd: person.home });
    expect(here.out).toMatch(/^example +user .* signed/m);
    const limit = ['config', 'get', 'resilience.limits.spend'];
    const [inHome, inProject] = [
      await person.rye(limit, { cwd: person.home }),
      await person.rye(limit),
    ];
    expect([inHome.out, inHome.err]).toEqual([inProject.out, inProject.err]);
    expect(inHome.out).toBe('0.5\n');
    const written = await person.rye(['new', 'directive', 'note'], { cwd: person.home });
    expect(written).toMatchObject({ code: 0 });
    const checked = await person.rye(['validate', '--json'], { cwd: person.home });
    expect(JSON.parse(checked.out)).toMatchObject({ checked: 3 });
    expect(await person.rye(['sign', 'directive', 'note'], { cwd: person.home })).toMatchObject({
      code: 0,
    });
    expect(existsSync(at(person, 'lock.json'))).toBe(false);
    expect(existsSync(path.join(person.home, '.gitignore'))).toBe(false);
    const schedule = ['schedule', 'add', 'daily', '--cron', '0 3 * * *', 'hello'];
    expect(await person.rye(schedule, { cwd: person.home })).toMatchObject({ code: 0 });
    expect((await person.rye(['schedule'], { cwd: person.home })).out).toContain('daily');
  });

  it('is not the project of a folder below it, and a folder above it is not its project', async () => {
    const person = await newPerson();
    await person.rye(['init'], { cwd: person.home });
    const below = path.join(person.home, 'work');
    mkdirSync(below);
    await person.rye(['run', 'hello'], { cwd: below });
    expect(existsSync(path.join(below, '.ai/state'))).toBe(true);
    mkdirSync(path.join(person.home, '..', '.ai'));
    await person.rye(['run', 'hello'], { cwd: person.home });
    expect(existsSync(at(person, 'state/threads'))).toBe(true);
    // a home inside of a project
    const inside = path.join(person.project, 'home');
    mkdirSync(inside);
    mkdirSync(path.join(person.project, '.ai'));
    const ran = await person.rye(['run', 'hello'], { env: { HOME: inside } });
    expect(ran.code).toBe(0);
    expect(existsSync(path.join(person.project, '.ai/state'))).toBe(true);
  });

  it('may be missing: it is created with the key', async () => {
    const person = await newPerson();
    const home = path.join(person.home, 'not', 'yet');
    expect(await person.rye(['run', 'hello'], { env: { HOME: home } })).toMatchObject({ code: 0 });
    expect(existsSync(path.join(home, '.ai/config/keys/signing'))).toBe(true);
  });

  it('that cannot be created is an error that names the variables', async () => {
    const person = await newPerson();
    writeFileSync(path.join(person.home, 'file'), '');
    const env = { HOME: path.join(person.home, 'file') };
    const { code, err } = await person.rye(['run', 'hello'], { env });
    expect(code).not.toBe(0);
    expect(err).toContain('hint: Set HOME or RYE_USER_SPACE to a folder that you can write to.');
  });

  it('whose keys rotate keeps the items that the old key signed', async () => {
    const person = await newPerson();
    await person.rye(['init'], { cwd: person.home });
    const rotated = await person.rye(['keys', 'rotate', '--yes'], { cwd: person.home });
    expect(rotated).toMatchObject({ code: 0 });
    expect(await person.rye(['run', 'example'], { cwd: person.home })).toMatchObject({ code: 0 });
    expect((await person.rye(['keys', 'list'], { cwd: person.home })).code).toBe(0);
  });
});
