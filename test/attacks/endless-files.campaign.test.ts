// Requirement: bounded-work
import { execFileSync } from 'node:child_process';
import { appendFileSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { createGzip } from 'node:zlib';
import { expect, it } from 'vitest';
import { runCli } from '../helpers/run-cli.ts';
import { inLab } from './lab.ts';

const LIST = '.ai/skills/x/.rye-files.json';
const LOG = '.ai/state/threads/one/transcript.jsonl';
const SKILL = '---\nname: x\ndescription: A skill.\n---\nDo it.\n';

/** Commands of a person, and the file of a project in whose place something without an end is. */
const READERS: readonly (readonly [args: string, place: string])[] = [
  ['mcp list', '.mcp.json'],
  ['mcp add s -- true', '.ai/config/mcp.yaml'],
  ['new hook made', '.ai/config/agent/hooks.yaml'],
  ['run hello', '.ai/config/agent/resilience.yaml'],
  ['run hello', '.ai/.env'],
  ['run hello', 'AGENTS.md'],
  ['init', '.gitignore'],
  ['git setup', '.gitattributes'],
  ['list', '.ai/directives/x.md'],
  ['validate', '.ai/tools/x.sh'],
  ['list skill', '.ai/skills/x/SKILL.md'],
  ['verify skill x', LIST],
  ['sign skill x', LIST],
  ['verify thread one', LOG],
  ['verify thread one', `${LOG}.gz`],
  ['verify thread one', '.ai/state/threads/one/thread.json'],
  ['threads', '.ai/state/threads/one/thread.json'],
];

it.each(['a pipe', 'a device'])(
  '%s in place of a file ends no command late',
  { timeout: 300_000 },
  async (kind) => {
    await inLab(async (lab) => {
      execFileSync('git', ['init', '-q', lab.project]);
      for (const [args, place] of READERS) {
        const path = join(lab.project, place);
        mkdirSync(dirname(path), { recursive: true });
        rmSync(path, { force: true });
        if (place === LIST) lab.write('skills/x/SKILL.md', SKILL);
        if (kind === 'a pipe') execFileSync('mkfifo', [path]);
        else symlinkSync('/dev/zero', path);
        const how = { cwd: lab.project, env: lab.env, spawned: true };
        const { code, stderr } = await runCli(args.split(' '), how);
        expect(code, `${args} ${place} ${stderr}`).not.toBeNull();
        expect(stderr, `${args} ${place}`).not.toContain('[internal]');
        rmSync(path, { force: true });
        rmSync(join(lab.project, '.ai/skills'), { recursive: true, force: true });
      }
    });
  },
);

it('a device that the command line names is refused', async () => {
  await inLab(async (lab) => {
    for (const args of [
      ['run', 'hello', '--input', 'who=@/dev/zero'],
      ['run', 'hello', '--inputs', '@/dev/zero'],
      ['run', 'hello', '--json-schema', '/dev/zero'],
      ['ask', 'Q', '/dev/zero'],
      ['keys', 'trust', '/dev/zero'],
      ['threads', 'import', '/dev/zero'],
    ]) {
      const how = { cwd: lab.project, env: lab.env, spawned: true };
      const { code, stderr } = await runCli(args, how);
      expect(stderr, args.join(' ')).toMatch(/is a device|not a regular file/);
      expect([2, 4]).toContain(code);
    }
  });
});

it('an archive of a log that unpacks to far more than a log is refused soon', async () => {
  await inLab(async (lab) => {
    const { thread_id: id } = await lab.run('hello');
    const path = join(lab.project, '.ai/state/threads', id, 'transcript.jsonl');
    rmSync(path);
    const packed = createGzip();
    const piece = Buffer.alloc(1 << 20, '\n');
    for (let count = 0; count < 200; count += 1) packed.write(piece);
    packed.end();
    writeFileSync(`${path}.gz`, '');
    for await (const chunk of packed) appendFileSync(`${path}.gz`, chunk as Buffer);
    const { code, stdout, stderr } = await runCli(['verify', 'thread', id], {
      cwd: lab.project,
      env: lab.env,
    });
    expect(code).toBe(3);
    expect(stdout + stderr).toContain('is no archive of a log');
  });
});
