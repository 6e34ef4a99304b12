import {
  type Argument,
  argument,
  type Context,
  defineCommand,
  defineGroup,
} from '../../../faces/cli/command.ts';
import {
  count,
  displayPath,
  printDocument,
  printLine,
  printLines,
  printResult,
  wrapped,
} from '../../../faces/cli/output.ts';
import { withRye } from '../../../faces/cli/session.ts';
import { oneLine, shown } from '../../../faces/ui/visible.ts';
import type { McpServerOptions, McpServerReport } from '../../../kernel/app/api/rye.ts';
import { EXIT, exitCodeOf, RyeError } from '../../../kernel/core/errors.ts';
import { compact } from '../../../kernel/core/json.ts';

/** Prints servers with their tools. Returns the exit status: that of the first server that does not start. */
function printServers(context: Context, servers: readonly McpServerReport[], isFull: boolean) {
  const { io, global } = context;
  const error = servers.find(({ ok }) => !ok)?.error;
  if (global.json) {
    const success = error === undefined;
    printDocument(io, compact({ success, error, servers, total: servers.length }));
  } else if (servers.length === 0) {
    printLine(io, shown`No MCP server is in use. Add one: rye mcp add NAME COMMAND`);
  } else for (const server of servers) printServer(context, server, isFull);
  return error === undefined ? EXIT.ok : exitCodeOf(error.code);
}

function printServer({ io }: Context, server: McpServerReport, isFull: boolean): void {
  const { name, tools, error } = server;
  if (error !== undefined) {
    printLines(io, wrapped(oneLine(`FAIL ${name}: ${error.message} [${error.code}]`), io.stdout));
    if (error.hint !== undefined) io.stderr.write(shown`hint: ${oneLine(error.hint)}\n`);
    return;
  }
  printLine(io, shown`ok   ${oneLine(name)}: ${count(tools.length, 'tool')}`);
  for (const { id, description } of tools) {
    const line = oneLine(`     ${id}${isFull ? `  ${description}` : ''}`);
    printLines(io, wrapped(line, io.stdout, shown`       `));
  }
}

const list = defineCommand({
  name: 'list',
  summary: 'Start the configured servers and list their tools',
  examples: ['rye mcp list', 'rye mcp list --json'],
  run: async (call) => printServers(call, await withRye(call, (rye) => rye.mcpServers()), false),
});

const test = defineCommand({
  name: 'test',
  summary: 'Start one server and show what each of its tools does',
  arguments: { name: argument('Name of the server') },
  examples: ['rye mcp test files'],
  run: async (call) =>
    printServers(call, await withRye(call, (rye) => rye.mcpServers(call.args.name)), true),
});

const COMMAND: Argument<readonly string[]> = {
  name: 'command...',
  description: 'URL of the server, or the command that starts it; write -- before its options',
  read: (words) => words,
};

const add = defineCommand({
  name: 'add',
  summary: 'Write a server to .ai/config/mcp.yaml, which you then sign',
  arguments: { name: argument('Name of the server'), command: COMMAND },
  examples: [
    'rye mcp add files -- npx -y @modelcontextprotocol/server-filesystem .',
    'rye mcp add docs https://mcp.example.com/mcp',
  ],
  run: async (call) => {
    const { args, io, global } = call;
    const server = serverOf(args.command);
    const path = await withRye(call, (rye) => rye.addMcpServer(args.name, server));
    const done = printResult(call, { name: args.name, path }, () => [
      shown`wrote ${displayPath(path, io)}`,
    ]);
    if (!global.json && !global.quiet) {
      io.stderr.write(shown`next: rye sign config mcp && rye mcp test ${oneLine(args.name)}\n`);
    }
    return done;
  },
});

function serverOf([first, ...rest]: readonly string[]): McpServerOptions {
  if (first === undefined) {
    throw new RyeError('usage', 'missing argument <command...>', {
      hint: 'Name the program or the URL: rye mcp add NAME -- COMMAND ARGUMENTS',
    });
  }
  if (/^https?:\/\//.test(first)) return { url: first };
  return { command: first, ...(rest.length === 0 ? {} : { args: rest }) };
}

export const mcp = defineGroup({
  examples: ['rye mcp list', 'rye mcp test files'],
  defaultCommand: 'list',
  commands: [list, test, add],
});
