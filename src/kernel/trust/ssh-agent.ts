import { createHash } from 'node:crypto';
import { MessageChannel, receiveMessageOnPort, Worker } from 'node:worker_threads';
import { RyeError } from '../core/errors.ts';
import { KEY_BYTES, SPKI_PREFIX } from './ed25519.ts';
import { readPublicKey, type SigningKey, type VerifyingKey } from './keys.ts';

// https://datatracker.ietf.org/doc/draft-ietf-sshm-ssh-agent/: the messages of an agent
const REQUEST_IDENTITIES = 11;
const IDENTITIES_ANSWER = 12;
const SIGN_REQUEST = 13;
const SIGN_RESPONSE = 14;
const ED25519 = Buffer.from('ssh-ed25519');
const SIGNATURE_BYTES = 64;
const MAX_KEYS = 1000;
/** A person may have to confirm the use of the key (`ssh-add -c`). */
const ANSWER_MS = 120_000;

/** An Ed25519 key that an agent holds. */
export interface AgentKey {
  readonly key: VerifyingKey;
  /** As `ssh-add -l` prints it: `SHA256:` and base64. */
  readonly fingerprint: string;
  readonly comment: string;
}

/** Sends requests to the agent one after the other and waits for each answer: signing is synchronous. */
export type AskAgent = (request: Buffer) => Buffer;

/**
 * The socket is in a separate thread, because Node has none that blocks. It ends with the process, and opens the socket again
 * for each request: an agent may have been restarted since.
 */
const SCRIPT = `
const { connect } = require('node:net');
const { workerData: { port, signal, path } } = require('node:worker_threads');
port.on('message', (request) => {
  const chunks = [];
  let size = 0;
  const socket = connect(path);
  let isAnswered = false;
  const answer = (message) => {
    if (isAnswered) return;
    isAnswered = true;
    socket.destroy();
    port.postMessage(message);
    Atomics.store(signal, 0, 1);
    Atomics.notify(signal, 0);
  };
  socket.on('connect', () => socket.write(request));
  socket.on('error', (error) => answer({ problem: error.code ?? error.message }));
  socket.on('close', () => answer({ problem: 'the agent closed the connection' }));
  socket.on('data', (chunk) => {
    chunks.push(chunk);
    size += chunk.length;
    const all = Buffer.concat(chunks);
    const length = size < 4 ? Infinity : all.readUInt32BE(0);
    if (size > 262144) answer({ problem: 'its answer is too long' });
    else if (size >= 4 + length) answer({ bytes: all.subarray(4, 4 + length) });
  });
});
`;

/** Connects to the agent that `SSH_AUTH_SOCK` names, when it is first asked. */
export function sshAgent(env: Readonly<Record<string, string | undefined>>): AskAgent {
  let ask: AskAgent | undefined;
  return (request) => {
    ask ??= startAgent(env['SSH_AUTH_SOCK'] ?? '');
    return ask(request);
  };
}

function startAgent(path: string): AskAgent {
  if (path === '') throw noAgent('SSH_AUTH_SOCK is not set');
  const signal = new Int32Array(new SharedArrayBuffer(4));
  const { port1, port2 } = new MessageChannel();
  const worker = new Worker(SCRIPT, {
    eval: true,
    env: {},
    workerData: { port: port2, signal, path },
    transferList: [port2],
  });
  worker.unref();
  port1.unref();
  return (request) => {
    Atomics.store(signal, 0, 0);
    port1.postMessage(framed(request));
    const state = Atomics.wait(signal, 0, 0, ANSWER_MS);
    const received = receiveMessageOnPort(port1)?.message as
      | { readonly problem?: string; readonly bytes?: Uint8Array }
      | undefined;
    if (received?.bytes) return Buffer.from(received.bytes);
    const late = `it did not answer in ${ANSWER_MS / 1000} s`;
    throw noAgent(state === 'timed-out' ? late : `${path}: ${received?.problem ?? late}`);
  };
}

/** Returns the Ed25519 keys that the agent holds. */
function agentKeys(ask: AskAgent): readonly AgentKey[] {
  const answer = new Reader(ask(Buffer.from([REQUEST_IDENTITIES])));
  if (answer.byte() !== IDENTITIES_ANSWER) throw noAgent('it lists no keys');
  const keys: AgentKey[] = [];
  for (let left = Math.min(answer.number(), MAX_KEYS); left > 0; left -= 1) {
    const blob = answer.text();
    const comment = answer.text().toString('utf8');
    const parts = new Reader(blob);
    if (!parts.text().equals(ED25519)) continue;
    const raw = parts.text();
    if (raw.length === KEY_BYTES) keys.push({ key: keyOf(raw), comment, ...named(blob) });
  }
  return keys;
}

