import { chmodSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { FEATURES } from '../../src/features/shipped.ts';
import { checkProgram, checkTaint } from '../../src/kernel/app/doctor.ts';
import { Workspace } from '../../src/kernel/app/workspace.ts';
import { directive, openLab } from '../attacks/lab.ts';

const TAINTED = directive('zz_taint', {
  permissions:
    '<execute><tool>rye/bash</tool><tool>rye/file-system/read</tool></execute><acknowledge risk="unrestricted">test</acknowledge>',
});

it('finds a taint beyond the first hundred directives, and warns of those that it cannot read', async () => {
  const lab = await openLab();
  onTestFinished(async () => await lab.remove());
  const look = async () => {
    const { project: projectPath, home: userSpacePath, env } = lab;
    const workspace = new Workspace({ features: FEATURES, projectPath, userSpacePath, env });
    const found = await checkTaint(workspace);
    workspace.close();
    return found;
  };
  expect(await look()).toMatchObject({ status: 'ok' });
  for (let index = 100; index < 201; index += 1) {
    lab.signed(`directives/d${index}.md`, directive(`d${index}`));
  }
  expect(await look()).toMatchObject({ status: 'ok' });
  lab.signed('directives/zz_taint.md', TAINTED, lab.stranger);
  expect(await look()).toMatchObject({
    status: 'warn',
    detail: expect.stringMatching(/not checked.*: zz_taint$/),
  });
  lab.signed('directives/zz_taint.md', TAINTED);
  expect(await look()).toMatchObject({
    status: 'warn',
    detail: expect.stringMatching(/^zz_taint: /),
  });
});

it('warns of a program that exits with an error', async () => {
  const lab = await openLab();
  onTestFinished(async () => await lab.remove());
  const program = path.join(lab.home, 'python3');
  const make = (script: string): void => {
    writeFileSync(program, `#!/bin/sh\n${script}\n`);
    chmodSync(program, 0o755);
  };
  make('echo "pyenv: python3: command not found" >&2; exit 127');
  expect(checkProgram(program, 'tools fail')).toEqual({
    status: 'warn',
    detail: `${program} --version exits with 127 (pyenv: python3: command not found); tools fail`,
  });
  make('echo Python 3.12');
  expect(checkProgram(program, 'tools fail')).toEqual({ status: 'ok', detail: 'Python 3.12' });
});
