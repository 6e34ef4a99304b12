import { afterEach, beforeEach, expect, it } from 'vitest';
import { main } from '../../../src/faces/cli/main.ts';
import { openRye } from '../../../src/open-rye.ts';
import { directive, type Lab, openLab } from '../../attacks/lab.ts';
import { createFakeIo, type FakeIoOptions } from '../../helpers/fake-io.ts';
import { reply, type WireBody } from '../../helpers/wire-server.ts';

let lab: Lab;
let bodies: WireBody[] = [];

beforeEach(async () => {
  lab = await openLab();
  await lab.model(({ body }) => {
    bodies.push(body);
    return reply('Noted.');
  });
  for (const name of ['tour', 'never']) {
    lab.signed(
      `directives/${name}.md`,
      directive(name, { limits: 'turns="9" spend="0.50"', body: `Describe the ${name}.` }),
    );
  }
});
afterEach(async () => await lab.remove());
beforeEach(() => {
  bodies = [];
});

async function rye(args: readonly string[], options: FakeIoOptions = {}) {
  const io = createFakeIo({ cwd: lab.project, ...options });
  const env = { ...lab.env, HOME: lab.home };
  const open = (request: Parameters<typeof openRye>[0]) => Promise.resolve(openRye(request));
  const code = await main(args, { ...io, env, openRye: open, openThreadList: open });
  return { code, out: io.out(), err: io.err() };
}

const last = (): string => JSON.stringify(bodies.at(-1)?.messages);

it('run --continue resumes the last thread of the directive, or the last of all', async () => {
  await rye(['run', 'tour', '--thread-id', 'tour-a']);
  await rye(['ask', 'What is a quoll?']);
  const tour = await rye(['run', 'tour', '--continue', '-m', 'And the garden?']);
  expect(tour).toMatchObject({ code: 0, out: 'Noted.\n' });
  expect(last()).toMatch(/Describe the tour[^]*Noted[^]*And the garden\?/);
  expect(last()).not.toContain('quoll');
  expect((await lab.rye().threads.show('tour-a')).document?.runs).toHaveLength(2);
  await rye(['ask', 'What is a numbat?']);
  expect((await rye(['run', '--continue', '-m', 'How large is it?'])).code).toBe(0);
  expect(last()).toMatch(/What is a numbat\?[^]*How large is it\?/);
});

it('run --continue refuses options of a new thread and a directive without one', async () => {
  const input = await rye(['run', 'tour', '--continue', '--input', 'a=b']);
  expect(input.code).toBe(2);
  expect(input.err).toContain('--input applies to a new thread');
  const never = await rye(['run', 'never', '--continue', '-m', 'More']);
  expect(never.code).toBe(6);
  expect(never.err).toMatch(/this project has no thread of never[^]*rye run never/);
  expect(bodies).toEqual([]);
});

it('ask --continue asks in the last thread of ask, which knows the earlier answers', async () => {
  await rye(['ask', 'Where do quolls live?']);
  await rye(['run', 'tour']);
  const again = await rye(['ask', '--continue', 'And what do they eat?']);
  expect(again).toMatchObject({ code: 0, out: 'Noted.\n' });
  expect(last()).toMatch(/Where do quolls live\?[^]*Noted[^]*And what do they eat\?/);
  expect(last()).not.toContain('Describe the tour');
});
