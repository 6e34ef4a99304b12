import { expect, it } from 'vitest';
import { parseHooks } from '../../src/kernel/hooks/declaration.ts';

it.each([
  ['tool_gate', undefined],
  ['limit', undefined],
  ['after_step', 'ask decides nothing on the event after_step'],
  ['error', 'ask decides nothing on the event error'],
  ['context_limit_reached', 'ask decides nothing on the event context_limit_reached'],
])('a hook may ask a person about a call or a limit: on %s', (event, problem) => {
  const value = { id: 'h', event, action: { control: 'ask', reason: 'Shall it?' } };
  const parse = () => parseHooks([{ value, origin: 'hooks.yaml:1' }], 0);
  if (problem === undefined) expect(parse()).toMatchObject([{ event }]);
  else expect(parse).toThrow(problem);
});
