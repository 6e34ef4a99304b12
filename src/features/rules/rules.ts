import { execFile } from 'node:child_process';
import { readFile, realpath, stat } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { promisify } from 'node:util';
import type {
  RefusedRuleFile,
  RuleHit,
  RuleListing,
  RuleRow,
  RuleSample,
  RuleScan,
  RulesService,
  RuleTrial,
} from '../../kernel/app/api/rules.ts';
import type { Workspace } from '../../kernel/app/workspace.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import type { JsonValue } from '../../kernel/core/json.ts';
import type { PlannedRule, RuleSettings } from '../../kernel/core/plan.ts';
import { absoluteSearchPath, didYouMean } from '../../kernel/core/text.ts';
import { ruleName } from '../../kernel/items/rule.ts';
import type { ModelEvent } from '../../kernel/providers/provider.ts';
import { compileGlob } from '../../kernel/tools/glob-pattern.ts';
import { walkFiles } from '../../kernel/tools/walk.ts';
import { regexWorkerOf } from './regex-worker.ts';
import { AnswerWatch, cutsAnswer } from './stream/answer-watch.ts';
import {
  compileRules,
  type RuleSet,
  rulesOf,
  type SortedRule,
  type StreamRule,
  sortRules,
} from './stream/rules.ts';
import { RuleSession } from './stream/session.ts';
import { loadRules, matchParts, type RuleCatalog } from './thread-rules.ts';

const MAX_SCANNED_BYTES = 5 * 1024 * 1024;
const WRITE = 'write';
const CALL = 'sample';

/** Looking at rules and trying them, outside of threads. */
export class Rules implements RulesService {
  readonly #workspace: Workspace;

  constructor(workspace: Workspace) {
    this.#workspace = workspace;
  }

