import type {
  ApprovalRequirement,
  ApprovalScope,
  Approver,
  Ask,
  AskedPermission,
  OnExpiry,
} from '../core/approval.ts';
import { APPROVAL_SCOPES } from '../core/approval.ts';
import { RISKS, type Risk } from '../core/capability.ts';
import { type CheckedSchema, findProblem } from '../core/check.ts';
import { RyeError, type SourceLocation } from '../core/errors.ts';
import type { Condition } from '../core/hook.ts';
import { wireName } from '../core/ids.ts';
import { compact, isRecord, type JsonObject } from '../core/json.ts';
import { didYouMean } from '../core/text.ts';
import files from '../schemas/settings.json' with { type: 'json' };
import type { SettingsFiles } from '../schemas/settings.ts';
import { type CallView, callViews, type JudgedInput, matchedView } from './call-views.ts';
import { includes, meet, parseCapability } from './capability.ts';
import { conditionPaths, parseCondition } from './condition.ts';
import { globMatches } from './glob.ts';

const schema: CheckedSchema = files.properties['agent/approvals'];

/** Time after which a request expires if no policy sets another. */
const DEFAULT_EXPIRY_MS = 7 * 86_400_000;

/** A person of a policy. */
export interface PolicyApprover extends Approver {
  /** Capability patterns that the person may decide about. */
  readonly may: readonly string[];
}

/** One rule of a policy; it matches if everything that it names does. */
export interface ApprovalRule {
  /** Place in the policy, such as `rules.0`. */
  readonly name: string;
  readonly tool?: string;
  readonly capability?: string;
  readonly risk?: Risk;
  readonly when?: Condition;
  /** Matches a call that may cost more than this, in USD. */
  readonly spendAbove?: number;
  readonly ask: readonly string[];
  readonly reason?: string;
  readonly scopes: readonly ApprovalScope[];
  readonly quorum: number;
  readonly expiresMs?: number;
  readonly onExpiry: OnExpiry;
}

/** A program or a server that is told about requests. It shows them; it never decides. */
export type Notification =
  | { readonly command: readonly string[] }
  | { readonly webhook: string; readonly secret?: string };

/** `approvals.yaml` of one space as a value. */
export interface ApprovalPolicy {
  /** `project` or `user`. */
  readonly space: string;
  readonly approvers: readonly PolicyApprover[];
  readonly rules: readonly ApprovalRule[];
  readonly expiresMs?: number;
  readonly waitInlineMs?: number;
  readonly notify: readonly Notification[];
}

type ApprovalsFile = SettingsFiles['agent/approvals'];

/** Reads `approvals.yaml`. Throws `config_invalid`, `condition_invalid` or `pattern_invalid` with the place of the mistake. */
export function parseApprovalPolicy(
  value: unknown,
  space: string,
  location: SourceLocation,
): ApprovalPolicy {
  const problem = findProblem(schema, value);
  if (problem) {
    const path = problem.path.join('.');
    const what = problem.known ? `unknown member "${path}"` : `${path} ${problem.text}`;
    throw invalid(what, location, problem.hint ?? problem.known?.join(', '));
  }
  const file = value as ApprovalsFile;
  const approvers = Object.entries(file.approvers ?? {}).map(
    ([name, { key, may = ['*'], four_eyes: fourEyes }]): PolicyApprover => ({
      name,
      key_id: key,
      may: may.map((pattern) => approverPattern(pattern, location)),
      ...(fourEyes === true ? { four_eyes: true } : {}),
    }),
  );
  const names = approvers.map(({ name }) => name);
  const rules = (file.rules ?? []).map((rule, index) =>
    readRule(rule, `rules.${index}`, { names, location }),
  );
  for (const rule of rules) assertQuorum(rule, approvers, location);
  return compact({
    space,
    approvers,
    rules,
    expiresMs: file.expires === undefined ? undefined : durationMs(file.expires),
    waitInlineMs: file.wait_inline === undefined ? undefined : durationMs(file.wait_inline),
    notify: (file.notify ?? []).map(readNotification),
  });
}

function readNotification(entry: NonNullable<ApprovalsFile['notify']>[number]): Notification {
  if ('webhook' in entry) return compact(entry);
  return { command: typeof entry.command === 'string' ? [entry.command] : entry.command };
}

/** `*` means every capability; a pattern without `rye.` names tools. */
function approverPattern(pattern: string, location: SourceLocation): string {
  if (pattern === '*') return 'rye.*';
  return parseCapability(
    pattern.startsWith('rye.') ? pattern : `rye.execute.tool.${pattern}`,
    location,
  );
}

