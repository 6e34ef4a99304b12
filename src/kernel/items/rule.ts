import { basename } from 'node:path';
import { RyeError, type SourceLocation } from '../core/errors.ts';
import { compact, isJsonObject, type JsonObject } from '../core/json.ts';
import {
  INTERRUPT_MODES,
  type InterruptMode,
  REPEAT_MODES,
  type RepeatMode,
  RULE_ENGINES,
  type RuleEngine,
} from '../core/plan.ts';
import { didYouMean } from '../core/text.ts';
import { MetadataReader, splitFrontmatter, type YamlMapping } from './metadata.ts';
import { type ItemProblem, Problems, rememberParsed } from './source.ts';

/** A stream rule as its file declares it. Conditions, scopes and globs are compiled by the loop. */
export interface Rule {
  readonly path: string;
  /** File name without extension: the first rule of a name wins. */
  readonly name: string;
  readonly description: string;
  /** Regular expressions; any match triggers the rule. */
  readonly conditions: readonly string[];
  /** The members `match` and `ast_condition` as one condition; absent: there are none. The feature reads it. */
  readonly match?: JsonObject;
  /** Tokens, or lists of them with commas. The loop splits them, because globs may contain commas. */
  readonly scope: readonly string[];
  readonly globs: readonly string[];
  readonly interrupt?: InterruptMode;
  readonly repeat?: RepeatMode;
  /** Turns between repetitions. */
  readonly gap?: number;
  /** Globs of directive ids; empty is every directive. */
  readonly directives: readonly string[];
  readonly alwaysApply: boolean;
  readonly enabled: boolean;
  /** `js` runs conditions that the linear-time engine cannot express in a worker. */
  readonly engine: RuleEngine;
  /** The instructions for the model. */
  readonly body: string;
  readonly metadata: JsonObject;
  readonly warnings: readonly ItemProblem[];
  /** The frontmatter, for the locations of problems in conditions. */
  readonly mapping: YamlMapping;
}

/** Accepted spellings of the members; the first one in a file counts. */
const SPELLINGS = {
  condition: ['condition', 'conditions', 'ttsr_trigger', 'ttsrTrigger'],
  match: ['match'],
  ast_condition: ['ast_condition', 'astCondition'],
  interrupt: ['interrupt', 'interrupt_mode', 'interruptMode'],
  repeat: ['repeat', 'repeat_mode', 'repeatMode'],
  gap: ['gap', 'repeat_gap', 'repeatGap'],
  always_apply: ['always_apply', 'alwaysApply'],
  scope: ['scope'],
  globs: ['globs'],
  directives: ['directives', 'agents'],
  description: ['description'],
  question: ['question'],
  enabled: ['enabled'],
  engine: ['engine'],
} as const;

const OTHER_MEMBERS = ['name', 'title', 'version', 'author', 'category', 'tags'];

/** Parses a rule file: YAML frontmatter and the body. Throws `rule_malformed` with the location in the file. */
export const parseRule = rememberParsed((text, path): Rule => {
  const split = splitFrontmatter(text, path, 'rule_malformed');
  if (split === undefined) {
    throw new RyeError('rule_malformed', 'the file has no frontmatter', {
      location: { path, line: 1 },
      hint: 'Start it with --- lines around condition: ….',
    });
  }
  const { mapping, body } = split;
  const reader = new MetadataReader(mapping, 'rule_malformed');
  const key = (member: keyof typeof SPELLINGS): string =>
    SPELLINGS[member].find((spelling) => Object.hasOwn(mapping.value, spelling)) ?? member;
  if (body === '') {
    throw new RyeError('rule_malformed', 'the rule body is empty', {
      location: { path, line: 1 },
      hint: 'Write instructions for the model below the frontmatter.',
    });
  }
  return compact({
    path,
    name: ruleName(path),
    description: reader.text(key('description')) ?? '',
    ...readConditions(mapping, reader, key),
    scope: reader.entries(key('scope')),
    globs: reader.entries(key('globs')),
    interrupt: interruptOf(mapping, reader, key('interrupt')),
    repeat: reader.oneOf(key('repeat'), REPEAT_MODES),
    gap: readGap(mapping, reader, key('gap')),
    directives: reader.list(key('directives')),
    alwaysApply: reader.flag(key('always_apply'), false),
    enabled: reader.flag(key('enabled'), true),
    engine: reader.oneOf(key('engine'), RULE_ENGINES) ?? 're2',
    body,
    metadata: mapping.value,
    warnings: ignoredMembers(mapping),
    mapping,
  });
});

