import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ESCAPE_MS } from '../../../src/faces/ui/keyboard.ts';
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
  lab.signed(
    'directives/note.md',
    directive('note', {
      limits: 'turns="3" spend="0.50"',
      permissions: '<execute><tool>rye/file-system/write</tool></execute>',
      body: 'Write notes.',
    }),
  );
  program = `${process.execPath} ${path.join(await cliPackage(), 'bin', 'rye.js')}`;
  server = new TmuxServer('rye-chat', { ...lab.env, NO_COLOR: '1' });
});
afterEach(async () => {
  server.close();
  await lab.remove();
});

const PROMPT = '› Ask anything';

/** Terminals of this file that may be opened again in a second attempt. */
let opened = 0;

async function chat(name: string, args = ''): Promise<Tmux> {
  const terminal = server.open(name, lab.project);
  terminal.run(`${program} chat ${args}`);
  await terminal.shows(PROMPT);
  return terminal;
}

/** An answer whose second half waits until the test releases it. */
function held(first = 'Half of an answer. ', rest = 'The rest of it.') {
  let release: () => void = () => {};
  const until = new Promise<void>((resolve) => {
    release = resolve;
  });
  const turn: WireTurn = { steps: [text(first), { kind: 'wait', until }, text(rest)] };
  return { turn, release: () => release() };
}

/** Waits until the run that answered has ended: what is typed before that steers it. */
const answered = (terminal: Tmux, words: string): Promise<void> =>
  terminal.shows(new RegExp(`${words}[^]*✓ \\d+ turns?[^]*─\\n› Ask anything`));

const textsOf = (body: WireBody | undefined): string => JSON.stringify(body?.messages);
const newest = async (): Promise<string> => (await lab.rye().threads.list())[0]?.thread_id ?? '';

