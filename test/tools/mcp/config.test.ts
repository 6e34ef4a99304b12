import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import { parseServers } from '../../../src/tools/mcp/config.ts';
import { parseServers as parseByHand } from './config-by-hand.ts';

const junk = fc.oneof(
  fc.constantFrom<unknown>(null, undefined, true, false, 0, 1, 86_400, 86_401, -1, '', 'x'),
  fc.jsonValue({ maxDepth: 2 }),
);
const text = fc.constantFrom('a', '${SET}', '${UNSET}', '${UNSET:-b}', 'x-${SET}-${UNSET}', '');
const texts = fc.dictionary(
  fc.constantFrom('A', 'b-c', '1'),
  fc.oneof({ weight: 4, arbitrary: text }, junk),
);
const url = fc.constantFrom(
  'https://a.example/x',
  'http://u:p@a.example',
  'ftp://a',
  'a',
  'HTTP://B',
);

/** Mostly what a member may be, sometimes anything. */
function mostly<T>(arbitrary: fc.Arbitrary<T>): fc.Arbitrary<unknown> {
  return fc.oneof({ weight: 6, arbitrary }, { weight: 1, arbitrary: junk });
}

const members = {
  type: mostly(fc.constantFrom('stdio', 'http', 'streamable-http')),
  command: mostly(fc.constantFrom('node', '')),
  args: mostly(fc.array(fc.string(), { maxLength: 2 })),
  env: mostly(texts),
  url: mostly(url),
  headers: mostly(texts),
  disclosure: mostly(fc.constantFrom('eager', 'lazy')),
  timeout_seconds: mostly(fc.constantFrom(1, 0.5, 86_400)),
  connect_timeout_seconds: mostly(fc.integer({ min: 1, max: 90 })),
  trust_annotations: mostly(fc.boolean()),
  enabled: mostly(fc.boolean()),
};
const optional = { requiredKeys: [] };
const server = fc.record(members, optional);
const misspelled = fc.record({ ...members, comand: fc.constant('a misspelled member') }, optional);
// most servers have no misspelled member, so that their other members count
const entry = fc.oneof(
  { weight: 8, arbitrary: server },
  { weight: 1, arbitrary: misspelled },
  { weight: 1, arbitrary: junk },
);
const name = fc.constantFrom('one', 'two-2', 'bad name', '-', 'x'.repeat(33));

it('the configuration of servers is read, and refused with the same messages and hints, as by hand', () => {
  fc.assert(
    fc.property(
      fc.oneof({ weight: 9, arbitrary: fc.dictionary(name, entry) }, junk),
      fc.oneof(fc.constantFrom(undefined, 'lazy'), junk),
      (servers, disclosure) => {
        const source = { servers, disclosure, origin: 'mcp.yaml', env: { SET: 's' } };
        expect(outcome(parseServers(source))).toEqual(outcome(parseByHand(source)));
      },
    ),
    { numRuns: 300 },
  );
});

function outcome({ servers, problems }: ReturnType<typeof parseServers>) {
  // a list of all members may be in another order
  const words = (hint = '') => hint.split(/[ ,.]+/).toSorted();
  return {
    servers,
    problems: problems.map(({ code, message, hint }) => ({ code, message, hint: words(hint) })),
  };
}