function readRule(
  file: NonNullable<ApprovalsFile['rules']>[number],
  name: string,
  { names, location }: { readonly names: readonly string[]; readonly location: SourceLocation },
): ApprovalRule {
  const ask = typeof file.ask === 'string' ? [file.ask] : file.ask;
  const unknown = ask.find((one) => !names.includes(one));
  if (unknown !== undefined) {
    const hint = didYouMean(unknown, names) ?? `Approvers are ${names.join(', ') || 'none'}.`;
    throw invalid(`${name} asks "${unknown}", who is not an approver`, location, hint);
  }
  assertCanFire(file, name, location);
  return compact({
    name,
    tool: file.tool,
    capability:
      file.capability === undefined ? undefined : parseCapability(file.capability, location),
    risk: file.risk,
    when: file.when === undefined ? undefined : readCondition(file.when, location),
    spendAbove: file.spend_above,
    ask: [...new Set(ask)],
    reason: file.reason,
    scopes: scopesOf(file.scope),
    quorum: file.quorum ?? 1,
    expiresMs: file.expires === undefined ? undefined : durationMs(file.expires),
    onExpiry: file.on_expiry ?? 'deny',
  });
}

/** Refuses a rule that no call can match: it looks like a guard and asks about nothing. */
function assertCanFire(
  { tool, capability, spend_above: spendAbove }: NonNullable<ApprovalsFile['rules']>[number],
  name: string,
  location: SourceLocation,
): void {
  const [odd] = /[^\w*./@:-]/.exec(tool ?? '') ?? [];
  if (odd !== undefined) {
    const what = `${name} names the tool "${tool}": no ID has "${odd}"`;
    throw invalid(
      what,
      location,
      'In patterns of tools * matches any text; there is no other wildcard.',
    );
  }
  if (spendAbove === undefined) return;
  const isOfDirectives =
    (tool === undefined || namesTool(tool, 'rye/execute')) &&
    (capability === undefined || meet(capability, 'rye.execute.directive.*').length > 0);
  if (isOfDirectives) return;
  throw invalid(
    `${name} asks by spend_above, and only a child directive has a price that is known before it runs`,
    location,
    'Remove spend_above, or write capability: rye.execute.directive.*',
  );
}

/** True if a pattern names a tool, by its ID or by the name that models see. */
export function namesTool(pattern: string, tool: string): boolean {
  return globMatches(pattern, tool) || globMatches(pattern, wireName(tool));
}

/** A scope by itself also allows the narrower ones. */
function scopesOf(scope: ApprovalScope | ApprovalScope[] | undefined): readonly ApprovalScope[] {
  if (scope === undefined) return APPROVAL_SCOPES;
  if (typeof scope !== 'string') return APPROVAL_SCOPES.filter((one) => scope.includes(one));
  return APPROVAL_SCOPES.slice(0, APPROVAL_SCOPES.indexOf(scope) + 1);
}

/** The members that conditions can name: `cost` is what the thread has used, `cost_left` the USD that it may still spend. */
const FACTS = ['input', 'tool', 'capability', 'risk', 'cost', 'cost_left'];

/** A condition of hooks over `input`, `cost` and the call, or `{argument, matches | above | below | equals}`. */
function readCondition(raw: unknown, location: SourceLocation): Condition {
  if (!isRecord(raw) || !Object.hasOwn(raw, 'argument')) {
    const condition = parseCondition(raw, location);
    // a path that never has a value would let every call through unasked
    for (const path of conditionPaths(condition)) {
      const [root = ''] = path.split('.');
      if (FACTS.includes(root)) continue;
      const hint = didYouMean(root, FACTS) ?? `Conditions know ${FACTS.join(', ')}.`;
      throw invalid(`a condition names "${path}", which is unknown`, location, hint);
    }
    return condition;
  }
  const { argument, ...test } = raw;
  const [[name, value] = ['', undefined], ...more] = Object.entries(test);
  const op = Object.hasOwn(TESTS, name) ? TESTS[name as keyof typeof TESTS] : undefined;
  if (op === undefined || more.length > 0) {
    throw invalid(
      'a condition on an argument needs exactly one test',
      location,
      `Tests are ${Object.keys(TESTS).join(', ')}.`,
    );
  }
  return parseCondition({ path: `input.${String(argument)}`, op, value }, location);
}

