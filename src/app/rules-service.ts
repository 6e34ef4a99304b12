import { relative } from 'node:path';
import { RyeError } from '../core/errors.ts';
import type { PlannedRule, RuleSettings } from '../core/plan.ts';
import { didYouMean } from '../core/text.ts';
import { AnswerWatch, cutsAnswer } from '../loop/stream-rules/answer-watch.ts';
import {
  compileRules,
  type RuleSet,
  rulesOf,
  type SortedRule,
  sortRules,
} from '../loop/stream-rules/rules.ts';
import { RuleSession } from '../loop/stream-rules/session.ts';
import type { ModelEvent } from '../providers/provider.ts';
import { compileGlob } from '../tools/glob-pattern.ts';
import type { Foundation } from './foundation.ts';
import { loadRules } from './rule-source.ts';
import type {
  RuleHit,
  RuleListing,
  RuleRow,
  RuleSample,
  RuleScan,
  RulesService,
} from './rules-api.ts';
import { readScanned } from './rules-scan.ts';

const MAX_SCANNED_BYTES = 5 * 1024 * 1024;
const WRITE = 'write';
const CALL = 'sample';

/** Looking at rules and trying them, outside of threads. */
export class RuleBench implements RulesService {
  readonly #base: Foundation;

  constructor(base: Foundation) {
    this.#base = base;
  }

  async list({ directive }: { readonly directive?: string } = {}): Promise<RuleListing> {
    const { settings, rules, refused } = await loadRules(this.#base, false);
    const sorted = sortRules(rules, settings, { directive, compileGlob });
    return { rules: sorted.map((one) => rowOf(one, settings)), refused };
  }

  async test(
    sample: RuleSample,
  ): Promise<{ readonly checked: number; readonly hits: readonly RuleHit[] }> {
    const { checker, checked } = await this.#checker(sample.rule);
    return { checked, hits: await checker(sample) };
  }

  async scan(options: Parameters<RulesService['scan']>[0]): Promise<RuleScan> {
    const { folder, rule, gitignore = true, maxBytes = MAX_SCANNED_BYTES } = options;
    const { checker } = await this.#checker(rule);
    const hits: (RuleHit & { path: string })[] = [];
    let files = 0;
    let skipped = 0;
    for await (const { path, text } of readScanned(folder, { gitignore, maxBytes })) {
      if (text === undefined) {
        skipped += 1;
        continue;
      }
      files += 1;
      const shown = relative(this.#base.options.projectPath, path);
      const found = await checker({ text, source: 'tool', tool: WRITE, path: shown });
      hits.push(...found.map((hit) => ({ ...hit, path })));
    }
    return { files, skipped, hits };
  }

  async #checker(name: string | undefined): Promise<{
    readonly checked: number;
    readonly checker: (sample: RuleSample) => Promise<readonly RuleHit[]>;
  }> {
    const { settings, rules } = await loadRules(this.#base, false);
    const sorted = sortRules(rules, settings, { directive: undefined, compileGlob });
    const { stream } = rulesOf(sorted, settings);
    const wanted = name === undefined ? stream : stream.filter((rule) => rule.name === name);
    if (name !== undefined && wanted.length === 0) {
      throw new RyeError('item_not_found', `there is no stream rule ${name}`, {
        hint:
          didYouMean(
            name,
            stream.map((rule) => rule.name),
          ) ?? 'Run: rye rules list',
      });
    }
    const checker = new Checker(this.#base, wanted, settings);
    return { checked: wanted.length, checker: (sample) => checker.check(sample) };
  }
}

/** Tells all rules that a text breaks, not just the first that would cut it. */
class Checker {
  readonly #base: Foundation;
  readonly #settings: RuleSettings;
  readonly #real: RuleSet;
  readonly #patient: RuleSet;

  constructor(base: Foundation, rules: readonly PlannedRule[], settings: RuleSettings) {
    this.#base = base;
    this.#settings = settings;
    this.#real = compileRules(rules, settings, compileGlob);
    const patient = rules.map((rule) => ({ ...rule, interrupt: 'never' as const }));
    this.#patient = compileRules(patient, settings, compileGlob);
  }

  async check(sample: RuleSample): Promise<readonly RuleHit[]> {
    const session = new RuleSession({
      rules: this.#patient,
      settings: this.#settings,
      projectPath: this.#base.options.projectPath,
      toolIds: new Map(),
      slow: this.#base.regexWorker,
    });
    const watcher = new AnswerWatch(session, 1);
    for (const event of eventsOf(sample)) watcher.observe(event);
    await watcher.settle();
    return watcher.takeTriggers().flatMap(({ rule: name }): readonly RuleHit[] => {
      const rule = this.#real.rules.find((one) => one.name === name);
      if (!rule) return [];
      const line =
        rule.slow.length === 0 ? lineOfMatch(this.#real, rule.index, sample.text) : undefined;
      return [
        {
          rule: rule.name,
          interrupts: cutsAnswer(rule, sample.source),
          ...(line === undefined ? {} : { line }),
        },
      ];
    });
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