describe('rye chat on a terminal', () => {
  it('answers, keeps the input field below, and names the way back at the end', async () => {
    const terminal = await chat('basic');
    terminal.enter('What is this?');
    await terminal.shows(
      /› What is this\?\n\n +This is answer 1\.\n\n✓ 1 turn .*total \$0\.0000\d+ of \$2\.00/,
    );
    await terminal.shows(/─────\n› Ask anything/);
    terminal.press('C-d');
    await terminal.shows('resume: rye chat --continue');
    await terminal.ended(0);
  });

  it('delivers what is typed while it works, and answers it in the same run', async () => {
    const { turn, release } = held();
    turns = [turn, reply('Cats, too.')];
    const terminal = await chat('steer');
    terminal.enter('Tell me about pets.');
    await terminal.shows('Half of an answer.');
    await terminal.shows('Type to queue a message');
    terminal.enter('And cats?');
    await terminal.shows('queued: And cats?');
    release();
    await terminal.shows(
      /The rest of it\.[^]*› And cats\? {2}\(delivered\)[^]*Cats, too\.[^]*✓ 2 turns/,
    );
    await terminal.lacks('queued:');
    expect(textsOf(bodies[1])).toMatch(/from the person who runs this thread:\\nAnd cats\?/);
    const { document } = await lab.rye().threads.show(await newest());
    expect(document?.runs ?? [1]).toHaveLength(1);
    terminal.enter('/quit');
    await terminal.ended(0);
  });

  it('stops the answer with Ctrl-C, continues it with Enter, and leaves with two at the prompt', async () => {
    turns = [held().turn, reply('The end.')];
    const terminal = await chat('interrupt');
    terminal.enter('Go.');
    await terminal.shows('Half of an answer.');
    terminal.press('C-c');
    await terminal.shows('■ stopped');
    await terminal.shows('or press Enter to continue the interrupted answer');
    expect((await lab.rye().threads.show(await newest())).thread.status).toBe('cancelled');
    terminal.press('Enter');
    await terminal.shows('The end.');
    await terminal.shows('✓ 1 turn');
    terminal.press('C-c');
    await terminal.shows('press Ctrl-C again to leave');
    terminal.press('C-c');
    await terminal.shows('resume: rye chat --continue');
    await terminal.ended(0);
  });

  it('continues after kill -9 in the middle of an answer', async () => {
    turns = [reply('Ghent.'), held('Two d').turn, reply('Three days.')];
    const terminal = await chat('killed');
    terminal.enter('Where to?');
    await answered(terminal, 'Ghent.');
    terminal.enter('How long?');
    await terminal.shows('Two d');
    process.kill(terminal.pid(), 'SIGKILL');
    await terminal.shows('exit=137');
    const again = await chat('continued', '--continue');
    await again.shows(/continuing .*[^]*› How long\?/);
    await again.shows(/Two d\n +\(interrupted\)/);
    await again.shows('press Enter to continue the interrupted answer');
    again.press('Enter');
    await again.shows('Three days.');
    expect(textsOf(bodies[2])).toMatch(/Where to\?[^]*Ghent\.[^]*How long\?[^]*"Two d"[^]*exactly/);
    again.enter('/quit');
    await again.ended(0);
    expect((await lab.rye().threads.verify(await newest())).ok).toBe(true);
  });

  it('shows messages that were sent during an answer without their envelope, and undoes them', async () => {
    const late = held('First.', '');
    turns = [late.turn, reply('Late one too.'), reply('Held one too.')];
    const terminal = await chat('late');
    terminal.enter('Go.');
    await terminal.shows('First.');
    terminal.enter('And then?');
    await terminal.shows('queued: And then?');
    late.release();
    await terminal.shows(/Late one too\.[^]*› Ask anything/);
    terminal.enter('/tree');
    await terminal.shows(/: And then\?/);
    expect(terminal.screen()).not.toContain('<delivery');
    terminal.press('C-d');
    await terminal.ended(0);
    const threadId = await newest();
    await lab.rye().deliveries.send(threadId, 'Held.');
    await lab.rye().recovery.resume({ threadId });
    expect(textsOf(bodies.at(-1))).toContain('Held.');
    expect(textsOf(bodies.at(-1))).not.toContain('This thread continues');
    const again = await chat('late-2', '--continue');
    expect(again.screen()).toMatch(/› Held\.\n\n +Held one too\./);
    again.enter('/undo');
    await again.shows(/─\n› Held\./);
    again.press('C-c');
    again.enter('/undo');
    await again.shows(/─\n› And then\?/);
    again.press('C-c');
    again.press('C-d');
    await again.ended(0);
  });

  it.each([40, 60, 100])(
    'breaks no word of a message, of the help or of an error at %i columns',
    async (columns) => {
      opened += 1;
      const terminal = server.open(`narrow-${opened}`, lab.project, [columns, 60]);
      terminal.run(`${program} chat`);
      await terminal.shows(PROMPT);
      terminal.enter('/help');
      await terminal.shows('Ctrl-D');
      terminal.enter('/budget a-very-large-amount-of-money');
      await terminal.shows('0.50');
      const message =
        'Summarize the quarterly infrastructure consolidation report thoroughly 日本語の文章を含む長いメッセージです and continue until something interesting happens';
      terminal.enter(message);
      await terminal.shows('✓ 1 turn');
      const words = terminal.screen().split(/\s+/);
      for (const word of message.split(' ')) expect(words).toContain(word);
      for (const word of ['command', 'message,', 'continued', 'a-very-large-amount-of-money"']) {
        expect(words.join(' ')).toContain(word);
      }
      terminal.press('C-d');
      await terminal.ended(0);
    },
  );

  it('runs every command, and sends no misspelt one', async () => {
    const terminal = await chat('commands');
    terminal.enter('/cost');
    await terminal.shows('nothing has been spent');
    terminal.enter('First.');
    await answered(terminal, 'answer 1');
    terminal.enter('/help');
    await terminal.shows(/\/model \[MODEL\][^]*\/compact[^]*Ctrl-C/);
    terminal.enter('/tols');
    await terminal.shows('unknown command /tols; nothing was sent');
    await terminal.shows('Did you mean /tools?');
    await terminal.shows(/─\n› \/tols/);
    terminal.press('C-c');
    terminal.type('/too');
    terminal.press('Tab');
    terminal.press('Enter');
    await terminal.shows('rye_file_system_grep Searches');
    terminal.enter('/model claude-haiku-5-5');
    await terminal.shows('the next message uses claude-haiku-5-5');
    terminal.enter('/budget 0.25');
    await terminal.shows('the next message may spend up to $0.2500');
    terminal.enter('Second.');
    await answered(terminal, 'answer 2');
    expect(bodies.map(({ model }) => model).at(-1)).toBe('claude-haiku-5-5');
    terminal.enter('/undo');
    await terminal.shows('your last message was undone');
    await terminal.shows(/─\n› Second\./);
    terminal.press('C-c');
    terminal.enter('/tree');
    await terminal.shows(/◆ model: This is answer 1[^]*○ user: Second\./);
    const head = /(\w{8}) .*user: Second/.exec(terminal.screen())?.[1] ?? '';
    terminal.enter(`/tree ${head}`);
    await terminal.shows(`the next message continues from ${head}`);
    terminal.enter('/compact');
    await terminal.shows('not compacted');
    terminal.enter('/new');
    await terminal.shows('starts another conversation');
    const before = bodies.length;
    terminal.enter('Third.');
    await answered(terminal, `answer ${before + 1}`);
    expect(textsOf(bodies.at(-1))).not.toContain('First.');
    terminal.enter('/quit');
    await terminal.ended(0);
  });

  it('refuses wrong arguments of a command and keeps the conversation', async () => {
    const terminal = await chat('wrong');
    for (const [line, words] of [
      ['/tree', 'the conversation has not started yet'],
      ['/undo', 'the conversation has not started yet'],
      ['/model nope', 'nope'],
      ['/model claude-haiku-5-5', 'the next message uses claude-haiku-5-5'],
      ['/budget lots', '/budget expects an amount in USD, got "lots"'],
    ] as const) {
      terminal.enter(line);
      await terminal.shows(words);
    }
    terminal.enter('Still there?');
    await answered(terminal, 'answer 1');
    for (const [line, words] of [
      ['/undo everything', '/undo has no argument "everything"'],
      ['/tree zzzz', 'zzzz'],
      ['/model nope', 'nope'],
    ] as const) {
      terminal.enter(line);
      await terminal.shows(words);
      await terminal.shows(/\[[a-z_]+\]\n/);
    }
    expect(bodies).toHaveLength(1);
    terminal.press('C-d');
    await terminal.ended(0);
  });

  it('takes what is typed before the prompt as keys, and removes its echo', async () => {
    const terminal = server.open('ahead', lab.project);
    terminal.run(`${program} chat`);
    terminal.enter('hello there');
    terminal.type('and then');
    await terminal.shows(
      /^chat · [^\n]*\n\n› hello there\n[^]*answer 1[^]*✓ 1 turn[^]*─\n› and then\n/,
    );
    expect(textsOf(bodies[0])).toContain('hello there');
    terminal.press('C-c');
    terminal.press('C-d');
    await terminal.ended(0);
  });

  it('takes a paste of 5,000 lines and wide characters as one message', async () => {
    const terminal = await chat('paste');
    const lines = Array.from({ length: 5000 }, (_, at) => `行 ${at} 日本語 🙂`);
    terminal.paste(lines.join('\n'));
    await terminal.shows('› [pasted 5000 lines]');
    terminal.press('Enter');
    await answered(terminal, String.raw`› \[pasted 5000 lines\]\n\n[^]*answer 1`);
    expect(textsOf(bodies[0])).toContain(String.raw`行 0 日本語 🙂\n行 1 日本語`);
    expect(textsOf(bodies[0])).toContain('行 4999 日本語 🙂');
    terminal.press('C-d');
    await terminal.ended(0);
  });

  it('takes lines that end in a backslash, Alt-Enter, blocks and pastes as one message', async () => {
    const terminal = await chat('lines');
    terminal.enter('one\\');
    terminal.type('two');
    terminal.press('M-Enter');
    terminal.enter('three');
    await answered(terminal, 'answer 1');
    expect(textsOf(bodies[0])).toContain(String.raw`one\ntwo\nthree`);
    terminal.enter('"""');
    terminal.enter('four');
    terminal.enter('');
    terminal.enter('five');
    terminal.enter('"""');
    await answered(terminal, 'answer 2');
    expect(textsOf(bodies[1])).toContain(String.raw`"four\n\nfive"`);
    terminal.paste('six\nseven \u001b[31mred\neight');
    await terminal.shows(/› six\n {2}seven .*red\n {2}eight/);
    terminal.press('Enter');
    await answered(terminal, 'answer 3');
    expect(textsOf(bodies[2])).toContain(String.raw`six\nseven red\neight`);
    terminal.press('C-d');
    await terminal.ended(0);
  });

  it('keeps a private history without lines that start with a space', async () => {
    const terminal = await chat('history');
    terminal.enter('remember the zebra');
    await answered(terminal, 'answer 1');
    terminal.enter(' secret-word');
    await answered(terminal, 'answer 2');
    terminal.press('C-d');
    await terminal.ended(0);
    const file = path.join(lab.home, '.ai', 'state', 'chat-history.jsonl');
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(readFileSync(file, 'utf8')).not.toContain('secret-word');
    const later = await chat('history-2', '--config agent.chat.history=true');
    later.press('Up');
    await later.shows('› remember the zebra');
    later.press('C-c');
    later.press('C-r');
    later.type('zeb');
    await later.shows(/› remember the zebra\nsearch: zeb_/);
    later.press('Enter');
    await answered(later, 'answer 3');
    later.press('C-d');
    await later.ended(0);
    const before = readFileSync(file, 'utf8');
    const off = await chat('history-off', '--config agent.chat.history=false');
    off.enter('forget this');
    await answered(off, 'answer 4');
    off.press('C-d');
    await off.ended(0);
    expect(readFileSync(file, 'utf8')).toBe(before);
  });

  it('undoes the files that the last message changed', async () => {
    const write = { path: 'note.txt', content: 'changed' };
    turns = [
      reply('Ready.'),
      calls(toolUse('rye_file_system_write', write, 'toolu_1')),
      reply('Written.'),
    ];
    const terminal = await chat('files', 'note');
    await answered(terminal, 'Ready.');
    terminal.enter('Write it.');
    await answered(terminal, 'Written.');
    expect(existsSync(path.join(lab.project, 'note.txt'))).toBe(true);
    terminal.enter('/undo');
    await terminal.shows('your last message was undone');
    expect(existsSync(path.join(lab.project, 'note.txt'))).toBe(false);
    terminal.press('C-c');
    terminal.press('C-d');
    await terminal.shows('resume: rye chat note --continue');
    await terminal.ended(0);
  });

  it('undoes a file that was changed since only with /undo force', async () => {
    const file = path.join(lab.project, 'forced.txt');
    const write = { path: 'forced.txt', content: 'by the model' };
    turns = [
      reply('Ready.'),
      calls(toolUse('rye_file_system_write', write, 'toolu_1')),
      reply('Written.'),
    ];
    const terminal = await chat('forced', 'note');
    await answered(terminal, 'Ready.');
    terminal.enter('Write it.');
    await answered(terminal, 'Written.');
    writeFileSync(file, 'by a person');
    terminal.enter('/undo');
    await terminal.shows('/undo force');
    expect(readFileSync(file, 'utf8')).toBe('by a person');
    terminal.enter('/undo force');
    await terminal.shows('your last message was undone');
    expect(existsSync(file)).toBe(false);
    terminal.press('C-c');
    terminal.press('C-d');
    await terminal.ended(0);
  });

  it('refuses a thread that another chat has open', async () => {
    const first = await chat('one', '--thread-id both');
    first.enter('Mine.');
    await answered(first, 'answer 1');
    const second = server.open('two', lab.project);
    second.run(`${program} chat --thread both`);
    await second.shows(/thread both is open in a chat of process \d+ \[thread_locked\]/);
    await second.ended(1);
    first.press('C-d');
    await first.ended(0);
  });

  it('follows the size of the terminal, stops with Ctrl-Z, and gives the terminal back after SIGTERM', async () => {
    const terminal = await chat('size');
    terminal.type('a question that is longer than forty columns of a terminal');
    terminal.resize(40, 20);
    await terminal.shows(/› a question that is longer than[^\n]*\n {2}[^\n]*terminal/);
    terminal.resize(100, 30);
    terminal.press('C-z');
    await terminal.ended(148);
    terminal.run('fg');
    await terminal.shows(/─\n› a question that is longer/);
    process.kill(terminal.pid(), 'SIGTERM');
    await terminal.ended(130);
  });
});