/** Returns a key whose private half stays in the agent. */
export function agentSigner(key: VerifyingKey, ask: AskAgent): SigningKey {
  const blob = Buffer.concat([framed(ED25519), framed(rawOf(key))]);
  return {
    ...key,
    sign(message) {
      const flags = Buffer.alloc(4);
      const text = Buffer.from(message, 'utf8');
      const request = [Buffer.from([SIGN_REQUEST]), framed(blob), framed(text), flags];
      const answer = new Reader(ask(Buffer.concat(request)));
      if (answer.byte() !== SIGN_RESPONSE) throw notSigned(key, named(blob).fingerprint, ask);
      const parts = new Reader(answer.text());
      const isPlain = parts.text().equals(ED25519);
      const bytes = parts.text();
      const signature = bytes.toString('base64url');
      if (isPlain && bytes.length === SIGNATURE_BYTES && key.verify(message, signature))
        return signature;
      throw noAgent('its signature is not one of the key');
    },
  };
}

/** Tells a key that is not loaded from one whose use was refused. */
function notSigned({ keyId }: VerifyingKey, fingerprint: string, ask: AskAgent): RyeError {
  if (agentKeys(ask).some(({ key }) => key.keyId === keyId)) {
    return new RyeError('key_unsafe', `ssh-agent refused to sign with ${fingerprint}`, {
      hint: 'Confirm the use of the key, as `ssh-add -c` demands, and try again.',
    });
  }
  return new RyeError('key_unsafe', `ssh-agent does not hold the signing key ${fingerprint}`, {
    hint: 'Load it, then try again: ssh-add FILE',
  });
}

function noAgent(why: string): RyeError {
  return new RyeError(
    'key_unsafe',
    `the signing key is in ssh-agent, which cannot be used: ${why}`,
    {
      hint: 'Start it and load the key: eval "$(ssh-agent)" && ssh-add FILE',
    },
  );
}

function keyOf(raw: Buffer): VerifyingKey {
  const der = Buffer.concat([SPKI_PREFIX, raw]).toString('base64');
  return readPublicKey(
    `-----BEGIN PUBLIC KEY-----\n${der}\n-----END PUBLIC KEY-----\n`,
    'ssh-agent',
  );
}

function rawOf({ pem }: VerifyingKey): Buffer {
  return Buffer.from(pem.split('\n')[1] ?? '', 'base64').subarray(-KEY_BYTES);
}

function named(blob: Buffer): Pick<AgentKey, 'fingerprint'> {
  const hash = createHash('sha256').update(blob).digest('base64').replace(/=+$/, '');
  return { fingerprint: `SHA256:${hash}` };
}

function framed(bytes: Buffer): Buffer {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(bytes.length);
  return Buffer.concat([length, bytes]);
}

/** Reads the fields of a message; one that is cut reads as empty. */
class Reader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  byte(): number {
    this.#at += 1;
    return this.#bytes[this.#at - 1] ?? 0;
  }

  number(): number {
    const found = this.#take(4);
    return found.length === 4 ? found.readUInt32BE(0) : 0;
  }

  text(): Buffer {
    return this.#take(this.number());
  }

  #take(length: number): Buffer {
    const from = this.#at;
    this.#at = Math.min(from + length, this.#bytes.length);
    return this.#bytes.subarray(from, this.#at);
  }
}

/** Returns the one Ed25519 key with this comment or fingerprint. Throws `key_not_found` or `ambiguous`. */
export function agentKeyNamed(name: string, ask: AskAgent): AgentKey {
  const keys = agentKeys(ask);
  const [found, other] = keys.filter((one) => one.fingerprint === name || one.comment === name);
  if (found && !other) return found;
  const listed = keys.map(({ fingerprint, comment }) => `${fingerprint} (${comment})`).join(', ');
  const hint =
    keys.length === 0
      ? 'Make one and load it: ssh-keygen -t ed25519 -f FILE && ssh-add FILE'
      : `Name one by its fingerprint: ${listed}`;
  if (other) throw new RyeError('ambiguous', `ssh-agent holds two keys named ${name}`, { hint });
  throw new RyeError('key_not_found', `ssh-agent holds no Ed25519 key named ${name}`, { hint });
}
