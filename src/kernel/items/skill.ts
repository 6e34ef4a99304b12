import { basename, dirname } from 'node:path';
import { RyeError, type SourceLocation } from '../core/errors.ts';
import { compact, isRecord } from '../core/json.ts';
import {
  type Frontmatter,
  MetadataReader,
  parseYamlMapping,
  splitFrontmatter,
} from './metadata.ts';
import { type ItemProblem, normalizeNewlines, Problems } from './source.ts';

/** A skill as the Agent Skills specification (agentskills.io) defines it, read from its `SKILL.md`. */
export interface Skill {
  readonly path: string;
  readonly name: string;
  readonly description: string;
  readonly license?: string;
  readonly compatibility?: string;
  readonly metadata: Readonly<Record<string, string>>;
  /** `allowed-tools`, split at white space and commas outside of parentheses. */
  readonly allowedTools: readonly string[];
  readonly body: string;
}

const MEMBERS: ReadonlySet<string> = new Set([
  'name',
  'description',
  'license',
  'compatibility',
  'metadata',
  'allowed-tools',
]);
const MAX_NAME = 64;
const MAX_DESCRIPTION = 1024;
const MAX_COMPATIBILITY = 500;
const NAME = /^[\p{Ll}\p{Lo}\p{Nd}]+(?:-[\p{Ll}\p{Lo}\p{Nd}]+)*$/u;

/**
 * Parses a skill strictly: throws the first problem as `skill_malformed`, including unknown members and a name that
 * differs from the folder's.
 */
export function parseSkill(text: string, path: string): Skill {
  const { skill, problems } = readSkill(text, path);
  problems.throwIfAny();
  return skill;
}

/**
 * Parses a skill leniently, as the specification advises: a bad name and unknown members are diagnostics. A skill without
 * description or with unreadable YAML is undefined, with the reason in the diagnostics.
 */
export function loadSkill(
  text: string,
  path: string,
): { readonly skill: Skill | undefined; readonly diagnostics: readonly ItemProblem[] } {
  try {
    const { skill, problems } = readSkill(text, path);
    return { skill: skill.description === '' ? undefined : skill, diagnostics: problems.all };
  } catch (error) {
    const problems = new Problems();
    problems.caught(error, { code: 'skill_malformed', location: { path, line: 1 } });
    return { skill: undefined, diagnostics: problems.all };
  }
}

/** Parses a skill and collects its problems; throws only if there is no frontmatter. */
export function readSkill(
  text: string,
  path: string,
): { readonly skill: Skill; readonly problems: Problems } {
  const { mapping, body, broken } = splitSkill(text, path);
  const problems = new Problems();
  if (broken)
    problems.caught(broken.error, { code: 'skill_malformed', location: { path, line: 1 } });
  const reader = new MetadataReader(mapping, 'skill_malformed');
  const report = (key: string, message: string): void =>
    problems.error({ code: 'skill_malformed', message, location: mapping.locate(key) });
  /** A member of the wrong type is missing; that costs no other member. */
  const optional = <T>(key: string, read: () => T): T | undefined => {
    try {
      return read();
    } catch (error) {
      problems.caught(error, { code: 'skill_malformed', location: mapping.locate(key) });
      return undefined;
    }
  };
  const optionalText = (key: string) => optional(key, () => reader.text(key));
  const folder = basename(dirname(path)).normalize('NFKC');
  const name = (optionalText('name') ?? '').normalize('NFKC');
  const description = optionalText('description') ?? '';
  const compatibility = optionalText('compatibility');
  checkName(name, folder, (message) => report('name', message));
  if (description === '') report('description', 'the skill has no description');
  if (description.length > MAX_DESCRIPTION) {
    report('description', `the description is longer than ${MAX_DESCRIPTION} characters`);
  }
  if ((compatibility ?? '').length > MAX_COMPATIBILITY) {
    report('compatibility', `compatibility is longer than ${MAX_COMPATIBILITY} characters`);
  }
  for (const key of Object.keys(mapping.value)) {
    if (!MEMBERS.has(key))
      report(key, `"${key}" is not a member of a skill; put it under metadata`);
  }
  const skill: Skill = compact({
    path,
    name: name === '' ? folder : name,
    description,
    license: optionalText('license'),
    compatibility,
    metadata: textMap(mapping.value['metadata'], () =>
      report('metadata', 'metadata is not a mapping of texts'),
    ),
    // an entry such as Bash(git add:*) holds spaces
    allowedTools: ((optional('allowed-tools', () => reader.list('allowed-tools')) ?? [])
      .join(' ')
      .match(/[^\s,()]+(?:\([^()]*\))?/g) ?? []) as readonly string[],
    body,
  });
  return { skill, problems };
}

/** Splits a skill; `broken` is why its YAML was read with quotes that it does not have. */
function splitSkill(
  text: string,
  path: string,
): Frontmatter & { readonly broken?: { readonly error: unknown } } {
  const location: SourceLocation = { path, line: 1 };
  const split = (content: string): Frontmatter => {
    const found = splitFrontmatter(content, path, 'skill_malformed');
    if (found !== undefined) return found;
    throw new RyeError('skill_malformed', 'SKILL.md has no frontmatter', {
      location,
      hint: 'Start it with --- lines around name: and description:.',
    });
  };
  try {
    return split(text);
  } catch (error) {
    const repaired = quoteTexts(normalizeNewlines(text));
    if (repaired === undefined) throw error;
    try {
      return { ...split(repaired), broken: { error } };
    } catch {
      throw error;
    }
  }
}

/** Quotes frontmatter values that are no YAML, as other programs do: `Use when: …`, `[file] [format]`, `@name`. */
function quoteTexts(text: string): string | undefined {
  const end = text.indexOf('\n---', 3);
  if (end === -1) return undefined;
  const members = text.slice(0, end).split(/\n(?=[\w-]+:)/);
  const quoted = members.map((member) => {
    const [, key = '', value = ''] = /^([\w-]+):\s([\s\S]*)$/.exec(member) ?? [];
    const isText = key !== '' && value.trim() !== '' && !isYaml(member);
    return isText ? `${key}: ${JSON.stringify(value.trim().replaceAll(/\s*\n\s*/g, ' '))}` : member;
  });
  const head = quoted.join('\n');
  return head === text.slice(0, end) ? undefined : head + text.slice(end);
}

function isYaml(text: string): boolean {
  try {
    parseYamlMapping({ path: '', text, line: 1, column: 1 }, 'skill_malformed');
    return true;
  } catch {
    return false;
  }
}

function checkName(name: string, folder: string, report: (message: string) => void): void {
  if (name === '') report('the skill has no name');
  else if (name.length > MAX_NAME) report(`the name is longer than ${MAX_NAME} characters`);
  else if (!NAME.test(name)) {
    report(
      `"${name}" is not a skill name: lower-case letters and digits with single hyphens between them`,
    );
  } else if (name !== folder) {
    report(`the name "${name}" differs from the folder name "${folder}"`);
  }
}

function textMap(value: unknown, report: () => void): Readonly<Record<string, string>> {
  if (value === undefined || value === null) return {};
  if (!isRecord(value)) {
    report();
    return {};
  }
  const entries = Object.entries(value);
  if (entries.some(([, member]) => typeof member === 'object')) report();
  return Object.fromEntries(entries.map(([key, member]) => [key, String(member)]));
}