describe('the picker', () => {
  it('picks a thread that a command lacks, filters, and leaves with Escape', async () => {
    await lab.rye().threads.execute({ directiveId: 'note', threadId: 'walrus' });
    await lab.rye().threads.execute({ directiveId: 'note', threadId: 'wombat' });
    const terminal = server.open('picker', lab.project);
    terminal.run(`${program} threads show`);
    await terminal.shows(/▸ ✓ wombat +just now +This is answer 2\./);
    await terminal.shows(/ {2}✓ walrus/);
    terminal.type('walr');
    await terminal.lacks('✓ wombat');
    terminal.press('Enter');
    await terminal.shows(/status +✓ completed[^]*exit=0/);
    expect(terminal.screen()).toContain('walrus');
    terminal.run(`${program} verify thread`);
    await terminal.shows('▸ ✓ wombat');
    terminal.press('Escape');
    await terminal.shows('no thread was picked');
    await terminal.ended(130);
    expect(ESCAPE_MS).toBeLessThan(50);
    terminal.run(`${program} verify thread`);
    await terminal.shows('▸ ✓ wombat');
    // a key right after Escape is no part of it
    terminal.type('\u001bw');
    await terminal.shows('no thread was picked');
    terminal.run(`${program} threads show wal`);
    await terminal.shows('completed');
    terminal.run(`${program} threads show w`);
    await terminal.shows(/Thread:[^]*✓ walrus/);
    terminal.press('Down');
    await terminal.shows('▸ ✓ walrus');
    terminal.press('Enter');
    await terminal.ended(0);
  });

  it('stays the usage error without a terminal', async () => {
    const terminal = server.open('no-picker', lab.project);
    terminal.run(`${program} threads show < /dev/null`);
    await terminal.shows('missing argument <id>');
    await terminal.ended(2);
    terminal.run(`${program} threads show | cat`);
    await terminal.shows('missing argument <id>');
  });
});
