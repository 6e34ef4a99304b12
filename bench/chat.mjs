// `rye chat` at a terminal: from the start to the prompt, and from Enter to the first byte of the answer to the first message, with a
// model on loopback that takes no time. A pseudo-terminal of python3 types like a person. Processor time is of the main thread, which
// a person waits for. Linux only.
import { spawnSync } from 'node:child_process';
import process from 'node:process';
import {
  interleave,
  measureProcess,
  openWorkspace,
  processRow,
  RYE,
  row,
  startServer,
} from './harness.mjs';

const ROUNDS = 9;
/** Over `node -e 0`. Enter to the answer is 50 ms on the clock where `node -e 0` takes 20 ms. */
const TARGETS = { prompt: 5, answer: 2 };
const MESSAGE = 'Answer in one word.';
const ANSWER = 'Done.';

/** Arguments: message, answer, program. Prints what the prompt and the answer took. */
const TERMINAL = `
import fcntl, json, os, pty, select, struct, sys, termios, time
message, answer, *command = sys.argv[1:]
begun = time.monotonic()
pid, screen = pty.fork()
if pid == 0:
    os.execvp(command[0], command)
fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack('HHHH', 40, 100, 0, 0))
seen = b''
def worked():
    with open(f'/proc/{pid}/schedstat') as file:
        return int(file.read().split()[0]) / 1e6
def wait(seconds, text=None):
    global seen
    end = time.monotonic() + seconds
    while time.monotonic() < end and not (text and text.encode() in seen):
        if select.select([screen], [], [], 0.001)[0]:
            try:
                seen += os.read(screen, 65536)
            except OSError:
                break
    if text and text.encode() not in seen:
        sys.exit(f'{text!r} is not shown: {seen[-2000:]!r}')
wait(20, '\\u203a')
prompt = {'wall': (time.monotonic() - begun) * 1000, 'cpu': worked()}
for letter in message:
    os.write(screen, letter.encode())
    wait(0.04)
seen = b''
work, begun = worked(), time.monotonic()
os.write(screen, b'\\r')
wait(20, answer)
answered = {'wall': (time.monotonic() - begun) * 1000, 'cpu': worked() - work}
for key in [b'\\x04', b'\\x04']:
    wait(0.3)
    os.write(screen, key)
wait(0.5)
os.close(screen)
os.waitpid(pid, 0)
print(json.dumps({'prompt': prompt, 'answer': answered}))
`;

/** Starts a chat with a built program, sends one message and leaves. */
export function chatOnce(program, options) {
  const args = ['-c', TERMINAL, MESSAGE, ANSWER, process.execPath, program, 'chat'];
  const { status, stdout, stderr } = spawnSync('python3', args, { ...options, encoding: 'utf8' });
  if (status !== 0) throw new Error(stderr);
  return JSON.parse(stdout);
}

export async function run() {
  const server = await startServer('./wire.mjs');
  const { env, project, close } = openWorkspace();
  const model = { ANTHROPIC_API_KEY: 'bench', ANTHROPIC_BASE_URL: server.url };
  const options = { cwd: project, env: { ...env, ...model, TERM: 'xterm-256color' } };
  try {
    chatOnce(RYE, options);
    const { 'node -e 0': floors, chat } = await interleave(
      {
        'node -e 0': () => measureProcess(['-e', '0'], options),
        chat: () => chatOnce(RYE, options),
      },
      ROUNDS,
    );
    row('rye chat', 'wall', 'over node, wall', 'over node, CPU', 'target, CPU');
    processRow('node -e 0', { samples: floors, floors });
    for (const [name, key] of [
      ['to the prompt', 'prompt'],
      ['Enter to the first byte of the answer', 'answer'],
    ]) {
      const samples = chat.map((one) => one[key]);
      processRow(name, { samples, floors, target: TARGETS[key] });
    }
  } finally {
    server.close();
    close();
  }
}
