import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { VERBS } from '../../src/kernel/core/capability.ts';
import { ITEM_TYPES } from '../../src/kernel/core/ids.ts';
import {
  attenuate,
  covers,
  expandsTo,
  includes,
  meet,
  parseCapability,
  specificity,
  uncovered,
} from '../../src/kernel/policy/capability.ts';

const tool = (item_id: string) => ({ verb: 'execute', item_type: 'tool', item_id }) as const;

describe('parseCapability', () => {
  it.each([
    ['rye.*', 'rye.*'],
    [' rye.execute.* ', 'rye.execute.*'],
    ['rye.fetch.knowledge', 'rye.fetch.knowledge'],
    ['rye.fetch.knowledge.a/b/*', 'rye.fetch.knowledge.a.b.*'],
    ['rye.execute.tool.a.**', 'rye.execute.tool.a.*'],
    ['rye.execute.tool.a.*.*', 'rye.execute.tool.a.*'],
    ['rye.execute.tool.a*.*', 'rye.execute.tool.a*'],
    ['rye.sign.directive.x_y-z', 'rye.sign.directive.x_y-z'],
  ])('%s is %s', (text, expected) => {
    expect(parseCapability(text)).toBe(expected);
  });

  it.each([
    ['', 'permission_malformed'],
    ['*', 'permission_malformed'],
    ['lye.execute.tool.a', 'permission_malformed'],
    ['rye', 'permission_malformed'],
    ['rye.exec.tool.a', 'permission_malformed'],
    ['rye.execute.tols.a', 'permission_malformed'],
    ['rye.execute.tool.a..b', 'pattern_invalid'],
    ['rye.execute.tool.', 'pattern_invalid'],
    ['rye.execute.tool.a?', 'pattern_invalid'],
    ['rye.execute.tool.[ab]', 'pattern_invalid'],
    [`rye.execute.tool.${'a'.repeat(300)}`, 'pattern_invalid'],
    [`rye.execute.tool.${'*a'.repeat(17)}`, 'pattern_invalid'],
  ])('refuses %j as %s', (text, code) => {
    expect(() => parseCapability(text)).toThrow(expect.objectContaining({ code }));
  });

  it('names the file, the line and the nearest word', () => {
    expect(() => parseCapability('rye.exectue.tool.a', { path: 'd.md', line: 7 })).toThrow(
      expect.objectContaining({
        message: expect.stringMatching(/^d\.md:7: "rye\.exectue\.tool\.a" is not a capability/),
        hint: 'Did you mean execute?',
      }),
    );
  });
});

describe('covers', () => {
  it.each([
    ['rye.*', 'rye/bash', true],
    ['rye.execute.*', 'rye/bash', true],
    ['rye.execute.tool.*', 'rye/bash', true],
    ['rye.execute.tool.rye.*', 'rye/bash', true],
    ['rye.execute.tool.rye.bash', 'rye/bash', true],
    // Requirement: pattern-misses-tool
    ['rye.execute.tool.rye.bash.*', 'rye/bash', true],
    ['rye.execute.tool.rye/bash/*', 'rye/bash', true],
    ['rye.execute.tool.rye.bash.*', 'rye/bash/deep/er', true],
    ['rye.execute.tool.rye.bash.*', 'rye/bashful', false],
    ['rye.execute.tool.rye.bash*', 'rye/bashful', true],
    ['rye.execute.tool.*.read', 'a/b/read', true],
    ['rye.execute.tool.*.read', 'read', false],
    ['rye.execute.tool', 'rye/bash', false],
    ['rye.fetch.*', 'rye/bash', false],
    ['rye.execute.directive.*', 'rye/bash', false],
    ['rye.execute.tool.RYE.bash', 'rye/bash', false],
    ['rye.execute.tool.rye.mcp.*', 'rye/bash', false],
    ['not a capability *', 'rye/bash', false],
    ['*', 'rye/bash', false],
  ])('%s on tool %s: %s', (grant, id, expected) => {
    expect(covers([grant], tool(id))).toBe(expected);
  });

  it('allows nothing when nothing is held', () => {
    expect(covers([], tool('rye/bash'))).toBe(false);
  });

  it.each([
    ['rye.*', true],
    ['rye.fetch.*', true],
    ['rye.fetch.knowledge', true],
    ['rye.fetch.knowledge.*', true],
    ['rye.fetch.knowledge.a.b', true],
    ['rye.fetch.tool.*', false],
    ['rye.execute.knowledge.*', false],
    ['rye.sign.*', false],
    // Requirement: fetch-misses-query
  ])('%s allows querying knowledge: %s', (grant, expected) => {
    expect(covers([grant], { verb: 'fetch', item_type: 'knowledge' })).toBe(expected);
  });

  it('does not let execute and sign imply anything else', () => {
    for (const grant of ['rye.execute.tool.a', 'rye.sign.tool.a']) {
      expect(covers([grant], { verb: 'fetch', item_type: 'tool', item_id: 'a' })).toBe(false);
      expect(covers([grant], { verb: 'fetch', item_type: 'tool' })).toBe(false);
    }
    expect(covers(['rye.execute.tool.a'], { verb: 'execute', item_type: 'tool' })).toBe(false);
  });

  it('filters query results to what is granted', () => {
    const ids = ['a/x', 'a/y', 'b/x', 'a'];
    expect(expandsTo(['rye.fetch.knowledge.a.*', 'bad'], 'fetch', 'knowledge', ids)).toEqual([
      'a/x',
      'a/y',
      'a',
    ]);
    expect(expandsTo(['rye.fetch.knowledge'], 'fetch', 'knowledge', ids)).toEqual([]);
  });
});