/** Reads what triggers the rule: `match` alone, or any of the others. */
function readConditions(
  mapping: YamlMapping,
  reader: MetadataReader,
  key: (member: keyof typeof SPELLINGS) => string,
): Pick<Rule, 'conditions' | 'match'> {
  const { match } = mapping.value;
  if (match !== undefined && match !== null) {
    if (typeof match === 'string') return { conditions: [], match: { regex: match } };
    if (Array.isArray(match)) return { conditions: [], match: { any: match } };
    if (isJsonObject(match)) return { conditions: [], match };
    throw reader.wrong('match', 'a text, a list or a mapping');
  }
  const conditions = reader.entries(key('condition'));
  const patterns = reader.entries(key('ast_condition'));
  const ast = patterns.length === 0 ? undefined : { ast: [...patterns] };
  const llm = reader.text('question');
  if (llm === undefined) return { conditions, ...(ast ? { match: ast } : {}) };
  // the others only decide if the question is asked
  const regex = conditions.length === 0 ? [] : [{ regex: [...conditions] }];
  const gates = [...regex, ...(ast ? [ast] : [])];
  return {
    conditions: [],
    match: gates.length === 0 ? { llm } : { all: [{ any: gates }, { llm }] },
  };
}

/** A question cuts no answer unless its rule states it: most are asked about every text. */
function interruptOf(
  mapping: YamlMapping,
  reader: MetadataReader,
  key: string,
): InterruptMode | undefined {
  const mode = reader.oneOf(key, INTERRUPT_MODES);
  return mode ?? (mapping.value['question'] === undefined ? undefined : 'never');
}

/** The place in the file of a step into {@link Rule.match}. */
export function locateInMatch(
  { mapping }: Pick<Rule, 'mapping'>,
  place: readonly (string | number)[],
): SourceLocation {
  const { match } = mapping.value;
  if (match === undefined || match === null) {
    const members = [...SPELLINGS.ast_condition, ...SPELLINGS.condition, ...SPELLINGS.question];
    return mapping.locate(members.find((name) => Object.hasOwn(mapping.value, name)) ?? 'match');
  }
  return mapping.locate('match', ...(isJsonObject(match) ? place : place.slice(1)));
}

/** Returns the name of a rule: its file name without extension. */
export function ruleName(path: string): string {
  return basename(path).replace(/\.mdc?$/, '');
}

function readGap(mapping: YamlMapping, reader: MetadataReader, key: string): number | undefined {
  const value = mapping.value[key];
  if (value === undefined || value === null) return undefined;
  if (typeof value !== 'number' || !Number.isInteger(value) || value < 0) {
    throw reader.wrong(key, 'a whole number of turns');
  }
  return value;
}

/** The members beside which `match` counts alone. */
const BESIDE_MATCH = new Set<string>([
  ...SPELLINGS.condition,
  ...SPELLINGS.ast_condition,
  ...SPELLINGS.question,
]);

function ignoredMembers(mapping: YamlMapping): readonly ItemProblem[] {
  const known: string[] = [...Object.values(SPELLINGS).flat(), ...OTHER_MEMBERS];
  const problems = new Problems();
  for (const member of Object.keys(mapping.value)) {
    if (Object.hasOwn(mapping.value, 'match') && BESIDE_MATCH.has(member)) {
      problems.warn({
        code: 'rule_malformed',
        message: `"${member}" is ignored beside match`,
        location: mapping.locate(member),
        hint: 'Put both in a list: match: {any: […]}.',
      });
    }
    if (known.includes(member)) continue;
    problems.warn({
      code: 'rule_malformed',
      message: `"${member}" is unknown in a rule and is ignored`,
      location: mapping.locate(member),
      hint: didYouMean(member, known),
    });
  }
  return problems.all;
}