const TESTS = {
  matches: 'regex',
  above: 'gt',
  below: 'lt',
  equals: 'eq',
  contains: 'contains',
  in: 'in',
} as const;

/** Refuses a rule about which not enough of the approvers that it names may decide. */
function assertQuorum(
  rule: ApprovalRule,
  approvers: readonly PolicyApprover[],
  location: SourceLocation,
): void {
  const { name, ask, quorum } = rule;
  const named = approversNamed(approvers, ask);
  const about = capabilityOfRule(rule);
  const excluded = named.find(({ may }) => !may.some((pattern) => meet(pattern, about).length > 0));
  if (excluded) {
    const what = `${name} asks ${excluded.name}, whose \`may\` covers nothing that the rule applies to`;
    throw invalid(
      what,
      location,
      `Add the tool to \`may\` of ${excluded.name}, or ask another one.`,
    );
  }
  const keys = new Set(named.map(({ key_id: key }) => key));
  if (keys.size >= quorum) return;
  throw invalid(
    `${name} needs ${quorum} approvers, and its names have ${keys.size} keys`,
    location,
    'Name more approvers with different keys, or lower the quorum.',
  );
}

/** The pattern of the capabilities that a rule applies to, as far as it is known before a call. */
function capabilityOfRule({ capability, tool }: ApprovalRule): string {
  if (capability !== undefined) return capability;
  // a name as models see it is that of several IDs
  const isGlob = tool === undefined || /[*]/.test(tool.replace(/\/\*\*?$/, '')) || isWireName(tool);
  // the primary tools act on items, whose capabilities are others
  if (isGlob || PRIMARY.has(tool)) return 'rye.*';
  return `rye.execute.tool.${tool.replace(/\*\*$/, '*').replaceAll('/', '.')}`;
}

function isWireName(tool: string): boolean {
  return tool.includes('_') && !tool.includes('/');
}

const PRIMARY: ReadonlySet<string> = new Set([
  'rye/execute',
  'rye/fetch',
  'rye/sign',
  'rye/agent/limit',
]);

function approversNamed(
  approvers: readonly PolicyApprover[],
  names: readonly string[],
): readonly PolicyApprover[] {
  return approvers.filter(({ name }) => names.includes(name));
}

function invalid(what: string, location: SourceLocation, hint: string | undefined): RyeError {
  return new RyeError('config_invalid', `approvals: ${what}`, {
    location,
    hint: hint ?? 'See docs/approvals.md.',
  });
}

const UNITS_MS = {
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
  w: 604_800_000,
} as const;

/** Milliseconds of `30s`, `24h`, `7d` or a number of seconds; `NaN` for anything else. */
function durationMs(text: string | number): number {
  if (typeof text === 'number') return text * 1000;
  const [, amount, unit = ''] = /^(\d{1,6}(?:\.\d{1,3})?)(ms|[smhdw])$/.exec(text) ?? [];
  return amount === undefined
    ? Number.NaN
    : Number(amount) * UNITS_MS[unit as keyof typeof UNITS_MS];
}

/** The facts of a call that rules and permissions are matched against. */
export interface AskedCall {
  readonly tool: string;
  readonly capability: string;
  readonly risk: Risk;
  readonly input: JsonObject;
  /** The files that the call names and opens; absent: rules judge what was written. */
  readonly judged?: JudgedInput | undefined;
  readonly worstCaseUsd: number | null;
  /** Further members for conditions, such as `cost` and `cost_left`. */
  readonly context: JsonObject;
  /** Names of the tool's parameters; absent: it takes others too. */
  readonly parameters?: readonly string[] | undefined;
}

export type GateVerdict = 'deny' | 'ask' | 'allow';

/** The decision table: any refusal denies, else any ask asks, else the call is allowed. */
export function gateVerdict(refusals: number, asks: number): GateVerdict {
  if (refusals > 0) return 'deny';
  return asks > 0 ? 'ask' : 'allow';
}

/** The first rule of a policy about each part of a call: a rule about one part hides no rule about another. */
function matchingRules({ rules }: ApprovalPolicy, call: AskedCall): readonly ApprovalRule[] {
  const views = callViews(call.tool, call.input, call.judged);
  const matched = new Set(views.map((view) => rules.find((rule) => matches(rule, call, view))));
  return rules.filter((rule) => matched.has(rule));
}

