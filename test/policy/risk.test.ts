import { describe, expect, it } from 'vitest';
import type { Risk } from '../../src/kernel/core/capability.ts';
import {
  assessRisks,
  boundedCapabilities,
  parseRiskTable,
  type RiskTable,
  riskOf,
} from '../../src/kernel/policy/risk.ts';
import { optionAcknowledgement } from '../../src/kernel/threads/prepare/policy.ts';

const AT = { path: 'capability_risk.yaml' };

const TABLE = parseRiskTable(
  {
    risk_levels: {
      safe: 'allow',
      write: 'allow',
      elevated: 'acknowledge_required',
      unrestricted: 'block',
    },
    classifications: [
      { risk: 'unrestricted', patterns: ['rye.*'], description: 'Everything.' },
      {
        risk: 'elevated',
        patterns: ['rye.execute.*', 'rye.execute.tool.rye.bash.*'],
        description: 'Runs programs.',
      },
      { risk: 'write', patterns: ['rye.execute.tool.rye.file-system.*'] },
      {
        risk: 'safe',
        patterns: ['rye.fetch.*', 'rye.sign.*', 'rye.execute.tool.rye.file-system.read'],
      },
    ],
  },
  AT,
);

describe('riskOf', () => {
  it.each<[string, Risk | undefined, Risk]>([
    // the most specific pattern wins
    ['rye.execute.tool.rye.bash', undefined, 'elevated'],
    ['rye.execute.tool.rye.file-system.write', undefined, 'write'],
    ['rye.execute.tool.rye.file-system.read', undefined, 'safe'],
    ['rye.fetch.knowledge.a', undefined, 'safe'],
    ['rye.sign.*', undefined, 'safe'],
    // a broad pattern takes the highest risk that it could reach
    ['rye.*', undefined, 'unrestricted'],
    ['rye.execute.*', undefined, 'elevated'],
    ['rye.execute.tool.rye.*', undefined, 'elevated'],
    ['rye.execute.tool.rye.file-system.*', undefined, 'write'],
    ['rye.execute.tool.rye.file-system.r*', undefined, 'write'],
    ['rye.fetch.*', undefined, 'safe'],
    // lifting a guard is elevated in every table, and makes no pattern that does not name it riskier
    ['rye.execute.tool.rye.file-system.guarded.config', undefined, 'elevated'],
    ['rye.execute.tool.rye.file-system.guarded.*', 'safe', 'elevated'],
    // a declared risk counts if only the type is classified
    ['rye.execute.tool.my.greet', 'safe', 'safe'],
    ['rye.execute.tool.my.greet', 'unrestricted', 'unrestricted'],
    ['rye.execute.tool.my.*', 'safe', 'elevated'],
    ['rye.execute.tool.my.*', 'unrestricted', 'unrestricted'],
    // and can't lower the table's risk of an id
    ['rye.execute.tool.rye.bash', 'safe', 'elevated'],
    ['rye.execute.tool.rye.file-system.read', 'write', 'write'],
  ])('%s declared %s is %s', (capability, declared, expected) => {
    expect(riskOf(capability, TABLE, declared)).toBe(expected);
  });

  it('takes the highest risk of equally specific patterns, in any order', () => {
    for (const order of [
      ['safe', 'elevated'],
      ['elevated', 'safe'],
    ]) {
      const table = parseRiskTable(
        { classifications: order.map((risk) => ({ risk, patterns: ['rye.execute.tool.a'] })) },
        AT,
      );
      expect(riskOf('rye.execute.tool.a', table)).toBe('elevated');
    }
  });

  it('holds what no pattern classifies for elevated', () => {
    const empty = parseRiskTable({ classifications: [] }, AT);
    expect(riskOf('rye.fetch.tool.a', empty)).toBe('elevated');
    expect(riskOf('rye.execute.tool.a', empty, 'safe')).toBe('safe');
  });
});

const assess = (
  capabilities: readonly string[],
  acknowledged: readonly string[] = [],
  toolRisks: ReadonlyMap<string, Risk | undefined> = new Map(),
) =>
  assessRisks({
    capabilities,
    table: TABLE,
    acknowledged: acknowledged.map(optionAcknowledgement),
    toolRisks,
  });
