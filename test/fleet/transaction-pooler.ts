import { connect, createServer, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';

/** A connection to the server that is shared by clients. */
interface Backend {
  readonly socket: Socket;
  /** Receives messages until the server is ready, and returns the state of its transaction. */
  ready(toClient?: Socket): Promise<string>;
}

const OK = Buffer.from([0x52, 0, 0, 0, 8, 0, 0, 0, 0]);
const READY = Buffer.from([0x5a, 0, 0, 0, 5, 0x49]);

/**
 * Serves a database as a pooler does that hands connections out by transaction, the last used connection first. It knows
 * simple queries only. Returns its address.
 */
export async function transactionPooler(url: string): Promise<string> {
  const { hostname, port, username, pathname } = new URL(url);
  const free: Backend[] = [];
  const sockets: Socket[] = [];
  const open = async (): Promise<Backend> => {
    const socket = connect(Number(port), hostname);
    sockets.push(socket);
    socket.on('error', () => undefined);
    const backend = backendOf(socket);
    socket.write(startup(username, pathname.slice(1)));
    await backend.ready();
    return backend;
  };
  const server = createServer((client) => {
    sockets.push(client);
    client.on('error', () => undefined);
    let held: Backend | undefined;
    let isStarted = false;
    const answer = async (message: Buffer): Promise<void> => {
      held ??= free.pop() ?? (await open());
      const { socket, ready } = held;
      socket.write(message);
      if ((await ready(client)) !== 'I') return;
      free.push(held);
      held = undefined;
    };
    let last = Promise.resolve();
    client.on('data', (data) => {
      if (!isStarted) {
        isStarted = true;
        client.write(Buffer.concat([OK, READY]));
      } else if (data[0] === 0x51) {
        last = last.then(async () => await answer(data));
      } else client.end();
    });
  });
  server.listen(0, '127.0.0.1');
  await new Promise<void>((resolve) => {
    server.once('listening', resolve);
  });
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const own = server.address() as { readonly port: number };
  return `postgres://${username}@127.0.0.1:${own.port}${pathname}`;
}

function startup(user: string, database: string): Buffer {
  const text = Buffer.from(`user\0${user}\0database\0${database}\0\0`);
  const head = Buffer.alloc(8);
  head.writeInt32BE(text.length + 8, 0);
  head.writeInt32BE(196_608, 4);
  return Buffer.concat([head, text]);
}

function backendOf(socket: Socket): Backend {
  let bytes = Buffer.alloc(0);
  let take: () => void = () => undefined;
  socket.on('data', (data) => {
    bytes = Buffer.concat([bytes, data]);
    take();
  });
  return {
    socket,
    ready: async (toClient) =>
      await new Promise((resolve) => {
        take = () => {
          while (bytes.length >= 5 && bytes.length > bytes.readInt32BE(1)) {
            const message = bytes.subarray(0, bytes.readInt32BE(1) + 1);
            bytes = bytes.subarray(message.length);
            toClient?.write(message);
            if (message[0] === 0x5a) resolve(String.fromCodePoint(message[5] ?? 0));
          }
        };
        take();
      }),
  };
}