const SEGMENTS = ['a', 'b', 'ab'];
const IDS = SEGMENTS.flatMap((x) => [
  x,
  ...SEGMENTS.flatMap((y) => [`${x}/${y}`, ...SEGMENTS.map((z) => `${x}/${y}/${z}`)]),
]);
const UNIVERSE = ITEM_TYPES.slice(0, 2).flatMap((item_type) =>
  VERBS.slice(0, 2).flatMap((verb) => IDS.map((item_id) => ({ verb, item_type, item_id }))),
);

const idPattern = fc
  .string({ unit: fc.constantFrom('a', 'b', '.', '*', '*', '.'), minLength: 1, maxLength: 6 })
  .map((text) => text.replaceAll(/\.{2,}/g, '.').replaceAll(/^\.|\.$/g, ''));
const capability = fc
  .oneof(
    {
      weight: 1,
      arbitrary: fc.constantFrom('rye.*', 'rye.execute.*', 'rye.fetch.*', 'rye.fetch.tool'),
    },
    {
      weight: 9,
      arbitrary: fc
        .tuple(fc.constantFrom('execute', 'fetch'), fc.constantFrom('directive', 'tool'), idPattern)
        .map(([verb, type, id]) =>
          id === '' ? `rye.${verb}.${type}.*` : `rye.${verb}.${type}.${id}`,
        ),
    },
  )
  .map((text) => parseCapability(text));
const grants = fc.array(capability, { maxLength: 4 });

const named = (need: (typeof UNIVERSE)[number]): string =>
  `${need.verb} ${need.item_type} ${need.item_id}`;

/** The meaning of grants, written as naively as possible. */
function model(held: readonly string[]): string[] {
  const forms = held
    .flatMap((grant) => (grant.endsWith('.*') ? [grant, grant.slice(0, -2)] : [grant]))
    .map((form) => new RegExp(`^${form.replaceAll('.', '\\.').replaceAll('*', '.*')}$`));
  return UNIVERSE.filter(({ verb, item_type, item_id }) => {
    const wanted = `rye.${verb}.${item_type}.${item_id.replaceAll('/', '.')}`;
    return forms.some((form) => form.test(wanted));
  }).map(named);
}

const meaning = (held: readonly string[]): string[] =>
  UNIVERSE.filter((need) => covers(held, need)).map(named);

const runs = { numRuns: 200, seed: 3 };

describe('the meet of capabilities', () => {
  it.each([
    ['rye.execute.*', 'rye.execute.tool.a', ['rye.execute.tool.a']],
    ['rye.execute.tool.*', 'rye.fetch.*', []],
    [
      'rye.execute.tool.a.*',
      'rye.execute.tool.*.b',
      ['rye.execute.tool.a.*.b', 'rye.execute.tool.a.b'],
    ],
    ['rye.execute.tool.a*', 'rye.execute.tool.*b', ['rye.execute.tool.a*b']],
    ['rye.execute.tool.a.*', 'rye.execute.tool.a', ['rye.execute.tool.a']],
    ['rye.execute.tool.a.*', 'rye.execute.tool.a.*', ['rye.execute.tool.a.*']],
  ])('%s and %s give %j', (left, right, expected) => {
    expect(meet(left, right)).toEqual(expected);
  });

  it('grants exactly what both grant, as legal capabilities', () => {
    fc.assert(
      fc.property(capability, capability, (left, right) => {
        const both = meet(left, right);
        for (const found of both) expect(parseCapability(found)).toBe(found);
        const rights = model([right]);
        const expected = model([left]).filter((need) => rights.includes(need));
        expect(meaning(both)).toEqual(expected);
        expect(meaning(both)).toEqual(model(both));
      }),
      runs,
    );
  });

  it('has no overlap that another one includes', () => {
    fc.assert(
      fc.property(capability, capability, (left, right) => {
        const both = meet(left, right);
        for (const one of both) {
          expect(both.filter((other) => includes(other, one))).toEqual([one]);
        }
      }),
      runs,
    );
  });

  it('is idempotent, commutative and associative', () => {
    fc.assert(
      fc.property(capability, capability, capability, (a, b, c) => {
        expect(meet(a, a)).toEqual([a]);
        expect(meaning(meet(a, b))).toEqual(meaning(meet(b, a)));
        const leftFirst = attenuate(attenuate([a], [b]), [c]);
        const rightFirst = attenuate([a], attenuate([b], [c]));
        expect(meaning(leftFirst)).toEqual(meaning(rightFirst));
      }),
      runs,
    );
  });
});