function matches(rule: ApprovalRule, call: AskedCall, view: CallView): boolean {
  const { tool, capability, risk, when, spendAbove } = rule;
  if (tool !== undefined && !namesTool(tool, call.tool)) return false;
  if (capability !== undefined && !includes(capability, call.capability)) return false;
  // a rule for a risk also applies to the higher risks
  if (risk !== undefined && RISKS.indexOf(call.risk) < RISKS.indexOf(risk)) return false;
  if (spendAbove !== undefined && (call.worstCaseUsd ?? 0) <= spendAbove) return false;
  const { tool: id, capability: needed, risk: level } = call;
  const context = { ...call.context, tool: id, capability: needed, risk: level };
  return matchedView(when, context, [view]) !== undefined || isBlind(rule, call);
}

/** True if a rule about one tool tests a parameter that the tool does not have: it would never ask. */
function isBlind({ tool, when }: ApprovalRule, { tool: id, parameters }: AskedCall): boolean {
  if (when === undefined || parameters === undefined || tool !== id) return false;
  return conditionPaths(when).some((path) => {
    const [root, name = ''] = path.split('.');
    return root === 'input' && !parameters.includes(name.replace(/\[.*$/, ''));
  });
}

/** Everything that a person has to agree to before a call runs. */
export interface Demand {
  readonly requirements: readonly ApprovalRequirement[];
  readonly reason: string;
  readonly scopes: readonly ApprovalScope[];
  readonly expiresMs: number;
  readonly onExpiry: OnExpiry;
}

/**
 * Returns what a call needs, or undefined if nothing asks. The first matching rule of each policy counts; a demand from
 * elsewhere goes to the approvers who may decide about the capability, or to the owner of the thread if no policy names any.
 */
export function demandFor(
  policies: readonly ApprovalPolicy[],
  call: AskedCall,
  asks: readonly Ask[],
  owner: Approver,
): Demand | undefined {
  const matched = policies.flatMap((policy) =>
    matchingRules(policy, call).map((rule) => ({ policy, rule })),
  );
  if (gateVerdict(0, matched.length + asks.length) === 'allow') return undefined;
  const rules = matched.map(({ rule }) => rule);
  const ruled = matched.map(({ policy, rule }): ApprovalRequirement => {
    const named = approversNamed(policy.approvers, rule.ask);
    return {
      rule: `${policy.space} ${rule.name}`,
      approvers: named.filter((one) => mayDecide(one, call.capability)).map(approverOf),
      quorum: rule.quorum,
    };
  });
  const requirements = ruled.length > 0 ? ruled : [fallback(policies, call, asks, owner)];
  const scopes = APPROVAL_SCOPES.filter((scope) =>
    rules.every((rule) => rule.scopes.includes(scope)),
  );
  const expiries = matched.flatMap(({ policy, rule }) => rule.expiresMs ?? policy.expiresMs ?? []);
  const general = policies.flatMap(({ expiresMs }) => expiresMs ?? []);
  const limits = expiries.length > 0 ? expiries : general;
  return {
    requirements,
    reason: [...asks.map(({ reason }) => reason), ...rules.flatMap(({ reason }) => reason ?? [])]
      .filter((text, index, all) => text !== '' && all.indexOf(text) === index)
      // a sentence ends before the next one
      .join('; ')
      .replaceAll('.; ', '. '),
    scopes: scopes.length === 0 ? ['once'] : scopes,
    expiresMs: limits.length === 0 ? DEFAULT_EXPIRY_MS : Math.min(...limits),
    onExpiry: rules.some(({ onExpiry }) => onExpiry === 'end') ? 'end' : 'deny',
  };
}

function fallback(
  policies: readonly ApprovalPolicy[],
  call: AskedCall,
  asks: readonly Ask[],
  owner: Approver,
): ApprovalRequirement {
  const known = policies.flatMap(({ approvers }) => approvers);
  const able = known.filter((one) => mayDecide(one, call.capability)).map(approverOf);
  return {
    rule: [...new Set(asks.map(({ source }) => source))].join(', '),
    approvers: known.length === 0 ? [owner] : able,
    quorum: 1,
  };
}

function mayDecide({ may }: PolicyApprover, capability: string): boolean {
  return may.some((pattern) => includes(pattern, capability));
}

function approverOf({ name, key_id, four_eyes: fourEyes }: PolicyApprover): Approver {
  return { name, key_id, ...(fourEyes === true ? { four_eyes: fourEyes } : {}) };
}

/** The entries of `<permissions>` that ask about a capability. */
export function permissionAsks(
  entries: readonly AskedPermission[],
  capability: string,
): readonly Ask[] {
  return entries.filter((entry) => includes(entry.capability, capability));
}
