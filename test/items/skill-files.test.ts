import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { signItems, verifyItems } from '../../src/kernel/items/signing-fs.ts';
import { openItems } from '../../src/kernel/items/verified-fs.ts';
import { STRICT_POLICY } from '../../src/kernel/trust/policy.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { compileGlob, makeSpaces, NOW, type SpaceFixture } from './space-fixture.ts';

const BODY = '---\nname: pdf\ndescription: Reads.\n---\nBody.\n';

let at: SpaceFixture;
let folder: string;
beforeEach(async () => {
  at = makeSpaces();
  await at.keyring.init();
  folder = dirname(at.write('project', 'skills/pdf/SKILL.md', BODY));
  at.write('project', 'skills/pdf/scripts/run.py', 'print(1)\n');
  at.write('project', 'skills/pdf/assets/logo.png', new Uint8Array([0, 1, 255]));
});
afterEach(() => at.remove());

async function sign(pattern = 'pdf') {
  const outcomes = await signItems(
    { type: 'skill', pattern },
    {
      spaces: at.spaces,
      compileGlob,
      signer: () => at.keyring.signer(),
      now: () => NOW,
      validate: () => [],
    },
  );
  return outcomes.map(({ status }) => status);
}

/** Returns `ok`, or the code and message of the skill's fault. */
async function verdict(pattern = 'pdf'): Promise<string> {
  const [outcome] = await verifyItems({ type: 'skill', pattern }, { ...at.context(), compileGlob });
  return outcome?.ok === true ? 'ok' : `${outcome?.error?.code}: ${outcome?.error?.message}`;
}

test('signing a skill covers all its files, keeps them unchanged, and changes nothing the second time', async () => {
  expect(await verdict()).toContain('unsigned');
  expect(await sign()).toEqual(['signed']);
  expect(await verdict()).toBe('ok');
  expect(readFileSync(join(folder, 'SKILL.md'), 'utf8')).toBe(BODY);
  const list = readFileSync(join(folder, '.rye-files.json'), 'utf8');
  expect(Object.keys((JSON.parse(list) as { files: object }).files)).toEqual([
    'SKILL.md',
    'assets/logo.png',
    'scripts/run.py',
  ]);
  expect(await sign()).toEqual(['unchanged']);
  expect(readFileSync(join(folder, '.rye-files.json'), 'utf8')).toBe(list);
});

test.for<[string, () => void, string]>([
  [
    'its instructions are edited',
    () => writeFileSync(join(folder, 'SKILL.md'), `${BODY}More.\n`),
    'content_modified',
  ],
  [
    'a script is edited',
    () => writeFileSync(join(folder, 'scripts/run.py'), 'print(2)\n'),
    'scripts/run.py',
  ],
  [
    'a file that is no text is edited',
    () => writeFileSync(join(folder, 'assets/logo.png'), new Uint8Array([0, 1, 254])),
    'assets/logo.png',
  ],
  [
    'a file is added',
    () => writeFileSync(join(folder, 'scripts/evil.py'), ''),
    'scripts/evil.py is not in its signed list',
  ],
  ['a file is removed', () => rmSync(join(folder, 'scripts/run.py')), 'scripts/run.py is gone'],
  ['its list is removed', () => rmSync(join(folder, '.rye-files.json')), 'unsigned'],
  [
    'its list is no JSON',
    () => writeFileSync(join(folder, '.rye-files.json'), 'SKILL.md'),
    'unsigned',
  ],
  [
    'its list is edited',
    () => {
      const path = join(folder, '.rye-files.json');
      const text = readFileSync(path, 'utf8').replace('assets/logo.png', 'assets/evil.png');
      writeFileSync(path, text);
    },
    'content_modified',
  ],
  [
    'its list is that of a stranger',
    () => {
      const path = join(folder, '.rye-files.json');
      const text = readFileSync(path, 'utf8').replace(/:[0-9a-f]{16}"/, ':0123456789abcdef"');
      writeFileSync(path, text);
    },
    'key_untrusted',
  ],
])('%s: it does not verify', async ([, tamper, expected]) => {
  await sign();
  expect(await verdict()).toBe('ok');
  tamper();
  expect(await verdict()).toContain(expected);
});

test.for<[string, () => void, string | undefined]>([
  ['whole', () => undefined, undefined],
  ['without one of its files', () => rmSync(join(folder, 'scripts/run.py')), 'run.py is missing'],
  [
    'with one that changed and one that is gone',
    () => {
      writeFileSync(join(folder, 'assets/logo.png'), 'x');
      rmSync(join(folder, 'scripts/run.py'));
    },
    'assets/logo.png was changed, scripts/run.py is missing',
  ],
  ['with one more file', () => writeFileSync(join(folder, 'scripts/more.py'), ''), undefined],
])('a signed skill %s is judged when it is loaded', async ([, tamper, expected]) => {
  await sign();
  const items = openItems({
    ...at.context(),
    policy: STRICT_POLICY,
    allowUnsigned: false,
    onNotice: () => undefined,
  });
  const skill = items.load('skill', 'pdf', 'context');
  tamper();
  const admit = () => items.admitSkill(skill, 'context');
  if (expected === undefined) expect(admit).not.toThrow();
  else {
    const message = expect.stringContaining(expected);
    expect(admit).toThrow(expect.objectContaining({ code: 'content_modified', message }));
  }
});

test('a signed skill that is copied under another name does not verify there', async () => {
  await sign();
  const other = join(dirname(folder), 'other');
  mkdirSync(other);
  cpSync(folder, other, { recursive: true });
  expect(await verdict('other')).toContain('item_moved');
});

test('a skill with only a signature line verifies without its other files', async () => {
  at.writeSigned('project', 'skills/old/SKILL.md', BODY.replace('pdf', 'old'));
  expect(await verdict('old')).toBe('ok');
  const path = at.write('project', 'skills/old/scripts/run.py', 'print(1)\n');
  const items = openItems({
    ...at.context(),
    policy: STRICT_POLICY,
    allowUnsigned: false,
    onNotice: () => undefined,
  });
  const skill = items.load('skill', 'old', 'context');
  const file = { path: 'scripts/run.py', bytes: readFileSync(path) };
  expect(() => items.admitSkillFile(skill, file, 'execute')).toThrow(
    expect.objectContaining({ code: 'unsigned' }),
  );
});

test('files of interpreters do not belong to a skill', async () => {
  at.write('project', 'skills/pdf/__pycache__/run.pyc', 'x');
  await sign();
  removeFolder(join(folder, '__pycache__'));
  expect(await verdict()).toBe('ok');
});
