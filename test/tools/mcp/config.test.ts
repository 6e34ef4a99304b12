import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import { parseServers } from '../../../src/features/mcp/config.ts';
import { runs } from '../../helpers/runs.ts';
import { parseServers as parseByHand } from '../../schemas/by-hand/mcp.ts';
import { mutated } from '../../schemas/old-and-new.ts';

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

it('the same servers are accepted and refused as by hand', () => {
  fc.assert(
    fc.property(
      fc.oneof({ weight: 9, arbitrary: fc.dictionary(name, entry) }, junk),
      fc.oneof(fc.constantFrom(undefined, 'lazy'), junk),
      (servers, disclosure) => {
        const source = { servers, disclosure, origin: 'mcp.yaml', env: { SET: 's' } };
        // of several mistakes in one server, another may be reported
        expect(outcome(parseServers(source), 2)).toEqual(outcome(parseByHand(source), 2));
      },
    ),
    runs(300),
  );
});

const settings = {
  disclosure: 'lazy',
  timeout_seconds: 1,
  connect_timeout_seconds: 0.5,
  trust_annotations: true,
  enabled: true,
};
const documents = [
  { a: { command: 'node', args: ['-e', ''], env: { A: '${SET}', B: '${UNSET:-b}' }, ...settings } },
  {
    b: { url: 'https://a.example/x', headers: { C: 'x-${SET}' }, ...settings },
    c: { url: 'HTTP://B' },
  },
  { d: { command: 'x', type: 'stdio' }, e: { url: 'http://u', type: 'streamable-http' } },
];

const mistaken = {
  f: { command: 'x', env: { A: '${UNSET}' } },
  g: { url: 'http://u:p@a.example' },
  h: { url: 'ftp://a' },
  'bad name': { command: 'x' },
};

it('a mistake is reported with the same message and hint as by hand', () => {
  fc.assert(
    fc.property(
      fc.oneof({ weight: 9, arbitrary: mutated(documents) }, fc.constant(mistaken)),
      (servers) => {
        const source = { servers, disclosure: undefined, origin: 'mcp.yaml', env: { SET: 's' } };
        expect(outcome(parseServers(source))).toEqual(outcome(parseByHand(source)));
      },
    ),
    runs(500),
  );
});

function outcome({ servers, problems }: ReturnType<typeof parseServers>, words?: number) {
  // a list of all members may be in another order
  const sorted = (hint = '') => hint.split(/[ ,.]+/).toSorted();
  return {
    servers,
    problems: problems.map(({ code, message, hint }) =>
      words === undefined
        ? { code, message, hint: sorted(hint) }
        : { code, message: message.split(': ').slice(0, words) },
    ),
  };
}
