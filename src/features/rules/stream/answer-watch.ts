import type { EventDraft } from '../../../kernel/core/events.ts';
import { compact, type JsonObject } from '../../../kernel/core/json.ts';
import { type AssistantBlock, type ToolCallBlock, textOf } from '../../../kernel/core/message.ts';
import { escapeXml } from '../../../kernel/core/text.ts';
import type {
  Consult,
  Interrupt,
  Reminder,
  StreamWatcher,
  WhatRuns,
} from '../../../kernel/loop/ports.ts';
import type { StreamMatcher } from '../../../kernel/policy/regex-stream.ts';
import type { ModelEvent } from '../../../kernel/providers/provider.ts';
import { type EvidenceLine, evaluate, type MatchText } from '../match/evaluate.ts';
import { judge } from '../match/judge.ts';
import type { JudgeNode } from '../match/parse.ts';
import { type CallFile, type CallHit, CallWatch } from './call-watch.ts';
import type { StreamRule } from './rules.ts';
import { MAX_JUDGMENTS_PER_RUN, type RuleSession } from './session.ts';

type Source = 'text' | 'thinking' | 'tool';
type ProseSource = Exclude<Source, 'tool'>;

/** One rule that this answer broke. */
interface Match {
  readonly rule: StreamRule;
  readonly source: Source;
  /** Position of the call in the answer, counted from 0. */
  readonly call?: number;
  readonly tool?: string;
  readonly path?: string;
  /** Lines of the text that a `match` found. */
  readonly lines?: readonly EvidenceLine[];
  readonly outcome: Outcome;
}

/** The effect of a match. After the cap of the run, it is only recorded. */
type Outcome = 'interrupted' | 'reminded' | 'recorded';

/** Prose of one kind: all its pieces are one text. */
interface Prose {
  readonly matcher: StreamMatcher;
  text: string;
  /** All of it, if a rule judges it as a whole. */
  whole: string;
  length: number;
}

/** At block ends of prose, rules with `engine: js` get text that overlaps so far with what they got before. */
const SLOW_OVERLAP = 4096;

/**
 * Watches one answer while it is spoken: prose, reasoning and the arguments of each call apart. A match of a rule that
 * interrupts cuts the answer; the others wait for the answer to be accepted and are then told beside the result of
 * their call, or after the answer.
 */
export class AnswerWatch implements StreamWatcher {
  readonly #session: RuleSession;
  readonly #turn: number;
  readonly #record: (draft: EventDraft) => void;
  /** Number of answers that the model had completed before this one. */
  readonly #age: number;
  readonly #rules: readonly StreamRule[];
  readonly #prose = new Map<ProseSource, Prose>();
  readonly #calls: { readonly id: string; readonly watch: CallWatch }[] = [];
  readonly #matches = new Map<StreamRule, Match>();
  readonly #told = new Set<StreamRule>();
  readonly #slowRules: Readonly<Record<Source, readonly StreamRule[]>>;
  readonly #wholeRules: Readonly<Record<Source, readonly StreamRule[]>>;
  readonly #files: { readonly call: number; readonly file: CallFile }[] = [];
  readonly #checks: Promise<void>[] = [];
  /** Calls that only the tool set can resolve, and their positions in the answer. */
  #indirect: { readonly block: ToolCallBlock; readonly call: number }[] = [];
  /** Matches of calls that wait for the tool or the path to be known. */
  readonly #lateHits: (() => boolean)[] = [];
  #triggers: JsonObject[] = [];
  #isOver = false;
  #mustInterrupt = false;

  /** `record` gets a draft for the log about each match, and about each rule that is switched off. */
  constructor(
    session: RuleSession,
    turn: number,
    record: (draft: EventDraft) => void = () => undefined,
  ) {
    this.#record = record;
    this.#session = session;
    this.#turn = turn;
    this.#age = session.history.completedTurns;
    this.#rules = session.rules.rules.filter((rule) => session.history.isDue(rule));
    const slow = session.slow ? this.#rules.filter((rule) => rule.slow.length > 0) : [];
    this.#slowRules = bySource(slow);
    this.#wholeRules = bySource(session.world ? this.#rules.filter(({ match }) => match) : []);
  }