const codes = (...args: Parameters<typeof assess>) =>
  assess(...args).refusals.map(({ code }) => code);

describe('assessRisks', () => {
  it.each<[readonly string[], readonly string[], readonly string[]]>([
    [['rye.fetch.*', 'rye.execute.tool.rye.file-system.*'], [], []],
    [['rye.execute.tool.rye.bash'], [], ['acknowledge_required']],
    [['rye.execute.tool.rye.bash'], ['elevated'], []],
    [['rye.execute.tool.rye.bash'], ['unrestricted'], []],
    [['rye.execute.tool.rye.bash'], ['write'], ['acknowledge_required']],
    [['rye.*'], [], ['risk_blocked']],
    [['rye.*'], ['elevated'], ['risk_blocked']],
    [['rye.*'], ['unrestricted'], []],
    [['rye.*', 'rye.execute.*'], ['elevated'], ['risk_blocked']],
    // an acknowledgement for some tools is one for no others, and for nothing that reaches beyond them
    [['rye.execute.tool.rye.bash'], ['elevated:rye/bash'], []],
    [['rye.execute.tool.rye.bash'], ['elevated:rye/*'], []],
    [['rye.execute.tool.rye.bash'], ['write:rye/bash'], ['acknowledge_required']],
    [
      ['rye.execute.tool.rye.bash'],
      ['elevated:mcp/*', 'elevated:rye/bas'],
      ['acknowledge_required'],
    ],
    [['rye.execute.tool.rye.*'], ['elevated:rye/bash'], ['acknowledge_required']],
    [
      ['rye.execute.tool.rye.bash', 'rye.execute.tool.mcp.files.list', 'rye.execute.skill.tables'],
      ['elevated:rye/bash'],
      ['acknowledge_required', 'acknowledge_required'],
    ],
    [
      ['rye.execute.tool.rye.bash', 'rye.execute.tool.mcp.a.b'],
      ['elevated:rye/bash', 'elevated:mcp/a/*'],
      [],
    ],
  ])('%j acknowledged %j gives %j', (capabilities, acknowledged, expected) => {
    expect(codes(capabilities, acknowledged)).toEqual(expected);
  });

  it('states what is refused, why, and how to accept it', () => {
    const [refusal] = assess(['rye.execute.tool.rye.bash']).refusals;
    expect(refusal?.message).toBe(
      'the capability "rye.execute.tool.rye.bash" is elevated (Runs programs.) and refused unless acknowledged',
    );
    expect(refusal?.hint).toContain('--acknowledge elevated:rye/bash ');
    expect(refusal?.hint).toContain('<acknowledge risk="elevated" tool="rye/bash">');
    expect(refusal?.details).toEqual({ capability: 'rye.execute.tool.rye.bash', risk: 'elevated' });
  });

  it('holds an item or MCP tool without declared traits for elevated', () => {
    const tools = new Map<string, Risk | undefined>([
      ['mcp/files/list', undefined],
      ['my/greet', 'safe'],
    ]);
    expect(codes(['rye.execute.tool.mcp.files.list'], [], tools)).toEqual(['acknowledge_required']);
    expect(codes(['rye.execute.tool.my.greet'], [], tools)).toEqual([]);
    expect(codes(['rye.execute.tool.my.*'], [], tools)).toEqual(['acknowledge_required']);
    expect(assess(['rye.execute.tool.my.greet'], [], tools).risks).toEqual([
      { capability: 'rye.execute.tool.my.greet', risk: 'safe' },
    ]);
  });

  describe('a wildcard over tools of the program', () => {
    const own = { id: 'lab/a', own: true };
    const risks = new Map<string, Risk | undefined>([['lab/a', 'safe']]);
    const judged = (
      capability: string,
      tools: readonly { readonly id: string; readonly own: boolean }[],
      table: RiskTable = TABLE,
    ) =>
      assessRisks({
        capabilities: [capability],
        table,
        acknowledged: [],
        toolRisks: risks,
        bounded: boundedCapabilities([capability], tools),
      }).risks[0]?.risk;

    it('has the highest risk that they declare', () => {
      expect(judged('rye.execute.tool.lab.*', [own])).toBe('safe');
      risks.set('lab/b', 'write');
      expect(judged('rye.execute.tool.lab.*', [own, { id: 'lab/b', own: true }])).toBe('write');
      risks.delete('lab/b');
    });

    it.each([
      [
        'a file of the same namespace',
        'rye.execute.tool.lab.*',
        [own, { id: 'lab/b', own: false }],
      ],
      ['no tool at all', 'rye.execute.tool.lab.*', []],
      ['every namespace', 'rye.execute.tool.*', [own]],
      ['namespaces that only begin alike', 'rye.execute.tool.lab*', [own]],
      ['other item types', 'rye.execute.*', [own]],
      ['parts of rye', 'rye.execute.tool.rye.*', [{ id: 'rye/mine', own: true }]],
      ['servers', 'rye.execute.tool.mcp.*', [{ id: 'mcp/mine', own: true }]],
    ])('stays elevated when it reaches %s', (_, capability, tools) => {
      expect(['elevated', 'unrestricted']).toContain(judged(capability, tools));
    });

    it("is not lower than the table's risk of a part of it", () => {
      const row = {
        risk: 'elevated',
        patterns: ['rye.execute.tool.lab.a'],
        description: '',
      } as const;
      const table = { ...TABLE, classifications: [...TABLE.classifications, row] };
      expect(judged('rye.execute.tool.lab.*', [own], table)).toBe('elevated');
    });
  });

  it('follows levels that a project tightened', () => {
    const table = { ...TABLE, levels: { ...TABLE.levels, write: 'block' as const } };
    const { refusals } = assessRisks({
      capabilities: ['rye.execute.tool.rye.file-system.write'],
      table,
      acknowledged: [],
      toolRisks: new Map(),
    });
    expect(refusals.map(({ code }) => code)).toEqual(['risk_blocked']);
  });
});

