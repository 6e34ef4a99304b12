import { expect, it } from 'vitest';
import { lostServers } from '../../src/kernel/app/granted-tools.ts';
import { RyeError } from '../../src/kernel/core/errors.ts';

const DOWN = new RyeError('tool_failed', 'one is down', {});
const IGNORED = new RyeError('unsigned', 'mcp.yaml of one is not signed', {});
const TOOL = { id: 'mcp/one/do' };

type Facts = {
  readonly servers?: ReadonlyMap<string, RyeError | undefined>;
  readonly tools?: readonly (typeof TOOL)[];
  readonly mayConnect?: boolean;
  readonly ignored?: RyeError;
};
const UP = new Map([['one', undefined]]);

it.each<[string, string, Facts, string | undefined]>([
  ['a tool that is offered', 'do', { servers: UP, tools: [TOOL] }, undefined],
  ['a tool that is not offered', 'other', { servers: UP, tools: [TOOL] }, 'offers no tool'],
  ['all tools of a server without any', '*', { servers: UP }, undefined],
  ['a pattern that matches no tool', 'no*', { servers: UP, tools: [TOOL] }, undefined],
  ['a tool of a server that is not asked', 'do', { servers: UP, mayConnect: false }, undefined],
  ['a tool of a server that fails', 'do', { servers: new Map([['one', DOWN]]) }, 'one is down'],
  ['all tools of a server that fails', '*', { servers: new Map([['one', DOWN]]) }, 'one is down'],
  ['a server that is not configured', 'do', {}, 'is not configured'],
  ['a server that is not configured or asked', '*', { mayConnect: false }, 'is not configured'],
  ['a server of a file that does not count', 'do', { ignored: IGNORED }, 'is not signed'],
])('a grant of %s', (_, tool, facts, problem) => {
  const capability = `rye.execute.tool.mcp.one.${tool}`;
  const { servers = new Map(), tools = [], mayConnect = true, ignored } = facts;
  const offered = { servers, tools } as unknown as Parameters<typeof lostServers>[1];
  const lost = lostServers([capability, 'rye.execute.tool.rye.bash'], offered, {
    mayConnect,
    ignored: () => ignored,
  });
  expect(lost).toEqual(
    problem === undefined
      ? []
      : [
          {
            capability,
            error: expect.objectContaining({ message: expect.stringContaining(problem) }),
          },
        ],
  );
});
