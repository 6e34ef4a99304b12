import { existsSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { directive, type Lab, openLab } from '../../attacks/lab.ts';
import { cliPackage } from '../../helpers/run-cli.ts';
import { type Tmux, TmuxServer } from '../../helpers/tmux.ts';
import {
  calls,
  reply,
  text,
  toolUse,
  type WireBody,
  type WireTurn,
} from '../../helpers/wire-server.ts';

let lab: Lab;
let server: TmuxServer;
let program = '';
let bodies: WireBody[] = [];
let turns: WireTurn[] = [];

beforeEach(async () => {
  bodies = [];
  turns = [];
  lab = await openLab();
  await lab.model(({ body }) => {
    bodies.push(body);
    return turns.shift() ?? reply(`This is answer ${bodies.length}.`);
  });
  const asks = (id: string): string => `<execute><tool ask="true">${id}</tool></execute>`;
  lab.signed(
    'directives/pusher.md',
    directive('pusher', {
      limits: 'turns="20" spend="0.50"',
      permissions: `${asks('rye/bash')}<execute><tool>rye/agent/ask</tool></execute><acknowledge risk="elevated">Pushes.</acknowledge>`,
    }),
  );
  program = `${process.execPath} ${path.join(await cliPackage(), 'bin', 'rye.js')}`;
  server = new TmuxServer('rye-chat-asks', { ...lab.env, NO_COLOR: '1' });
});
afterEach(async () => {
  server.close();
  await lab.remove();
});

const mark = (file: string): ReturnType<typeof toolUse> =>
  toolUse('rye_bash', { command: `echo ran >> ${file}` }, `toolu_${file}`);
const exists = (file: string): boolean => existsSync(path.join(lab.project, file));
const textsOf = (body: WireBody | undefined): string => JSON.stringify(body?.messages);

async function chat(name: string, args = 'pusher'): Promise<Tmux> {
  turns = [reply('Ready.'), ...turns];
  const terminal = server.open(name, lab.project);
  terminal.run(`${program} chat ${args}`);
  await terminal.shows(/total \$[^]*› Ask anything/);
  return terminal;
}

it('asks below the stream, lets the other calls finish, and continues the answer', async () => {
  turns = [
    calls(mark('first'), toolUse('rye_agent_ask', { question: 'Go?' }, 'toolu_q')),
    reply('Both done.'),
  ];
  const terminal = await chat('asks');
  terminal.enter('Push it.');
  await terminal.shows(/\? Run a command {2}\(1 of 2\)[^]*echo ran >> first[^]*y once · /);
  await terminal.shows(/‖ bash echo ran >> first +waits for you/);
  terminal.press('y');
  await terminal.shows(
    /approved once: echo ran >> first[^]*● bash echo[^]*\? Question {2}\(2 of 2\)[^]*Go\?/,
  );
  expect(exists('first')).toBe(true);
  terminal.enter('of course');
  await terminal.shows(/answered: Go\? of course[^]*Both done\.[^]*✓ 2 turns/);
  expect(textsOf(bodies.at(-1))).toContain('of course');
  await terminal.shows('› Ask anything');
  terminal.press('C-d');
  await terminal.ended(0);
});

it('Ctrl-C leaves a request pending, a message waits for the decision, and Enter shows it again', async () => {
  turns = [calls(mark('later')), reply('Later is done.'), reply('And the message.')];
  const terminal = await chat('pending');
  terminal.enter('Push it.');
  await terminal.shows('y once · ');
  terminal.press('C-c');
  await terminal.shows(/left pending: rye approve apr-[^]*‖ waits for your decision/);
  await terminal.shows('› Press Enter to decide');
  terminal.enter('What now?');
  await terminal.shows(/decide first; your message is kept[^]*y once · /);
  terminal.press('n');
  await terminal.shows('Reason, which the model reads');
  terminal.enter('Not on Friday.');
  await terminal.shows(/Later is done\.[^]*› What now\?/);
  expect(textsOf(bodies.at(-1))).toContain('Not on Friday.');
  expect(exists('later')).toBe(false);
  terminal.press('Enter');
  await terminal.shows('And the message.');
  terminal.press('C-d');
  await terminal.ended(0);
});

it('shows what waits when the chat is continued, after it was left or killed at the question', async () => {
  turns = [calls(mark('left')), reply('The end.')];
  const first = await chat('left');
  first.enter('Push it.');
  await first.shows('y once · ');
  process.kill(first.pid(), 'SIGKILL');
  await first.shows('exit=137');
  const second = server.open('left-2', lab.project);
  second.run(`${program} chat pusher --continue`);
  await second.shows(/continuing pusher-[^]*press Enter/i);
  second.press('Enter');
  await second.shows(/\? Run a command[^]*y once · /);
  process.kill(second.pid(), 'SIGTERM');
  await second.ended(130);
  expect((await lab.rye().approvals.list()).map(({ input }) => input['command'])).toEqual([
    'echo ran >> left',
  ]);
  const third = server.open('left-3', lab.project);
  third.run(`${program} chat pusher --continue`);
  await third.shows('› Press Enter to decide');
  third.press('Enter');
  await third.shows('y once · ');
  third.press('y');
  await third.shows('The end.');
  expect(exists('left')).toBe(true);
  third.press('C-d');
  await third.ended(0);
});

it('does not decide with the keys of a message that is being typed', async () => {
  let release: () => void = () => {};
  const until = new Promise<void>((resolve) => {
    release = resolve;
  });
  const call = { kind: 'tool', name: 'rye_bash', id: 'toolu_typed' } as const;
  const json = JSON.stringify({ command: 'echo ran >> typed' });
  turns = [
    { steps: [text('One moment.'), { kind: 'wait', until }, { ...call, chunks: [json] }] },
    reply('Done with both.'),
  ];
  const terminal = await chat('typing');
  terminal.enter('Push it.');
  await terminal.shows('One moment.');
  terminal.type('yes');
  await terminal.shows('› yes');
  release();
  await terminal.shows(/y once · [^]*Tab decides now[^]*› yes$/m);
  terminal.type(', but why?');
  await terminal.shows('› yes, but why?');
  expect(exists('typed')).toBe(false);
  terminal.press('Tab');
  await terminal.lacks('Tab decides now');
  terminal.press('y');
  await terminal.shows(/Done with both\.[^]*› yes, but why\?/);
  expect(exists('typed')).toBe(true);
  terminal.press('C-c');
  await terminal.shows('› Ask anything');
  terminal.press('C-d');
  await terminal.ended(0);
});

it('takes a decision that was made in another terminal', async () => {
  turns = [calls(mark('elsewhere')), reply('Went on.')];
  const terminal = await chat('elsewhere');
  terminal.enter('Push it.');
  await terminal.shows('y once · ');
  const [waiting] = await lab.rye().approvals.list();
  await lab.rye().approvals.decide({ id: waiting?.id ?? '', decision: 'approve' });
  await terminal.shows(/Went on\.[^]*› Ask anything/);
  expect(exists('elsewhere')).toBe(true);
  terminal.press('C-d');
  await terminal.ended(0);
});

it('keeps the dialog after a resize and after Ctrl-Z', async () => {
  turns = [calls(mark('sized')), reply('Sized.')];
  const terminal = await chat('sized');
  terminal.enter('Push it.');
  await terminal.shows('y once · ');
  terminal.resize(50, 24);
  await terminal.shows(/ · d details\n\? help · Ctrl-C|e edit\nd details/);
  terminal.resize(100, 30);
  terminal.press('C-z');
  await terminal.ended(148);
  terminal.run('fg');
  await terminal.shows(/y once · t this thread · n deny · e edit · d details · \? help/);
  terminal.press('y');
  await terminal.shows('Sized.');
  terminal.press('C-d');
  await terminal.ended(0);
});
