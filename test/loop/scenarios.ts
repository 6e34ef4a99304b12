import type { InboxPort } from '../../src/kernel/loop/ports.ts';
import { textOutput } from '../../src/kernel/tools/tool.ts';
import { answers, fails, type Script, toolOf } from './scripted.ts';

export const ECHO = { rye_echo: toolOf('rye/echo') };
export const echo = (id: string) => ({ id, name: 'rye_echo' });

/** Delivers messages at the given visits of safe points, such as `at_end 1`. */
function steers(...due: readonly string[]): InboxPort {
  const visits = { before_turn: 0, at_end: 0 };
  return {
    take: (point) => {
      visits[point] += 1;
      const isDue = due.includes(`${point} ${visits[point]}`);
      const payload = { custom_type: 'person', content: 'Also.', display: true };
      return Promise.resolve(isDue ? [{ event_type: 'custom_message', payload }] : []);
    },
  };
}

/** Whole event traces: the order of a turn is the contract. */
export const SCENARIOS: readonly { name: string; script: Script; kind: string; trace: string[] }[] =
  [
    {
      // Requirement: request-contents, no-calls-ends-run
      name: 'plain',
      script: { turns: [answers('Hi.')] },
      kind: 'completed',
      trace: ['turn 1', 'delta Hi.', 'assistant end', 'cost 1'],
    },
    {
      // Requirement: next-turn, text-end-needs-text, answer-tools-results
      name: 'tools',
      script: { tools: ECHO, turns: [answers('Look.', [echo('a')]), answers('Done.')] },
      kind: 'completed',
      trace: [
        'turn 1',
        'delta Look.',
        'assistant tool_calls a',
        'start a rye/echo',
        'settled a ok',
        'result a ok',
        'cost 1',
        'turn 2',
        'delta Done.',
        'assistant end',
        'cost 2',
      ],
    },
    {
      name: 'parallel batch',
      script: {
        tools: ECHO,
        turns: [answers('', [echo('a'), echo('b'), echo('c')]), answers('Done.')],
      },
      kind: 'completed',
      trace: [
        'turn 1',
        'assistant tool_calls a b c',
        'start a rye/echo',
        'start b rye/echo',
        'start c rye/echo',
        'settled a ok',
        'result a ok',
        'settled b ok',
        'result b ok',
        'settled c ok',
        'result c ok',
        'cost 1',
        'turn 2',
        'delta Done.',
        'assistant end',
        'cost 2',
      ],
    },
    {
      // Requirement: refusal-text
      name: 'blocked',
      script: {
        plan: { capabilities: ['rye.execute.tool.rye.other'] },
        tools: ECHO,
        turns: [answers('', [echo('a')]), answers('Done.')],
      },
      kind: 'completed',
      trace: [
        'turn 1',
        'assistant tool_calls a',
        'settled a blocked',
        'result a blocked',
        'cost 1',
        'turn 2',
        'delta Done.',
        'assistant end',
        'cost 2',
      ],
    },
    {
      // Requirement: substitute-counted
      name: 'substituted',
      script: {
        tools: ECHO,
        turns: [answers('', [echo('a'), echo('b')]), answers('Done.')],
        gate: ({ call_id }) => (call_id === 'a' ? { substitute: textOutput('known') } : {}),
      },
      kind: 'completed',
      trace: [
        'turn 1',
        'assistant tool_calls a b',
        'settled a substituted',
        'result a substituted',
        'start b rye/echo',
        'settled b ok',
        'result b ok',
        'cost 1',
        'turn 2',
        'delta Done.',
        'assistant end',
        'cost 2',
      ],
    },
    {
      // Requirement: injection-is-event
      name: 'steered',
      // a new inbox for each play, because it counts its visits
      get script(): Script {
        return {
          tools: ECHO,
          turns: [answers('', [echo('a')]), answers('Done.'), answers('Better.')],
          ports: { inbox: steers('before_turn 3', 'at_end 1') },
        };
      },
      kind: 'completed',
      trace: [
        'turn 1',
        'assistant tool_calls a',
        'start a rye/echo',
        'settled a ok',
        'result a ok',
        'cost 1',
        'turn 2',
        'delta Done.',
        'assistant end',
        'inject person',
        'cost 2',
        'inject person',
        'turn 3',
        'delta Better.',
        'assistant end',
        'cost 3',
      ],
    },
    {
      // Requirement: request-contents
      name: 'thinking',
      script: {
        turns: [
          [
            { type: 'start', model: 'model-1' },
            { type: 'thinking_delta', text: 'Hm' },
            { type: 'thinking_delta', text: 'm.' },
            { type: 'text_delta', text: 'Yes.' },
            { type: 'finish', reason: 'end', content: [{ type: 'text', text: 'Yes.' }] },
          ],
        ],
      },
      kind: 'completed',
      trace: ['turn 1', 'thought Hm', 'thought m.', 'delta Yes.', 'assistant end', 'cost 1'],
    },
    {
      // Requirement: failed-call-closes-turn
      name: 'failed',
      script: { turns: [fails({ status: 400, message: 'no' })] },
      kind: 'error',
      trace: ['turn 1', 'classified permanent', 'cost 1'],
    },
    {
      // Requirement: unknown-tool-error
      name: 'unknown',
      script: {
        tools: ECHO,
        turns: [answers('', [{ id: 'a', name: 'rye_ecko' }]), answers('Done.')],
      },
      kind: 'completed',
      trace: [
        'turn 1',
        'assistant tool_calls a',
        'settled a unknown',
        'result a unknown',
        'cost 1',
        'turn 2',
        'delta Done.',
        'assistant end',
        'cost 2',
      ],
    },
    {
      // Requirement: invalid-arguments, validation-not-failure
      name: 'invalid',
      script: {
        tools: { rye_echo: toolOf('rye/echo', { schema: { type: 'object', required: ['x'] } }) },
        turns: [answers('', [echo('a'), { ...echo('b'), malformed: '{"x": ' }]), answers('Done.')],
      },
      kind: 'completed',
      trace: [
        'turn 1',
        'assistant tool_calls a b',
        'settled a invalid',
        'result a invalid',
        'settled b invalid',
        'result b invalid',
        'cost 1',
        'turn 2',
        'delta Done.',
        'assistant end',
        'cost 2',
      ],
    },
    {
      name: 'thrown',
      script: {
        tools: {
          rye_echo: toolOf('rye/echo', {
            run: () => {
              throw new Error('boom');
            },
          }),
        },
        turns: [answers('', [echo('a')]), answers('Done.')],
      },
      kind: 'completed',
      trace: [
        'turn 1',
        'assistant tool_calls a',
        'start a rye/echo',
        'settled a error',
        'result a error',
        'cost 1',
        'turn 2',
        'delta Done.',
        'assistant end',
        'cost 2',
      ],
    },
    {
      name: 'retried',
      script: {
        turns: [
          fails(),
          fails({ phase: 'stream', message: 'reset' }, [
            { type: 'start', model: 'model-1' },
            { type: 'text_delta', text: 'Hal' },
          ]),
          answers('Done.'),
        ],
      },
      kind: 'completed',
      trace: [
        'turn 1',
        'classified transient',
        'retry 1 after 1000',
        'delta Hal',
        'assistant aborted',
        'omit e5',
        'classified transient',
        'retry 2 after 1000',
        'delta Done.',
        'assistant end',
        'cost 1',
      ],
    },
  ];
