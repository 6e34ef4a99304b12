import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';

/** Loopback connections to a server that a test can break. */
export interface TcpProxy {
  /** The address of the server, by way of the proxy. */
  urlOf(url: string): string;
  /** Breaks all connections, and refuses new ones. */
  cut(): void;
  /** Swallows what is sent on all connections and on new ones, for good: neither side learns of it. */
  swallow(): void;
  /** Lets new connections through. Those that were broken stay so. */
  mend(): void;
}

/** Opens a proxy for a port, until the test ends. */
export async function openProxy(port: number): Promise<TcpProxy> {
  const sockets = new Set<Socket>();
  let state: 'open' | 'cut' | 'swallowing' = 'open';
  const proxy = createServer((socket) => {
    socket.on('error', () => undefined);
    sockets.add(socket);
    if (state === 'cut') socket.destroy();
    if (state === 'swallowing') socket.resume();
    if (state !== 'open') return;
    const upstream = connect(port, '127.0.0.1').on('error', () => undefined);
    sockets.add(upstream);
    socket.pipe(upstream).pipe(socket);
    socket.on('close', () => upstream.destroy());
    upstream.on('close', () => socket.destroy());
  });
  proxy.listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  const own = (proxy.address() as AddressInfo).port;
  const destroyAll = (): void => {
    for (const socket of sockets) socket.destroy();
    sockets.clear();
  };
  onTestFinished(() => {
    state = 'cut';
    destroyAll();
    proxy.close();
  });
  return {
    urlOf: (url) => url.replace(`:${port}/`, `:${own}/`),
    cut: () => {
      state = 'cut';
      destroyAll();
    },
    swallow: () => {
      state = 'swallowing';
      for (const socket of sockets) socket.unpipe().resume();
    },
    mend: () => {
      state = 'open';
    },
  };
}
