import { basename, dirname } from 'node:path';
import { RyeError, type SourceLocation } from '../core/errors.ts';
import { compact, isRecord } from '../core/json.ts';
import { type Frontmatter, MetadataReader, splitFrontmatter } from './metadata.ts';
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
  const { mapping, body } = splitSkill(text, path);
  const problems = new Problems();
  const reader = new MetadataReader(mapping, 'skill_malformed');
  const report = (key: string, message: string): void =>
    problems.error({ code: 'skill_malformed', message, location: mapping.locate(key) });
  const folder = basename(dirname(path)).normalize('NFKC');
  const name = (reader.text('name') ?? '').normalize('NFKC');
  const description = reader.text('description') ?? '';
  const compatibility = reader.text('compatibility');
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
    license: reader.text('license'),
    compatibility,
    metadata: textMap(mapping.value['metadata'], () =>
      report('metadata', 'metadata is not a mapping of texts'),
    ),
    // an entry such as Bash(git add:*) holds spaces
    allowedTools: (reader
      .list('allowed-tools')
      .join(' ')
      .match(/[^\s,()]+(?:\([^()]*\))?/g) ?? []) as readonly string[],
    body,
  });
  return { skill, problems };
}

function splitSkill(text: string, path: string): Frontmatter {
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
    const repaired = quoteColons(normalizeNewlines(text));
    if (repaired === undefined) throw error;
    try {
      return split(repaired);
    } catch {
      throw error;
    }
  }
}

/** Quotes frontmatter values that contain a colon: `description: Use when: …` is a common mistake. */
function quoteColons(text: string): string | undefined {
  const end = text.indexOf('\n---', 3);
  if (end === -1) return undefined;
  const head = text.slice(0, end);
  const quoted = head.replaceAll(
    /^([\w-]+):[ \t]+([^\s"'[{|>&*!#][^\n]*:[^\n]*)$/gm,
    (_, key: string, value: string) => `${key}: ${JSON.stringify(value.trim())}`,
  );
  return quoted === head ? undefined : quoted + text.slice(end);
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