it('a refusal quotes the row that decides, not the first that includes the capability', () => {
  const classifications = [
    { risk: 'elevated', patterns: ['rye.execute.*'], description: 'Anything.' },
    { risk: 'elevated', patterns: ['rye.execute.tool.mail.*'], description: 'Sends mail.' },
  ];
  const { refusals } = assessRisks({
    capabilities: ['rye.execute.tool.mail.send'],
    table: parseRiskTable({ classifications }, AT),
    acknowledged: [],
    toolRisks: new Map(),
  });
  expect(refusals[0]?.message).toContain('(Sends mail.)');
});

describe('parseRiskTable', () => {
  it.each<[unknown, RegExp]>([
    [undefined, /not a mapping/],
    [[], /not a mapping/],
    [{}, /classifications is not a list/],
    [{ classifications: ['x'] }, /classifications\[0\] is not a mapping/],
    [
      { classifications: [{ risk: 'high', patterns: ['rye.*'] }] },
      /classifications\[0\]\.risk is "high", not one of safe, write, elevated, unrestricted/,
    ],
    [{ classifications: [{ risk: 'safe', patterns: [] }] }, /patterns is not a list/],
    [{ classifications: [{ risk: 'safe', patterns: ['all'] }] }, /"all" is not a capability/],
    [{ classifications: [], risk_levels: { safe: 'yes' } }, /risk_levels\.safe is "yes"/],
    [{ classifications: [], risk_levels: { sfe: 'allow' } }, /risk_levels has the unknown key sfe/],
    [{ classifications: [], risk_levels: 'allow' }, /risk_levels is not a mapping/],
  ])('refuses %j', (value, message) => {
    expect(() => parseRiskTable(value, AT)).toThrow(message);
    expect(() => parseRiskTable(value, AT)).toThrow(/^capability_risk\.yaml: /);
  });

  it('keeps the shipped levels that a table omits', () => {
    const { levels } = parseRiskTable({ classifications: [], risk_levels: { write: 'block' } }, AT);
    expect(levels).toEqual({
      safe: 'allow',
      write: 'block',
      elevated: 'acknowledge_required',
      unrestricted: 'block',
    });
  });
});
