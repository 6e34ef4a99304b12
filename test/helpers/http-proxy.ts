import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';

/** A forward proxy on loopback, as companies have them. */
export interface HttpProxy {
  readonly port: number;
  /** The first line of each request, such as `CONNECT model.test:443`. */
  readonly seen: readonly string[];
}

interface ProxyOptions {
  /** The ports of this machine that serve as hosts, such as `model.test:443`. */
  readonly hosts?: Readonly<Record<string, number>>;
  /** The user and the password that it asks for, with a colon between them. */
  readonly login?: string;
  /** The status of its answer to each request. */
  readonly refusal?: number;
}

/** Opens a proxy that serves absolute addresses and `CONNECT`, until the test ends. */
export async function openHttpProxy(options: ProxyOptions = {}): Promise<HttpProxy> {
  const { hosts = {}, login, refusal } = options;
  const seen: string[] = [];
  const sockets = new Set<Socket>();
  const refused = ({ method, url, headers }: IncomingMessage): number | undefined => {
    seen.push(`${method} ${url}`);
    const wanted = login && `Basic ${Buffer.from(login).toString('base64')}`;
    return headers['proxy-authorization'] === wanted ? refusal : 407;
  };
  const forward = (incoming: IncomingMessage, answer: ServerResponse): void => {
    const status = refused(incoming);
    if (status !== undefined) return void answer.writeHead(status).end('the proxy refuses');
    const { host, pathname, search } = new URL(incoming.url ?? '');
    const { 'proxy-authorization': _, ...headers } = incoming.headers;
    const port = hosts[host.includes(':') ? host : `${host}:80`];
    const { method } = incoming;
    const outgoing = request({
      port,
      host: '127.0.0.1',
      path: `${pathname}${search}`,
      method,
      headers,
    });
    outgoing.on('error', () => answer.writeHead(502).end());
    outgoing.on('response', (response) => {
      answer.writeHead(response.statusCode ?? 0, response.headers);
      response.pipe(answer);
    });
    incoming.pipe(outgoing);
  };
  const proxy = createServer(forward);
  proxy.on('connect', (incoming: IncomingMessage, socket: Socket) => {
    sockets.add(socket.on('error', () => undefined));
    const port = hosts[incoming.url ?? ''];
    const status = refused(incoming) ?? (port === undefined ? 502 : undefined);
    if (status !== undefined) return void socket.end(`HTTP/1.1 ${status} No\r\n\r\n`);
    const server = connect(port ?? 0, '127.0.0.1', () => {
      socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
      socket.pipe(server).pipe(socket);
    }).on('error', () => socket.destroy());
    sockets.add(server);
  });
  await new Promise<void>((resolve) => {
    proxy.listen(0, '127.0.0.1', resolve);
  });
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    proxy.closeAllConnections();
    proxy.close();
  });
  return { port: (proxy.address() as AddressInfo).port, seen };
}
