import { basename } from 'node:path';
import { RyeError } from '../core/errors.ts';
import { compact, type JsonObject } from '../core/json.ts';
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
  interrupt: ['interrupt', 'interrupt_mode', 'interruptMode'],
  repeat: ['repeat', 'repeat_mode', 'repeatMode'],
  gap: ['gap', 'repeat_gap', 'repeatGap'],
  always_apply: ['always_apply', 'alwaysApply'],
  scope: ['scope'],
  globs: ['globs'],
  directives: ['directives', 'agents'],
  description: ['description'],
  enabled: ['enabled'],
  engine: ['engine'],
} as const;

const OTHER_MEMBERS = ['name', 'title', 'version', 'author', 'category', 'tags', 'question'];

/** Conditions of other programs that rye does not have. */
const FOREIGN_CONDITIONS = new Set(['astCondition', 'ast_condition', 'match']);

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
    conditions: reader.entries(key('condition')),
    scope: reader.entries(key('scope')),
    globs: reader.entries(key('globs')),
    interrupt: reader.oneOf(key('interrupt'), INTERRUPT_MODES),
    repeat: reader.oneOf(key('repeat'), REPEAT_MODES),
    gap: readGap(mapping, reader, key('gap')),
    directives: reader.list(key('directives')),
    alwaysApply: reader.flag(key('always_apply'), false),
    enabled: reader.flag(key('enabled'), true),
    engine: reader.oneOf(key('engine'), RULE_ENGINES) ?? 're2',
    body,
    metadata: mapping.value,
    warnings: unknownMembers(mapping),
    mapping,
  });
});

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

function unknownMembers(mapping: YamlMapping): readonly ItemProblem[] {
  const known: string[] = [...Object.values(SPELLINGS).flat(), ...OTHER_MEMBERS];
  const problems = new Problems();
  for (const member of Object.keys(mapping.value)) {
    if (known.includes(member)) continue;
    if (FOREIGN_CONDITIONS.has(member)) {
      problems.warn({
        code: 'rule_malformed',
        message: `"${member}" is not supported in a rule and is ignored: rye has only \`condition\`, a list of regular expressions`,
        location: mapping.locate(member),
      });
      continue;
    }
    problems.warn({
      code: 'rule_malformed',
      message: `"${member}" is unknown in a rule and is ignored`,
      location: mapping.locate(member),
      hint: didYouMean(member, known),
    });
  }
  return problems.all;
}
