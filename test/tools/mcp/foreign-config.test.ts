import { describe, expect, it } from 'vitest';
import { type McpServerConfig, parseServers } from '../../../src/features/mcp/config.ts';
import { readForeignServers } from '../../../src/features/mcp/foreign-config.ts';

const ENV = { HOME: '/home/me', ROOT: '/srv', TOKEN: 'secret' };
const SOURCE = { origin: '.mcp.json', projectPath: '/work/app', env: ENV };

interface Read {
  readonly servers: readonly McpServerConfig[];
  readonly notes: readonly string[];
  readonly problems: readonly string[];
}

function read(text: string): Read {
  const { servers, notes, problems } = readForeignServers(text, SOURCE);
  const parsed = parseServers({ servers, disclosure: undefined, origin: '.mcp.json', env: ENV });
  const all = [...problems, ...parsed.problems].map(({ message }) => message);
  return { servers: parsed.servers, notes, problems: all };
}

function readOne(server: unknown, name = 'a'): Read {
  return read(JSON.stringify({ mcpServers: { [name]: server } }));
}

const STDIO = { command: 'npx', args: ['-y', 'pkg'] };

describe('servers of other programs', () => {
  // Requirement: mcp-json-of-others
  it.each<[string, object, string]>([
    ['Claude Code: alwaysAllow', { alwaysAllow: ['x'] }, 'alwaysAllow'],
    ['Cline, Amazon Q: autoApprove', { autoApprove: [] }, 'autoApprove'],
    ['Roo: disabledTools', { disabledTools: ['x'] }, 'disabledTools'],
    ['Cline: timeout', { timeout: 60 }, 'timeout'],
    [
      'Gemini CLI: trust, includeTools',
      { trust: true, includeTools: ['a'] },
      'trust, includeTools',
    ],
    ['Cursor: envFile', { envFile: '.env' }, 'envFile'],
    ['VS Code: dev, gallery', { dev: { watch: 'x' }, gallery: true }, 'dev, gallery'],
    ['Codex: cwd, enabled_tools', { cwd: '/x', enabled_tools: ['a'] }, 'cwd, enabled_tools'],
    [
      'description, transportType',
      { description: 'x', transportType: 'stdio' },
      'description, transportType',
    ],
    ['Copilot: tools', { tools: ['*'] }, 'tools'],
  ])('%s is ignored with a note', (_, members, ignored) => {
    const { servers, notes, problems } = readOne({ ...STDIO, ...members });
    expect(problems).toEqual([]);
    expect(servers).toMatchObject([STDIO]);
    expect(notes).toEqual([`.mcp.json: the MCP server "a": ignored: ${ignored}`]);
  });

  it.each<[string, object, object]>([
    ['disabled: false', { ...STDIO, disabled: false }, STDIO],
    ['type: local', { ...STDIO, type: 'local' }, { transport: 'stdio' }],
    ['null members', { ...STDIO, env: null, type: null }, STDIO],
    [
      'numbers in args and env',
      { ...STDIO, args: ['-p', 1], env: { A: 1, B: true, C: null } },
      { args: ['-p', '1'], env: { A: '1', B: 'true' } },
    ],
    ['a list as command', { command: ['npx', '-y', 'pkg'] }, STDIO],
    ['environment', { ...STDIO, environment: { A: 'b' } }, { env: { A: 'b' } }],
    [
      'env_vars',
      { ...STDIO, env_vars: ['TOKEN', 'UNSET'] },
      { env: { TOKEN: 'secret', UNSET: '' } },
    ],
    [
      '${VAR} in args',
      { ...STDIO, args: ['${ROOT}/x.mjs', '${UNSET:-y}'] },
      { args: ['/srv/x.mjs', 'y'] },
    ],
    ['${VAR} in command', { command: '${ROOT}/bin' }, { command: '/srv/bin' }],
    [
      '${env:VAR}',
      { ...STDIO, args: ['${env:ROOT}'], env: { A: '${env:TOKEN}' } },
      { args: ['/srv'], env: { A: 'secret' } },
    ],
    [
      '${workspaceFolder}',
      { ...STDIO, args: ['${workspaceFolder}', '${workspaceFolderBasename}', '${userHome}${/}x'] },
      { args: ['/work/app', 'app', '/home/me/x'] },
    ],
    [
      '${CLAUDE_PROJECT_DIR:-.}',
      { command: '${CLAUDE_PROJECT_DIR:-.}/run' },
      { command: '/work/app/run' },
    ],
    [
      'type: streamableHttp',
      { type: 'streamableHttp', url: 'https://a.example/mcp' },
      { transport: 'http' },
    ],
    [
      'type: streamable_http',
      { type: 'streamable_http', url: 'https://a.example/mcp' },
      { transport: 'http' },
    ],
    ['type: HTTP', { type: 'HTTP', url: 'https://a.example/mcp' }, { transport: 'http' }],
    ['type: remote', { type: 'remote', url: 'https://a.example/mcp' }, { transport: 'http' }],
    ['httpUrl', { httpUrl: 'https://a.example/mcp' }, { url: 'https://a.example/mcp' }],
    ['serverUrl', { serverUrl: 'https://a.example/mcp' }, { url: 'https://a.example/mcp' }],
    [
      '${VAR} in url',
      { url: 'https://${UNSET:-a.example}/${ROOT}' },
      { url: 'https://a.example//srv' },
    ],
    [
      '${VAR} in headers',
      { url: 'https://a.example/', headers: { A: 'Bearer ${TOKEN}' } },
      { headers: { A: 'Bearer secret' } },
    ],
    [
      'bearer_token_env_var',
      { url: 'https://a.example/', bearer_token_env_var: 'TOKEN' },
      { headers: { Authorization: 'Bearer secret' } },
    ],
    [
      'env_http_headers',
      { url: 'https://a.example/', http_headers: { A: 'b' }, env_http_headers: { B: 'TOKEN' } },
      { headers: { A: 'b', B: 'secret' } },
    ],
    [
      'timeouts of Codex',
      { ...STDIO, startup_timeout_sec: 20, tool_timeout_sec: 9 },
      { connectSeconds: 20, timeoutSeconds: 9 },
    ],
  ])('%s works', (_, server, expected) => {
    const { servers, notes, problems } = readOne(server);
    expect({ notes, problems }).toEqual({ notes: [], problems: [] });
    expect(servers).toMatchObject([expected]);
  });

  it('one that is disabled needs nothing', () => {
    const server = { command: '${UNSET}', disabled: true, timeout: 1 };
    expect(readOne(server)).toEqual({ servers: [], notes: [], problems: [] });
  });

  it.each([
    ['an unset variable', { command: '${UNSET}' }, 'command needs the environment variable UNSET'],
    ['a question', { ...STDIO, env: { KEY: '${input:key}' } }, 'env.KEY needs the input key'],
    ['no command', { args: ['x'] }, 'neither a command nor a url'],
    ['a text', 'npx pkg', 'not a mapping'],
    ['an old transport', { type: 'sse', url: 'https://a.example/sse' }, 'its type is'],
  ])('%s skips only that server', (_, server, problem) => {
    const text = JSON.stringify({ mcpServers: { bad: server, good: STDIO } });
    const { servers, problems } = read(text);
    expect(servers.map(({ name }) => name)).toEqual(['good']);
    expect(problems).toEqual([expect.stringContaining(problem)]);
  });

  it.each([
    ['awslabs.aws-docs', 'awslabs_aws-docs'],
    ['awslabs.aws-documentation-mcp-server', 'awslabs_aws-documentation-mcp-se'],
    ['github.com/modelcontextprotocol/servers/time', 'github_com_modelcontextprotocol'],
    ['My Server!', 'My_Server'],
    ['@scope/name', 'scope_name'],
    ['Sérvér', 'S_rv_r'],
    ['数据', '5440f7'],
  ])('the name %s becomes %s', (given, name) => {
    const { servers, notes } = readOne(STDIO, given);
    expect(servers).toMatchObject([{ name }]);
    expect(notes).toEqual([`.mcp.json: the MCP server "${given}" has the name ${name} here`]);
  });

  it('names stay different', () => {
    const { servers } = read(
      JSON.stringify({ mcpServers: { 'a.b': STDIO, 'a b': STDIO, a_b: STDIO } }),
    );
    const names = servers.map(({ name }) => name);
    expect(names).toContain('a_b');
    expect(new Set(names).size).toBe(3);
  });

  it.each([
    ['a byte order mark', `\uFEFF${JSON.stringify({ mcpServers: { a: STDIO } })}`],
    [
      'comments',
      '// x\n{/* y */"mcpServers": {"a": {"command": "npx", // z\n "args": ["-y", "pkg"]}}}',
    ],
    ['trailing commas', '{"mcpServers": {"a": {"command": "npx", "args": ["-y", "pkg",],},},}'],
    ['VS Code', JSON.stringify({ inputs: [], servers: { a: STDIO } })],
    ['settings of VS Code', JSON.stringify({ mcp: { servers: { a: STDIO } } })],
    ['OpenCode', JSON.stringify({ mcp: { a: STDIO } })],
    ['Zed', JSON.stringify({ context_servers: { a: STDIO } })],
    ['Codex', JSON.stringify({ mcp_servers: { a: STDIO } })],
    ['a plugin of Claude Code', JSON.stringify({ a: STDIO })],
    ['a server called servers', JSON.stringify({ mcpServers: { servers: STDIO, a: STDIO } })],
  ])('reads the file with %s', (_, text) => {
    const { servers, problems } = read(text);
    expect(problems).toEqual([]);
    expect(servers).toContainEqual(expect.objectContaining({ name: 'a', ...STDIO }));
  });

  it('keeps what looks like a comment in a text', () => {
    const text =
      '{"mcpServers": {"a": {"url": "https://a.example/x", "headers": {"B": "/*,]*/"}}}}';
    expect(read(text).servers).toMatchObject([
      { url: 'https://a.example/x', headers: { B: '/*,]*/' } },
    ]);
  });

  it.each([
    ['no JSON', '{"mcpServers": ', 'it is not JSON'],
    ['a list', '[]', 'no mapping mcpServers'],
    ['no servers', '{"name": "x"}', 'no mapping mcpServers'],
  ])('says what is wrong with %s', (_, text, problem) => {
    expect(read(text).problems).toEqual([expect.stringContaining(problem)]);
  });

  // shapes of the examples in the documentation of these programs
  it.each<[string, object, readonly string[], readonly string[]]>([
    [
      'Claude Code',
      {
        mcpServers: {
          files: { command: 'npx', args: ['pkg'], env: { ALLOWED: '/x' } },
          mine: {
            type: 'stdio',
            command: 'node',
            args: ['./s.js'],
            env: { DEBUG: '${DEBUG:-no}' },
          },
          far: {
            type: 'http',
            url: '${BASE:-https://a.example}/mcp',
            headers: { Authorization: 'Bearer ${TOKEN}' },
          },
          hooked: { type: 'http', url: 'https://a.example/mcp', headersHelper: '/opt/h.sh' },
          login: {
            type: 'http',
            url: 'https://a.example/mcp',
            oauth: { clientId: 'c', callbackPort: 8080 },
          },
          plugin: { command: '${CLAUDE_PROJECT_DIR:-.}/run', args: [], env: {} },
        },
      },
      ['files', 'mine', 'far', 'hooked', 'login', 'plugin'],
      ['"hooked": ignored: headersHelper', '"login": ignored: oauth'],
    ],
    [
      'Cursor',
      {
        mcpServers: {
          node: { command: 'npx', args: ['-y', 's'], env: { KEY: 'v' } },
          python: {
            type: 'stdio',
            command: 'python',
            args: ['${workspaceFolder}/s.py'],
            env: { KEY: '${env:TOKEN}' },
            envFile: '${workspaceFolder}/.env',
          },
          far: { url: 'http://localhost:3000/mcp', headers: { KEY: '${env:TOKEN}' } },
          login: {
            url: 'https://a.example/mcp',
            auth: { CLIENT_ID: '${env:TOKEN}', scopes: ['r'] },
          },
        },
      },
      ['node', 'python', 'far', 'login'],
      ['"python": ignored: envFile', '"login": ignored: auth'],
    ],
    [
      'Cline',
      {
        mcpServers: {
          local: { ...STDIO, alwaysAllow: ['a'], disabled: false, timeout: 60 },
          far: {
            type: 'streamableHttp',
            url: 'https://a.example/mcp',
            headers: { Authorization: 'Bearer t' },
            autoApprove: [],
            disabled: false,
          },
          off: { command: 'node', args: ['/x'], disabled: true },
        },
      },
      ['local', 'far'],
      ['"local": ignored: alwaysAllow, timeout', '"far": ignored: autoApprove'],
    ],
    [
      'VS Code',
      {
        servers: {
          github: { type: 'http', url: 'https://api.example/mcp' },
          play: { command: 'npx', args: ['-y', '@microsoft/mcp-server-playwright'] },
          boxed: {
            type: 'stdio',
            command: 'npx',
            args: ['s', '${workspaceFolder}'],
            sandboxEnabled: true,
            sandbox: { filesystem: { allowWrite: ['${workspaceFolder}'] } },
          },
          dev: {
            command: 'node',
            args: ['b.js'],
            cwd: '${workspaceFolder}',
            dev: { watch: '*.ts' },
          },
        },
        inputs: [],
      },
      ['github', 'play', 'boxed', 'dev'],
      ['"boxed": ignored: sandboxEnabled, sandbox', '"dev": ignored: cwd, dev'],
    ],
    [
      'Copilot',
      {
        mcpServers: {
          local: { type: 'local', command: 'npx', args: ['s'], tools: ['*'], env: { K: 'v' } },
          far: { type: 'http', url: 'https://a.example/mcp', tools: ['a', 'b'] },
        },
      },
      ['local', 'far'],
      ['"local": ignored: tools', '"far": ignored: tools'],
    ],
    [
      'Codex',
      {
        mcp_servers: {
          docs: { command: 'npx', args: ['-y', 's'], env_vars: ['TOKEN'], env: { A: 'b' } },
          figma: {
            url: 'https://a.example/mcp',
            bearer_token_env_var: 'TOKEN',
            http_headers: { 'X-Region': 'us' },
            env_http_headers: { 'X-Key': 'TOKEN' },
          },
          tuned: {
            ...STDIO,
            enabled: true,
            required: true,
            startup_timeout_sec: 20,
            tool_timeout_sec: 45,
            enabled_tools: ['open'],
            disabled_tools: ['shot'],
          },
          off: { ...STDIO, enabled: false },
        },
      },
      ['docs', 'figma', 'tuned'],
      ['"tuned": ignored: required, enabled_tools, disabled_tools'],
    ],
    [
      'AWS',
      {
        mcpServers: {
          'awslabs.core-mcp-server': {
            command: 'uvx',
            args: ['awslabs.core-mcp-server@latest'],
            env: { FASTMCP_LOG_LEVEL: 'ERROR', AWS_REGION: 'us-east-1' },
            autoApprove: [],
            disabled: false,
          },
          domains: { type: 'http', url: 'https://a.example/mcp', timeout: 120000, oauthScopes: [] },
          'aws-knowledge-mcp-server': { url: 'https://a.example', type: 'http' },
          docker: {
            command: 'docker',
            args: ['run', '--rm', '-i', '--env', 'A=b', 'awslabs/x:latest'],
            env: {},
            disabledTools: ['x'],
          },
        },
      },
      ['awslabs_core-mcp-server', 'domains', 'aws-knowledge-mcp-server', 'docker'],
      [
        '"awslabs.core-mcp-server" has the name awslabs_core-mcp-server here',
        '"awslabs.core-mcp-server": ignored: autoApprove',
        '"domains": ignored: timeout, oauthScopes',
        '"docker": ignored: disabledTools',
      ],
    ],
  ])('the examples of %s load', (_, file, names, notes) => {
    const found = read(JSON.stringify(file));
    expect(found.problems).toEqual([]);
    expect(found.servers.map(({ name }) => name)).toEqual(names);
    expect(found.notes).toEqual(notes.map((note) => `.mcp.json: the MCP server ${note}`));
  });

  it.each([
    ['a web socket', { type: 'ws', url: 'wss://a.example/socket' }],
    ['events of the old transport', { type: 'sse', url: 'https://a.example/sse' }],
    ['a question', { ...STDIO, env: { K: '${input:k}' } }],
    ['headers as a list', { url: 'https://a.example/mcp', headers: ['A: b'] }],
  ])('%s costs that server alone, with the reason', (_, server) => {
    const found = read(JSON.stringify({ mcpServers: { bad: server, good: STDIO } }));
    expect(found.servers.map(({ name }) => name)).toEqual(['good']);
    expect(found.problems).toEqual([expect.stringContaining('"bad"')]);
  });
});