  async list({ directive }: { readonly directive?: string } = {}): Promise<RuleListing> {
    const used = await loadRules(this.#workspace, false);
    const { settings, rules } = used;
    const sorted = sortRules(rules, settings, compileGlob, directive);
    const refused = withMistakes(used, await loadRules(this.#workspace, 'as-they-are'));
    return { rules: sorted.map((one) => rowOf(one, settings)), refused };
  }

  async test(sample: RuleSample): Promise<RuleTrial> {
    const { checker, checked, unsigned } = await this.#checker(sample.rule, true);
    const hits = await checker.check(sample);
    return { checked, hits, notes: checker.notes, unsigned };
  }

  async scan(options: Parameters<RulesService['scan']>[0]): Promise<RuleScan> {
    const { folder, rule, gitignore = true, maxBytes = MAX_SCANNED_BYTES } = options;
    const { checker, unsigned } = await this.#checker(rule, false);
    const hits: (RuleHit & { path: string })[] = [];
    let files = 0;
    let skipped = 0;
    for await (const { path, text } of readScanned(folder, { gitignore, maxBytes })) {
      if (text === undefined) {
        skipped += 1;
        continue;
      }
      files += 1;
      const shown = relative(this.#workspace.options.projectPath, path);
      const found = await checker.check({ text, source: 'tool', tool: WRITE, path: shown });
      hits.push(...found.map((hit) => ({ ...hit, path })));
    }
    return { files, skipped, hits, notes: checker.notes, unsigned };
  }

  /** `isTrial`: rules that are not signed yet are tried too, if no signed one has their name. */
  async #checker(
    name: string | undefined,
    isTrial: boolean,
  ): Promise<{
    readonly checked: number;
    readonly unsigned: readonly RefusedRuleFile[];
    readonly checker: Checker;
  }> {
    const used = await loadRules(this.#workspace, false);
    const { settings } = used;
    const all = await loadRules(this.#workspace, 'as-they-are');
    const isUsed = new Set(used.rules.map(({ rule: { path } }) => path));
    const others = isTrial ? all.rules.filter(({ rule: { path } }) => !isUsed.has(path)) : [];
    const tried = name === undefined ? [...used.rules, ...others] : all.rules;
    const sorted = sortRules(tried, settings, compileGlob);
    const { stream } = rulesOf(sorted, settings);
    const wanted = name === undefined ? stream : stream.filter((rule) => rule.name === name);
    if (name !== undefined && wanted.length === 0) {
      const listed = sorted.find(({ declared }) => declared.rule.name === name);
      if (listed) throw watchesNothing(name, listed);
      const ignored = all.refused.find(({ path }) => ruleName(path) === name);
      if (ignored) throw new RyeError('rule_malformed', ignored.message);
      throw new RyeError('item_not_found', `unknown stream rule ${name}`, {
        hint:
          didYouMean(
            name,
            stream.map((rule) => rule.name),
          ) ?? 'Run: rye rules list',
      });
    }
    const checker = new Checker(this.#workspace, wanted, settings);
    const malformed = isTrial && name === undefined ? all.refused : [];
    const paths = new Set([...wanted, ...malformed].map(({ path }) => path));
    const unsigned = withMistakes(used, all).filter(({ path }) => paths.has(path));
    return { checked: wanted.length, unsigned, checker };
  }
}

/** The files that no thread uses; one that is not signed may have a mistake too. */
function withMistakes(used: RuleCatalog, all: RuleCatalog): readonly RefusedRuleFile[] {
  const mistakes = new Map(all.refused.map(({ path, message }) => [path, message]));
  return used.refused.map(({ path, message }) => {
    const mistake = mistakes.get(path) ?? message;
    return { path, message: mistake === message ? message : `${message}. ${mistake}` };
  });
}

/** Explains why a rule is not tried against any text. */
function watchesNothing(name: string, { bucket, problems }: SortedRule): RyeError {
  const why = problems.length === 0 ? 'it has no condition' : problems.join('; ');
  const reason = bucket === 'disabled' ? 'it is switched off' : why;
  return new RyeError('rule_malformed', `the rule ${name} watches no text: ${reason}`, {
    hint: 'Give it a condition, a list of regular expressions, then sign it. See: rye rules list',
  });
}

/** Finds all rules that a text triggers, not just the first that would interrupt it. */
class Checker {
  readonly #workspace: Workspace;
  readonly #settings: RuleSettings;
  readonly #real: RuleSet;
  readonly #patient: RuleSet;
  readonly #notes = new Set<string>();

  constructor(workspace: Workspace, rules: readonly PlannedRule[], settings: RuleSettings) {
    this.#workspace = workspace;
    this.#settings = settings;
    this.#real = compileRules(rules, settings, compileGlob);
    const patient = rules.map((rule) => ({ ...rule, interrupt: 'never' as const }));
    this.#patient = compileRules(patient, settings, compileGlob);
  }

  get notes(): readonly string[] {
    return [...this.#notes];
  }

  async check(sample: RuleSample): Promise<readonly RuleHit[]> {
    const session = new RuleSession({
      rules: this.#patient,
      settings: this.#settings,
      projectPath: this.#workspace.options.projectPath,
      toolIds: new Map(),
      slow: regexWorkerOf(this.#workspace),
      match: matchParts(this.#workspace),
    });
    const watcher = new AnswerWatch(session, 1, ({ event_type: type, payload }) => {
      if (type === 'note' && typeof payload.text === 'string') this.#notes.add(payload.text);
    });
    for (const event of eventsOf(sample)) watcher.observe(event);
    await watcher.settle();
    return watcher.takeTriggers().flatMap((trigger): readonly RuleHit[] => {
      const rule = this.#real.rules.find((one) => one.name === trigger['rule']);
      if (!rule) return [];
      const line = this.#lineOf(rule, trigger['line'], sample.text);
      return [
        {
          rule: rule.name,
          interrupts: cutsAnswer(rule, sample.source),
          ...(line === undefined ? {} : { line }),
        },
      ];
    });
  }

  #lineOf(rule: StreamRule, found: JsonValue | undefined, text: string): number | undefined {
    if (typeof found === 'number') return found;
    return rule.slow.length > 0 || rule.match
      ? undefined
      : lineOfMatch(this.#real, rule.index, text);
  }
}

/** Line, from 1, in which the first match ends. */
function lineOfMatch({ regex }: RuleSet, rule: number, text: string): number {
  const [first] = regex.open([rule]).feed(text);
  return text.slice(0, first?.at ?? text.length).split('\n').length;
}

function eventsOf({ text, source, tool = WRITE, path }: RuleSample): readonly ModelEvent[] {
  const finish: ModelEvent = { type: 'finish', reason: 'end', content: [] };
  if (source === 'text') return [{ type: 'text_delta', text }, finish];
  if (source === 'thinking') return [{ type: 'thinking_delta', text }, finish];
  const json = JSON.stringify({ ...(path === undefined ? {} : { path }), content: text });
  return [
    { type: 'toolcall_start', call_id: CALL, name: tool },
    { type: 'toolcall_delta', call_id: CALL, json },
    { type: 'toolcall_end', call_id: CALL },
    finish,
  ];
}

function rowOf({ declared, bucket, problems }: SortedRule, settings: RuleSettings): RuleRow {
  const { rule, id, description } = declared;
  const { name, space, path, scope, globs, engine } = rule;
  return {
    name,
    id,
    bucket,
    space,
    path,
    description,
    scope,
    globs,
    interrupt: rule.interrupt ?? settings.interrupt_mode,
    repeat: rule.repeat ?? settings.repeat_mode,
    gap: rule.gap ?? settings.repeat_gap,
    engine,
    problems,
  };
}

const BINARY_PROBE_BYTES = 8192;
const MAX_LISTING_BYTES = 256 * 1024 * 1024;

export interface ScanOptions {
  readonly gitignore: boolean;
  readonly maxBytes: number;
}

/** One file of a scan; without text where it is binary or too large. */
export interface ScannedFile {
  readonly path: string;
  readonly text: string | undefined;
}

/** Reads the regular files below a folder, or one file, one after the other. */
export async function* readScanned(
  folder: string,
  { gitignore, maxBytes }: ScanOptions,
): AsyncGenerator<ScannedFile, void> {
  for await (const path of filesBelow(folder, gitignore)) {
    const text = await readText(path, maxBytes);
    if (text !== null) yield { path, text };
  }
}

async function* filesBelow(folder: string, gitignore: boolean): AsyncGenerator<string, void> {
  const stats = await stat(folder).catch(() => undefined);
  if (!stats) throw new RyeError('file_not_found', `no such file or folder: ${folder}`);
  if (stats.isFile()) {
    yield folder;
    return;
  }
  const tracked = gitignore ? await gitFiles(folder) : undefined;
  if (tracked) {
    for (const name of tracked) yield join(folder, name);
    return;
  }
  const root = await realpath(folder);
  const walk = walkFiles({
    root,
    project: root,
    signal: new AbortController().signal,
    onIgnored: () => undefined,
  });
  for await (const file of walk) yield join(folder, file.relative);
}

/** Files that git does not ignore; undefined outside of a repository, and without git. */
async function gitFiles(folder: string): Promise<readonly string[] | undefined> {
  // the configuration of a repository may name a program for git to run
  const harmless = ['-c', 'core.fsmonitor=false'];
  const listing = ['ls-files', '-z', '--cached', '--others', '--exclude-standard'];
  try {
    const { stdout } = await promisify(execFile)('git', ['-C', folder, ...harmless, ...listing], {
      maxBuffer: MAX_LISTING_BYTES,
      env: { ...process.env, PATH: absoluteSearchPath(process.env['PATH'] ?? '') },
    });
    return [...new Set(stdout.split('\0').filter((name) => name !== ''))].toSorted();
  } catch {
    return undefined;
  }
}

/** null: it is gone or no regular file. */
async function readText(path: string, maxBytes: number): Promise<string | null | undefined> {
  const stats = await stat(path).catch(() => undefined);
  if (!stats?.isFile()) return null;
  if (stats.size > maxBytes) return undefined;
  const bytes = await readFile(path).catch(() => undefined);
  if (!bytes) return null;
  return bytes.subarray(0, BINARY_PROBE_BYTES).includes(0) ? undefined : bytes.toString('utf8');
}