describe('attenuate', () => {
  // Requirement: child-tools, only-first-overlap
  it('keeps every overlap with the parent, not only the first', () => {
    expect(
      attenuate(
        ['rye.execute.tool.*'],
        ['rye.execute.tool.a', 'rye.fetch.*', 'rye.execute.tool.b.*'],
      ),
    ).toEqual(['rye.execute.tool.a', 'rye.execute.tool.b.*']);
  });

  // Requirement: child-tools, empty-parent-unrestricted
  it('gives a child nothing when its parent has nothing', () => {
    expect(attenuate(['rye.*'], [])).toEqual([]);
    expect(attenuate([], ['rye.*'])).toEqual([]);
    expect(attenuate(['rye.*'], ['everything'])).toEqual([]);
    expect(attenuate(['everything'], ['rye.*'])).toEqual([]);
  });

  it('is exactly the intersection, and monotone in both', () => {
    fc.assert(
      fc.property(grants, grants, capability, (child, parent, more) => {
        const held = meaning(attenuate(child, parent));
        const parents = meaning(parent);
        expect(held).toEqual(meaning(child).filter((need) => parents.includes(need)));
        expect(meaning(attenuate([...child, more], parent))).toEqual(expect.arrayContaining(held));
        expect(meaning(attenuate(child, [...parent, more]))).toEqual(expect.arrayContaining(held));
      }),
      runs,
    );
  });
});

describe('uncovered', () => {
  it('names the grants outside a ceiling', () => {
    const ceiling = ['rye.execute.tool.a.*', 'rye.fetch.*'];
    expect(
      uncovered(
        ['rye.execute.tool.a', 'rye.execute.tool.a*', 'rye.fetch.tool.x', 'rye.*'],
        ceiling,
      ),
    ).toEqual(['rye.execute.tool.a*', 'rye.*']);
    expect(uncovered(['rye.execute.tool.a'], [])).toEqual(['rye.execute.tool.a']);
    expect(uncovered(['nonsense'], ['rye.*'])).toEqual(['nonsense']);
  });

  it('passes only what the ceiling grants', () => {
    fc.assert(
      fc.property(grants, grants, (held, ceiling) => {
        const inside = held.filter((grant) => !uncovered(held, ceiling).includes(grant));
        expect(meaning(ceiling)).toEqual(expect.arrayContaining(meaning(inside)));
        expect(uncovered(attenuate(held, ceiling), ceiling)).toEqual([]);
      }),
      runs,
    );
  });
});

describe('specificity', () => {
  it('agrees with inclusion', () => {
    fc.assert(
      fc.property(capability, capability, (wide, narrow) => {
        fc.pre(includes(wide, narrow));
        expect(specificity(wide)).toBeLessThanOrEqual(specificity(narrow));
      }),
      { numRuns: 200, seed: 4 },
    );
  });

  it('ranks by what is literal', () => {
    const ranked = [
      'rye.*',
      'rye.execute.*',
      'rye.execute.tool.*',
      'rye.execute.tool.rye.*',
      'rye.execute.tool.rye.bash.*',
      'rye.execute.tool.rye.bash',
    ];
    const sorted = ranked.toReversed().toSorted((a, b) => specificity(a) - specificity(b));
    expect(sorted).toEqual(ranked);
  });
});

describe('grants that lift a guard', () => {
  const GUARD = 'rye.execute.tool.rye.file-system.guarded';
  const need = tool('rye/file-system/guarded/config');

  it.each([
    'rye.*',
    'rye.execute.*',
    'rye.execute.tool.*',
    'rye.execute.tool.rye.*',
    'rye.execute.tool.rye.file-system.*',
    'rye.execute.tool.rye.file-system.g*',
    'rye.execute.tool.rye.file-system.guard*',
    'rye.*.config',
    // Requirement: guard-beats-wildcard
  ])('are not reached by %s', (grant) => {
    expect(covers([grant], need)).toBe(false);
    expect(includes(grant, `${GUARD}.config`)).toBe(false);
    expect(meet(grant, `${GUARD}.config`)).toEqual([]);
    expect(attenuate([`${GUARD}.*`], [grant])).toEqual([]);
    expect(uncovered([`${GUARD}.config`], [grant])).toEqual([`${GUARD}.config`]);
  });

  it.each([`${GUARD}.config`, `${GUARD}.*`, `${GUARD}.c*`, `${GUARD}*`])(
    'are named by %s',
    (grant) => {
      expect(covers([grant], need)).toBe(true);
      expect(attenuate([`${GUARD}.config`], [grant])).toEqual([`${GUARD}.config`]);
      expect(covers([grant], tool('rye/file-system/write'))).toBe(false);
    },
  );
});
