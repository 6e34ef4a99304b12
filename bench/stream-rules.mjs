// CPU time of 20 rules over a stream of 4-character pieces, as prose and as the arguments of a call. Target: 100 ms for
// 200,000 characters, compiling included; it fails at 300 ms.
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { tsImport } from 'tsx/esm/api';
import { median, row } from './harness.mjs';

const RULES = 20;
const PIECE = 4;
const LENGTHS = [50_000, 100_000, 200_000, 1_000_000];
const ROUNDS = 5;
const LIMIT_MS = 300;
const SETTINGS = {
  enabled: true,
  context_mode: 'discard',
  interrupt_mode: 'always',
  repeat_mode: 'once',
  repeat_gap: 10,
  builtin_rules: true,
  disabled_rules: [],
  max_interrupts_per_run: 5,
  buffer_limit: 65_536,
};

async function source(file) {
  return await tsImport(`../src/${file}`, import.meta.url);
}

/** The parts under test and the first 20 of the shipped rules, made to watch prose and every call. */
async function load() {
  const [{ parseRule }, { compileRules }, { AnswerWatch }, { RuleSession }, { compileGlob }] =
    await Promise.all(
      [
        'kernel/items/rule.ts',
        'features/rules/stream/rules.ts',
        'features/rules/stream/answer-watch.ts',
        'features/rules/stream/session.ts',
        'kernel/tools/glob-pattern.ts',
      ].map(source),
    );
  const folder = path.resolve(import.meta.dirname, '../.ai/rules');
  const rules = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.md'))
    .slice(0, RULES)
    .map((file) => ({
      ...parseRule(readFileSync(path.join(folder, file), 'utf8'), file),
      sha256: file,
      scope: ['text', 'tool'],
    }));
  return () => {
    const session = new RuleSession({
      rules: compileRules(rules, SETTINGS, compileGlob),
      settings: SETTINGS,
      projectPath: '/project',
      toolIds: new Map(),
    });
    return new AnswerWatch(session, 1);
  };
}

/** Code that breaks no rule. */
const PAGE = `export function total(prices: readonly number[], rate: number): number {
  // the rate is a part of one, such as 0.2
  const sum = prices.reduce((left, right) => left + right, 0);
  if (sum < 0) throw new RangeError('a price is below zero');
  return Math.round(sum * (1 + rate) * 100) / 100;
}
`;

function events(length, kind) {
  const text = PAGE.repeat(Math.ceil(length / PAGE.length)).slice(0, length);
  const json = kind === 'prose' ? text : JSON.stringify({ path: 'a.ts', content: text });
  const pieces = kind === 'prose' ? [] : [{ type: 'toolcall_start', call_id: 'c', name: 'write' }];
  for (let at = 0; at < json.length; at += PIECE) {
    const piece = json.slice(at, at + PIECE);
    pieces.push(
      kind === 'prose'
        ? { type: 'text_delta', text: piece }
        : { type: 'toolcall_delta', call_id: 'c', json: piece },
    );
  }
  return [...pieces, { type: 'finish', reason: 'end', content: [] }];
}

/** CPU milliseconds to compile the rules and watch one answer with them. */
function cost(open, answer) {
  const begun = process.cpuUsage();
  const watcher = open();
  for (const event of answer) {
    if (watcher.observe(event)) throw new Error('the sample breaks a rule');
  }
  const { user, system } = process.cpuUsage(begun);
  return (user + system) / 1000;
}

export async function run() {
  const open = await load();
  row(`${RULES} stream rules, CPU with compiling`, 'first', 'median', 'a character');
  for (const kind of ['prose', 'call']) {
    for (const length of LENGTHS) {
      const answer = events(length, kind);
      const costs = Array.from({ length: ROUNDS }, () => cost(open, answer));
      const middle = median(costs);
      const each = `${((middle * 1e6) / length).toFixed(0)} ns`;
      row(
        `  ${kind}, ${length} characters`,
        `${costs[0].toFixed(0)} ms`,
        `${middle.toFixed(0)} ms`,
        each,
      );
      if (length === 200_000 && middle >= LIMIT_MS) throw new Error('stream rules are too slow');
    }
  }
}