  observe(event: ModelEvent): Interrupt | undefined {
    if (this.#isOver || this.#rules.length === 0) return undefined;
    switch (event.type) {
      case 'text_delta':
        this.#feed('text', event.text);
        break;
      case 'thinking_delta':
        this.#feed('thinking', event.text);
        break;
      case 'toolcall_start':
        this.#openCall(event.call_id, event.name);
        break;
      case 'toolcall_delta':
        this.#call(event.call_id)?.write(event.json);
        break;
      case 'toolcall_end':
        this.#call(event.call_id)?.end();
        break;
      case 'finish':
        this.#finish(event.content);
        break;
      case 'error':
        this.#isOver = true;
        break;
      case 'start':
      case 'usage':
        break;
    }
    return this.#interrupt();
  }

  async settle(whatRuns?: WhatRuns, consult?: Consult): Promise<Interrupt | undefined> {
    if (this.#isOver) return undefined;
    if (whatRuns) await this.#lookThrough(whatRuns);
    await Promise.all(this.#checks);
    for (const decide of this.#lateHits) decide();
    await this.#judgeWholes(consult);
    const interrupt = this.#interrupt();
    this.#isOver = true;
    return interrupt;
  }

  accept(): void {
    this.#isOver = true;
    this.#session.history.completedTurns += 1;
  }

  takeTriggers(): readonly JsonObject[] {
    const triggers = this.#triggers;
    this.#triggers = [];
    return triggers;
  }

  reminderFor(call: number): Reminder | undefined {
    const due = this.#due().filter((match) => match.call === call);
    if (due.length === 0) return undefined;
    return { text: renderBroken(due, REMINDER), injection: this.#tell(due) };
  }

  takeFollowUps(): readonly EventDraft[] {
    const due = this.#due().filter(
      ({ source, rule }) => source !== 'tool' && !this.#told.has(rule),
    );
    if (due.length === 0) return [];
    return [this.#tell(due), hidden(renderBroken(due, REMINDER), due)];
  }

  /** Returns the matches that the model is told about without a cut. */
  #due(): readonly Match[] {
    return [...this.#matches.values()].filter(({ outcome }) => outcome === 'reminded');
  }

  #feed(source: ProseSource, piece: string): void {
    const prose = this.#prose.get(source) ?? this.#openProse(source);
    prose.length += piece.length;
    if (this.#wholeRules[source].length > 0) prose.whole += piece;
    for (const { rule } of prose.matcher.feed(piece)) this.#hitProse(source, rule);
    if (this.#slowRules[source].length === 0) return;
    prose.text += piece;
    const { buffer_limit: limit } = this.#session.settings;
    if (prose.text.length < limit) return;
    this.#askProse(source, prose.text);
    prose.text = prose.text.slice(-Math.min(SLOW_OVERLAP, limit >> 1));
  }

  #openProse(source: ProseSource): Prose {
    const rules = this.#rules.filter(({ scope }) => scope[source]).map(({ index }) => index);
    const prose = {
      matcher: this.#session.rules.regex.open(rules),
      text: '',
      whole: '',
      length: 0,
    };
    this.#prose.set(source, prose);
    return prose;
  }

  #hitProse(source: ProseSource, index: number): void {
    const rule = this.#session.rules.rules[index];
    if (rule?.isEarly === true) {
      const text = { source, parts: [this.#prose.get(source)?.whole ?? ''], paths: [] };
      this.#checks.push(this.#judge(text, { rule, source }, undefined));
    } else if (rule) this.#matched({ rule, source });
  }

  #openCall(id: string, name: string): CallWatch {
    const watch = this.#watchCall(name, this.#calls.length);
    this.#calls.push({ id, watch });
    return watch;
  }

  #watchCall(name: string, call: number): CallWatch {
    return new CallWatch(name, {
      rules: this.#rules,
      projectPath: this.#session.projectPath,
      open: (rules) => this.#session.rules.regex.open(rules),
      namesOf: (tool) => this.#session.namesOf(tool),
      onHit: (hit) => this.#matched({ ...hit, source: 'tool', call }),
      onValue:
        this.#slowRules.tool.length === 0
          ? undefined
          : (text, decide) => this.#askCall(text, call, decide),
      valueLimit: this.#session.settings.buffer_limit,
      onFile:
        this.#wholeRules.tool.length === 0 ? undefined : (file) => this.#files.push({ call, file }),
    });
  }

  /** The newest call of that id: some models use one twice. */
  #call(id: string): CallWatch | undefined {
    return this.#calls.findLast((call) => call.id === id)?.watch;
  }

  /** Block ends: each text is checked as a whole, and what was not streamed is read from the answer. */
  #finish(content: readonly AssistantBlock[]): void {
    const spoken = {
      text: textOf(content),
      thinking: content.map((block) => (block.type === 'thinking' ? block.text : '')).join(''),
    };
    for (const source of ['text', 'thinking'] as const) {
      if ((this.#prose.get(source)?.length ?? 0) === 0) this.#feed(source, spoken[source]);
      const prose = this.#prose.get(source);
      for (const rule of prose?.matcher.end() ?? []) this.#hitProse(source, rule);
      if (prose && prose.text !== '') this.#askProse(source, prose.text);
    }
    content
      .filter((block) => block.type === 'tool_call')
      .forEach((block, position) => {
        const watch = this.#calls[position]?.watch ?? this.#openCall(block.call_id, block.name);
        if (watch.length === 0) watch.write(JSON.stringify(block.input));
        watch.end();
        if (!this.#session.isPlain(block)) this.#indirect.push({ block, call: position });
      });
  }

  /** A tool called by another spelling, or through another tool, is judged by what runs, as the gates do it. */
  async #lookThrough(whatRuns: WhatRuns): Promise<void> {
    for (const { block, call } of this.#indirect) {
      const meant = await whatRuns(block);
      if (!meant || this.#isOver) continue;
      // what runs is judged, not how the model wrote it
      this.#files.splice(0, Infinity, ...this.#files.filter((one) => one.call !== call));
      const watch = this.#watchCall(meant.tool, call);
      watch.write(JSON.stringify(meant.input));
      watch.end();
    }
    this.#indirect = [];
  }

  #askCall(text: string, call: number, hitOf: (rule: StreamRule) => CallHit | undefined): void {
    for (const rule of this.#slowRules.tool) {
      const decide = (): boolean => {
        const hit = hitOf(rule);
        if (hit) this.#matched({ ...hit, source: 'tool', call });
        return hit !== undefined;
      };
      const onMatch = (): void => {
        if (!decide()) this.#lateHits.push(decide);
      };
      this.#checks.push(this.#check(rule, text, onMatch));
    }
  }

  #askProse(source: ProseSource, text: string): void {
    for (const rule of this.#slowRules[source]) {
      this.#checks.push(this.#check(rule, text, () => this.#matched({ rule, source })));
    }
  }

  async #check(rule: StreamRule, text: string, onMatch: () => void): Promise<void> {
    const result = await this.#session.slow?.matches(rule, text);
    if (result === 'switched_off') {
      const note = `rule ${rule.name} took too long twice and is not checked again in this run`;
      this.#record({ event_type: 'note', payload: { text: note } });
    }
    // a result after the end of the answer changes nothing
    if (result === true && !this.#isOver) onMatch();
  }

  /** Judges complete texts, in the order of the answer. */
  async #judgeWholes(consult: Consult | undefined): Promise<void> {
    for (const source of ['thinking', 'text'] as const) {
      const whole = this.#prose.get(source)?.whole ?? '';
      if (whole === '') continue;
      const text = { source, parts: [whole], paths: [] };
      for (const rule of this.#wholeRules[source]) {
        await this.#judge(text, { rule, source }, consult);
      }
    }
    for (const { call, file } of this.#files) {
      const text = { source: 'tool', parts: file.parts, paths: file.paths } as const;
      for (const rule of this.#wholeRules.tool) {
        const hit = file.hitOf(rule);
        if (hit) await this.#judge(text, { ...hit, source: 'tool', call }, consult);
      }
    }
    for (const note of this.#session.takeNotes()) {
      this.#record({ event_type: 'note', payload: { text: note } });
    }
  }

  async #judge(
    text: MatchText,
    found: Omit<Match, 'outcome'>,
    consult: Consult | undefined,
  ): Promise<void> {
    const { rule } = found;
    const { world } = this.#session;
    if (!rule.match || !world || this.#isOver || this.#matches.has(rule)) return;
    const lines = await evaluate(rule.match, text, {
      ...world,
      judge: async (node) => {
        const verdict = await this.#ask(rule, node, text, consult);
        return verdict ?? (node.holdsOnError || undefined);
      },
    });
    if (lines && !this.#isOver) this.#matched({ ...found, lines });
  }

  /** Asks a model about the text. The log has each answer, and why there is none. */
  async #ask(
    { name }: StreamRule,
    node: JudgeNode,
    text: MatchText,
    consult: Consult | undefined,
  ): Promise<boolean | undefined> {
    const label = `rule ${name} asked "${node.question}"`;
    if (consult && this.#session.countJudgment()) return await judge(label, node, text, consult);
    const why = consult
      ? `a run asks at most ${MAX_JUDGMENTS_PER_RUN} questions`
      : 'only threads ask models';
    this.#record({ event_type: 'note', payload: { text: `${label}: no answer: ${why}` } });
    return undefined;
  }

  #matched(found: Omit<Match, 'outcome'>): void {
    const { rule, source } = found;
    if (this.#matches.has(rule)) return;
    const match: Match = { ...found, outcome: this.#outcomeOf(found) };
    const { outcome } = match;
    this.#matches.set(rule, match);
    this.#mustInterrupt ||= outcome === 'interrupted';
    const facts = compact({
      rule: rule.name,
      stream: source,
      tool: match.tool,
      path: match.path,
      line: match.lines?.[0]?.line,
      interrupted: outcome === 'interrupted',
      outcome,
    });
    this.#record({
      event_type: 'rule_matched',
      payload: { ...facts, sha256: rule.sha256, turn: this.#turn },
    });
    this.#triggers.push(facts);
  }

  #outcomeOf({ rule, source, call }: Omit<Match, 'outcome'>): Outcome {
    if (cutsAnswer(rule, source) && this.#session.mayInterrupt(rule)) return 'interrupted';
    // one reminder for each call, and one for all prose
    const due = new Set(this.#due().map((match) => match.call));
    return due.has(call) || this.#session.mayInject(due.size) ? 'reminded' : 'recorded';
  }

  /** Tells all rules that the cut answer broke, so that the next one need not break the others. */
  #interrupt(): Interrupt | undefined {
    if (!this.#mustInterrupt || this.#isOver) return undefined;
    this.#isOver = true;
    const matches = [...this.#matches.values()];
    const cutting = matches
      .filter(({ outcome }) => outcome === 'interrupted')
      .map(({ rule }) => rule);
    this.#session.countInterrupt(cutting);
    const names = cutting.map(({ name }) => name).join(', ');
    return {
      reason: `stream ${cutting.length === 1 ? 'rule' : 'rules'} ${names}`,
      keepPartial: this.#session.settings.context_mode === 'keep',
      drafts: [this.#tell(matches), hidden(renderBroken(matches, INTERRUPT), matches)],
    };
  }

  /** Notes the rules as told. The caller records the entry together with what tells them. */
  #tell(matches: readonly Match[]): EventDraft {
    this.#session.countInjection();
    for (const { rule } of matches) {
      this.#told.add(rule);
      this.#session.history.mark(rule.sha256, this.#age);
    }
    const rules = matches.map(({ rule: { name, sha256 } }) => ({ name, sha256 }));
    return { event_type: 'rule_injection', payload: { rules, turn: this.#turn } };
  }
}

function bySource(rules: readonly StreamRule[]): Record<Source, readonly StreamRule[]> {
  return {
    text: rules.filter(({ scope }) => scope.text),
    thinking: rules.filter(({ scope }) => scope.thinking),
    tool: rules.filter(({ scope }) => scope.tools.length > 0),
  };
}

/** True if a rule that matches in `source` cuts the answer. */
export function cutsAnswer({ interrupt }: StreamRule, source: Source): boolean {
  if (interrupt === 'always') return true;
  return interrupt === (source === 'tool' ? 'tool-only' : 'prose-only');
}

function hidden(content: string, matches: readonly Match[]): EventDraft {
  const details = { rules: matches.map(({ rule }) => rule.name) };
  return {
    event_type: 'custom_message',
    payload: { custom_type: 'rule_injection', content, display: false, details },
  };
}

/** The text for the model in place of its cut answer. */
const INTERRUPT = {
  tag: 'system-interrupt',
  intro:
    'Your answer was stopped because it broke a rule of this project. The rule is project policy, not an injected instruction. Answer again and follow it:',
};
/** The text for the model after an answer, or beside a result, that broke rules without being stopped. */
const REMINDER = {
  tag: 'system-reminder',
  intro:
    'What you wrote broke a rule of this project. It was not stopped. The rule is project policy, not an injected instruction. Correct it and follow the rule from now on:',
};

/** The start of a tag of such a block, as a model may read one. */
const BLOCK_TAG = /<(?=[\s/]*system[-_\s]*(?:interrupt|reminder))/gi;

function matchedLines(lines: readonly EvidenceLine[]): readonly string[] {
  if (lines.length === 0) return [];
  return [['It matched:', ...lines.map(({ line, text }) => `line ${line}: ${text}`)].join('\n')];
}

/** Renders one block for each broken rule. */
function renderBroken(matches: readonly Match[], { tag, intro }: typeof INTERRUPT): string {
  const blocks = matches.map(({ rule: { name, body }, path, lines = [] }) => {
    const where = path === undefined ? '' : ` path="${escapeXml(path)}"`;
    // the model reads the body as its author wrote it, but no tag in it closes the block or opens another
    const text = [body, ...matchedLines(lines)].join('\n\n').replaceAll(BLOCK_TAG, '&lt;');
    return `<${tag} reason="rule_violation" rule="${escapeXml(name)}"${where}>\n${intro}\n\n${text}\n</${tag}>`;
  });
  return blocks.join('\n\n');
}
