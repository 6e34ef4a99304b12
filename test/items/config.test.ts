import { readFileSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import * as fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { JsonValue } from '../../src/kernel/core/json.ts';
import {
  type ConfigOverride,
  configNodeOf,
  flattenConfig,
  isPowerFile,
  mergeConfig,
  overridePath,
} from '../../src/kernel/items/config.ts';
import { type Config, loadTrustPolicy, openConfig } from '../../src/kernel/items/config-fs.ts';
import { parseRiskTable } from '../../src/kernel/policy/risk.ts';
import { STRICT_POLICY, type TrustPolicy } from '../../src/kernel/trust/policy.ts';
import { makeSpaces, type SpaceFixture } from './space-fixture.ts';

let at: SpaceFixture;
let notices: string[];
const code = (value: string) => expect.objectContaining({ code: value });

const open = (
  options: { overrides?: readonly ConfigOverride[]; policy?: TrustPolicy } = {},
): Config =>
  openConfig({
    ...at.context(),
    policy: STRICT_POLICY,
    onNotice: (notice) => notices.push(notice),
    ...options,
  });
const policy = () =>
  loadTrustPolicy({ ...at.context(), onNotice: (notice) => notices.push(notice) });

const merge = (...layers: readonly JsonValue[]): JsonValue =>
  flattenConfig(layers.map((layer) => configNodeOf(layer, 'x')).reduce(mergeConfig)).value;
const loadOverridden = (value: string) => open({ overrides: [{ key: 'a.b.c', value }] }).load('a');

beforeEach(async () => {
  at = makeSpaces();
  notices = [];
  await at.keyring.init();
});
afterEach(() => at.remove());

describe('merging', () => {
  test.each([
    ['maps by member', { a: { x: 1, y: 2 } }, { a: { y: 3, z: 4 } }, { a: { x: 1, y: 3, z: 4 } }],
    ['lists by replacing them', { a: [1, 2] }, { a: [3] }, { a: [3] }],
    ['a list by an empty one', { a: [1] }, { a: [] }, { a: [] }],
    ['a map by a scalar', { a: { x: 1 } }, { a: 2 }, { a: 2 }],
    ['a scalar by a map', { a: 2 }, { a: { x: 1 } }, { a: { x: 1 } }],
    ['null over a value', { a: { x: 1 } }, { a: null }, { a: null }],
    [
      'lists of elements with an id by it',
      {
        h: [
          { id: 'a', x: 1, y: 1 },
          { id: 'b', x: 1 },
        ],
      },
      { h: [{ id: 'b', x: 2 }, { id: 'c' }, { id: 'a', x: 3 }] },
      { h: [{ id: 'a', x: 3 }, { id: 'b', x: 2 }, { id: 'c' }] },
    ],
  ])('joins %s', (_, lower, upper, expected) => {
    expect(merge(lower, upper)).toEqual(expected);
  });

  test('with nothing, or with itself, changes nothing', () => {
    const json = fc.dictionary(
      fc.string({ minLength: 1 }).filter((name) => name !== '__proto__'),
      fc.jsonValue(),
    );
    fc.assert(
      fc.property(json, (value) => {
        const plain = JSON.parse(JSON.stringify(value)) as JsonValue;
        expect(merge({}, plain)).toEqual(plain);
        expect(merge(plain, plain)).toEqual(plain);
      }),
      { seed: 6, numRuns: 100 },
    );
  });
});

describe('layers', () => {
  test('go from system over user to project to the command line, each leaf with its origin', async () => {
    const system = at.write(
      'system',
      'config/agent/tiers.yaml',
      '# defaults\nenabled: true\nlimits:\n  a: 1\n  b: 1\n  c: 1\nlist: []\n',
    );
    const user = at.write('user', 'config/agent/tiers.yaml', 'limits:\n  b: 2\n');
    const project = at.writeSigned('project', 'config/agent/tiers.yaml', 'limits: {c: 3}\n');
    at.write('user', 'config/other.yaml', 'y: 1\n');
    const config = open({
      overrides: [
        { key: 'tiers.limits.d', value: '4' },
        { key: 'other.x', value: '5' },
      ],
    });
    const { value, origins } = await config.load('agent/tiers');
    expect(value).toEqual({ enabled: true, limits: { a: 1, b: 2, c: 3, d: 4 }, list: [] });
    expect(Object.fromEntries(origins)).toEqual({
      enabled: `${system}:2`,
      'limits.a': `${system}:4`,
      'limits.b': `${user}:2`,
      'limits.c': `${project}:2`,
      'limits.d': '-c tiers.limits.d',
      list: `${system}:7`,
    });
    expect(notices).toEqual([]);
    expect((await config.loadFrom('agent/tiers', 'user')).value).toEqual({ limits: { b: 2 } });
    expect(config.names('agent/')).toEqual(['agent/tiers']);
  });

  test('that are missing or empty are nothing', async () => {
    at.write('user', 'config/a.yaml', '# nothing yet\n');
    expect(await open().load('a')).toEqual({ value: {}, origins: new Map() });
    expect(await open().load('b')).toEqual({ value: {}, origins: new Map() });
  });

  test.each([
    ['a: [1,\nb: 2\n', /a\.yaml:\d+:\d+: /],
    ['a: 1\na: 2\n', /a\.yaml:2:1: Map keys must be unique/],
    ['- 1\n', /a\.yaml:1:1: a configuration file must be a mapping/],
    ['a: 1\nb: .inf\n', /a\.yaml:2:4: unsupported value/],
    ['a: 1\n__proto__: {x: 1}\n', /a\.yaml:2:1: a key must be a scalar name/],
    ['a: !!js/function "x"\n', /a\.yaml:1:4: /],
    ['a: *nope\n', /a\.yaml:1:4: /],
    ['a: &a [*a]\n', /a\.yaml:1/],
  ])('refuse the YAML %j with its place', async (text, message) => {
    at.write('user', 'config/a.yaml', text);
    await expect(open().load('a')).rejects.toThrow(code('config_invalid'));
    await expect(open().load('a')).rejects.toThrow(message);
  });

  test('refuse nesting deeper than the stack', async () => {
    at.write('user', 'config/a.yaml', `a: ${'['.repeat(20_000)}\n`);
    await expect(open().load('a')).rejects.toThrow(code('config_invalid'));
  });

  test('refuse an alias bomb', async () => {
    const lines = ['a0: &a0 [x, x, x, x, x, x, x, x, x, x]'];
    for (let level = 1; level < 9; level += 1) {
      const alias = `*a${level - 1}`;
      lines.push(`a${level}: &a${level} [${Array.from({ length: 10 }, () => alias).join(', ')}]`);
    }
    at.write('user', 'config/a.yaml', lines.join('\n'));
    await expect(open().load('a')).rejects.toThrow(/aliases that multiply/);
  });

  test('expand plain aliases', async () => {
    at.write('user', 'config/a.yaml', 'base: &b {x: 1}\nuse: *b\n');
    expect((await open().load('a')).value).toEqual({ base: { x: 1 }, use: { x: 1 } });
  });

  test('of the command line are YAML, and a bad one is refused', async () => {
    at.write('user', 'config/a.yaml', 'b: {c: 0}\n');
    expect((await loadOverridden('[1, two]')).value).toEqual({ b: { c: [1, 'two'] } });
    expect((await loadOverridden('true')).value).toEqual({ b: { c: true } });
    await expect(loadOverridden('[1')).rejects.toThrow(code('config_invalid'));
  });

  test.each([
    ['agent/resilience', 'agent.resilience.limits.turns', ['limits', 'turns']],
    ['agent/resilience', 'resilience.limits.turns', ['limits', 'turns']],
    ['trust', 'trust.execute', ['execute']],
    ['trust', 'trusty.execute', undefined],
    ['trust', 'trust.', undefined],
    ['trust', 'trust', undefined],
  ])('of the command line for %s: %s', (name, key, expected) => {
    expect(overridePath(name, key)).toEqual(expected);
  });
});

// Requirement: setting-wrong-level
describe('what guards', () => {
  const RESILIENCE = 'config/agent/resilience.yaml';
  const RISK = 'config/agent/capability_risk.yaml';
  const limitsOf = async (options: Parameters<typeof open>[0] = {}) =>
    (await open(options).load('agent/resilience')).value['limits'];

  test.each([
    ['limits:\n', { turns: 3, ceiling: { turns: 4 } }],
    ['limits:\n  ceiling:\n', { turns: 3, ceiling: { turns: 4 } }],
    ['limits: {}\n', { turns: 3, ceiling: { turns: 4 } }],
    ['limits: {turns: null, ceiling: {turns: null}}\n', { turns: 3, ceiling: { turns: 4 } }],
    ['limits: {max_turns: 2, ceiling: {max_turns: 9}}\n', { turns: 2, ceiling: { turns: 4 } }],
    [
      'limits: {ceiling: {max_turns: 2, spend: 1}}\n',
      { turns: 3, ceiling: { turns: 2, spend: 1 } },
    ],
  ])('the signed limits %j of a project lift none of the user', async (text, expected) => {
    at.write('system', RESILIENCE, 'limits: {turns: 25}\n');
    at.writeSigned('user', RESILIENCE, 'limits: {turns: 3, ceiling: {turns: 4}}\n');
    at.writeSigned('project', RESILIENCE, text);
    expect(await limitsOf()).toEqual(expected);
  });

  test.each(['', 'null', '~', '[]', '5'])('-c cannot replace all limits by %j', async (value) => {
    at.write('system', RESILIENCE, 'limits: {max_turns: 25}\n');
    const overrides = [{ key: 'resilience.limits', value }];
    await expect(limitsOf({ overrides })).rejects.toThrow(code('usage'));
    const higher = [{ key: 'resilience.limits.turns', value: '500' }];
    await expect(limitsOf({ overrides: higher })).rejects.toThrow(code('raise_limits_required'));
  });

  test.each([
    ['classifications: [{risk: safe, patterns: [rye.execute.tool.lint]}]', 'unrestricted'],
    ['classifications: []', 'unrestricted'],
    ['classifications:', 'unrestricted'],
    ["classifications: [{risk: safe, patterns: ['rye.*']}]", 'safe'],
  ])('the risk table %j adds to the shipped rows by pattern', async (text, all) => {
    const rows = 'classifications: [{risk: unrestricted, patterns: [rye.*, rye.sign.*]}]\n';
    at.write('system', RISK, rows);
    at.writeSigned('project', RISK, `${text}\n`);
    const { value } = await open().load('agent/capability_risk');
    const table = parseRiskTable(value, { path: 'x' });
    const rowOf = (pattern: string) =>
      table.classifications.filter(({ patterns }) => patterns.includes(pattern));
    expect(rowOf('rye.*').map(({ risk }) => risk)).toEqual([all]);
    expect(rowOf('rye.sign.*').map(({ risk }) => risk)).toEqual(['unrestricted']);
  });

  test.each([
    'trust.execute',
    'hooks.hooks',
    'approvals.rules',
    'agent.approvals.rules',
    'schedules.x',
  ])('-c %s is refused, not ignored', (key) => {
    expect(() => open({ overrides: [{ key, value: '[]' }] })).toThrow(code('usage'));
  });

  test('-c with the whole name of a file means that file, also beside agent/agent', async () => {
    at.write('system', 'config/agent/agent.yaml', 'provider: a\n');
    at.write('system', RESILIENCE, 'limits: {turns: 25}\n');
    const overrides = [
      { key: 'agent.resilience.limits.turns', value: '3' },
      { key: 'agent.provider', value: 'b' },
    ];
    expect(await limitsOf({ overrides })).toEqual({ turns: 3 });
    expect((await open({ overrides }).load('agent/agent')).value).toEqual({ provider: 'b' });
  });
});

describe('a setting that rye does not have', () => {
  beforeEach(() => {
    at.write(
      'system',
      'config/agent/resilience.yaml',
      'limits: {spend: 5}\ntools: {parallel: 4}\n',
    );
  });

  test.each([
    // Requirement: silent-settings
    ['at the top', 'limts: {spend: 1}', ':2: unknown setting limts'],
    ['further down', 'tools: {paralel: 1}', ':2: unknown setting tools.paralel'],
  ])('is refused with its line: %s', async (_, text, message) => {
    const file = at.write('user', 'config/agent/resilience.yaml', `# mine\n${text}\n`);
    await expect(open().load('agent/resilience')).rejects.toThrow(`${file}${message}`);
    await expect(open().load('agent/resilience')).rejects.toThrow(code('config_invalid'));
  });

  test('is refused on the command line, with the nearest name', async () => {
    const config = open({ overrides: [{ key: 'resilience.tools.paralel', value: '1' }] });
    await expect(config.load('agent/resilience')).rejects.toThrow(
      expect.objectContaining({ code: 'config_invalid', hint: 'Did you mean parallel?' }),
    );
    expect(() => open({ overrides: [{ key: 'resilence.limits.spend', value: '1' }] })).toThrow(
      expect.objectContaining({ code: 'usage', hint: 'Did you mean resilience?' }),
    );
  });

  test('passes where names are free, and limits are judged where they are read', async () => {
    at.write('user', 'config/agent/resilience.yaml', 'limits: {max_turns: 1}\n');
    at.write('user', 'config/agent/providers/mine.yaml', 'anything: 1\n');
    expect((await open().load('agent/resilience')).value).toMatchObject({
      limits: { spend: 5, turns: 1 },
    });
    expect((await open().load('agent/providers/mine')).value).toEqual({ anything: 1 });
  });
});

describe("a project's files", () => {
  test('lower limits, also without a signature, and raise none', async () => {
    at.write('system', 'config/agent/resilience.yaml', 'limits: {spend: 5, turns: 25, tokens: 9}');
    const text = 'limits: {spend: "1.00", turns: 99, max_tokens: 7.5}\ntools: {parallel: 9}\n';
    const file = at.write('project', 'config/agent/resilience.yaml', text);
    const { value, origins } = await open().load('agent/resilience');
    expect(value).toEqual({ limits: { spend: 1, turns: 25, tokens: 7 } });
    expect(origins.get('limits.spend')).toBe(`${file}:1`);
    at.write('project', 'config/agent/resilience.yaml', 'limits: {spend: [');
    expect((await open().load('agent/resilience')).value).toMatchObject({ limits: { spend: 5 } });
  });

  test('that bear power count only when a trusted key signed them', async () => {
    at.write('user', 'config/agent/hooks.yaml', 'hooks: [{id: mine}]\n');
    at.write('project', 'config/agent/hooks.yaml', 'hooks: [{id: evil}]\n');
    expect((await open().load('agent/hooks')).value).toEqual({ hooks: [{ id: 'mine' }] });
    expect(notices).toEqual([
      expect.stringMatching(/^ignored: .*hooks\.yaml: .*not signed.*rye sign config agent\/hooks$/),
    ]);
    at.writeSigned('project', 'config/agent/hooks.yaml', 'hooks: [{id: good}]\n');
    expect((await open().load('agent/hooks')).value).toEqual({
      hooks: [{ id: 'mine' }, { id: 'good' }],
    });
  });

  test('that bear power are told about once, however often they are read', async () => {
    at.write('project', 'config/mcp.yaml', 'servers: {}\n');
    const config = open();
    await config.load('mcp');
    await config.load('mcp');
    await config.loadFrom('mcp', 'project');
    expect(notices).toHaveLength(1);
  });

  test('that bear power and were edited after signing are ignored as well', async () => {
    at.writeSigned('project', 'config/agent/providers/x.yaml', 'base_url: https://a\n');
    const path = at.writeSigned(
      'project',
      'config/agent/providers/x.yaml',
      'base_url: https://a\n',
    );
    at.write(
      'project',
      'config/agent/providers/x.yaml',
      readFileSync(path, 'utf8').replace('//a', '//evil'),
    );
    expect((await open().load('agent/providers/x')).value).toEqual({});
    expect(notices).toEqual([expect.stringContaining('content_modified')]);
  });

  test('of other kinds count with a warning, or as the policy decides', async () => {
    at.write('system', 'config/agent/agent.yaml', 'enabled: true\n');
    at.write('project', 'config/agent/agent.yaml', 'enabled: false\n');
    expect((await open().load('agent/agent')).value).toEqual({ enabled: false });
    expect(notices).toEqual([expect.stringContaining('[unsigned]')]);
    const strict = {
      ...STRICT_POLICY,
      config: { project: 'required', user: 'required', system: 'required' },
    } as const;
    await expect(open({ policy: strict }).load('agent/agent')).rejects.toThrow(code('unsigned'));
  });

  test.each([
    ['agent/providers/anthropic', true],
    ['agent/hooks', true],
    ['agent/hook_conditions', true],
    ['mcp', true],
    ['agent/capability_risk', true],
    ['agent/resilience', true],
    ['interpolation', true],
    ['trust', true],
    ['agent/rules', true],
    ['agent/agent', false],
  ])('bear power: %s %s', (name, expected) => {
    expect(isPowerFile(name)).toBe(expected);
  });

  test('in the system space are checked by the manifest', async () => {
    at.write('system', 'config/a.yaml', 'x: 1\n');
    const context = at.context();
    at.write('system', 'config/a.yaml', 'x: 2\n');
    const config = openConfig({ ...context, policy: STRICT_POLICY, onNotice: () => {} });
    await expect(config.load('a')).rejects.toThrow(code('system_item_modified'));
  });
});

describe('the trust policy', () => {
  test('is the strict one without a file', async () => {
    expect(await policy()).toEqual(STRICT_POLICY);
  });

  test('of the user may loosen unsigned; of the project only when signed', async () => {
    at.write('user', 'config/trust.yaml', 'fetch: off\n');
    at.write('project', 'config/trust.yaml', 'execute: off\ncontext: warn\nconfig: required\n');
    const unsigned = await policy();
    expect(unsigned.fetch.project).toBe('off');
    expect(unsigned.execute.project).toBe('required');
    expect(unsigned.config.project).toBe('required');
    expect(notices).toEqual([
      expect.stringMatching(/cannot loosen execute\.project.*unsigned.*rye sign config trust/),
    ]);
    at.writeSigned('project', 'config/trust.yaml', 'execute: warn\n');
    expect((await policy()).execute.project).toBe('warn');
  });

  test('that cannot be read is strict, and keeps what was stricter', async () => {
    at.write('user', 'config/trust.yaml', 'fetch: required\nconfig: off\n');
    at.writeSigned('project', 'config/trust.yaml', 'execute: sometimes\n');
    const strict = await policy();
    expect(strict.execute.project).toBe('required');
    expect(strict.fetch.project).toBe('required');
    expect(strict.config.project).toBe('warn');
    expect(notices).toEqual([
      expect.stringMatching(
        /^using the strict trust policy: .*trust\.yaml: trust\.execute is "sometimes"/,
      ),
    ]);
  });

  test('whose file is a link out of the space is strict', async () => {
    at.write('user', 'config/x.yaml', '');
    symlinkSync('/dev/null', join(at.userSpacePath, '.ai/config/trust.yaml'));
    expect(await policy()).toEqual(STRICT_POLICY);
    expect(notices).toHaveLength(1);
  });
});
