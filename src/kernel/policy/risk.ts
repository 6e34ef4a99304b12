import { type Acknowledgement, RISKS, type Risk, toolCapability } from '../core/capability.ts';
import { assertConfig, type CheckedSchema } from '../core/check.ts';
import { RyeError, type SourceLocation } from '../core/errors.ts';
import { compact } from '../core/json.ts';
import schemas from '../schemas/policy.json' with { type: 'json' };
import type { RiskTableFile } from '../schemas/policy.ts';
import { includes, isExact, meet, parseCapability, specificity } from './capability.ts';

const schema: CheckedSchema = schemas.properties.riskTable;

/** Requirement for holding a capability of some risk. */
export type RiskPolicy = NonNullable<NonNullable<RiskTableFile['risk_levels']>[Risk]>;

/** One row of `capability_risk.yaml`. */
export interface RiskClassification {
  readonly risk: Risk;
  readonly patterns: readonly string[];
  readonly description: string;
}

/** `capability_risk.yaml` as a value. */
export interface RiskTable {
  readonly levels: Readonly<Record<Risk, RiskPolicy>>;
  readonly classifications: readonly RiskClassification[];
}

/** Risk of one granted capability, and why. */
export interface AssessedRisk {
  readonly capability: string;
  readonly risk: Risk;
}

const DEFAULT_LEVELS: RiskTable['levels'] = {
  safe: 'allow',
  write: 'allow',
  elevated: 'acknowledge_required',
  unrestricted: 'block',
};

/**
 * Reads the value of `capability_risk.yaml`: `risk_levels` (risk → allow, ask, acknowledge_required or block) and
 * `classifications`. Throws `config_invalid` for another shape.
 */
export function parseRiskTable(value: unknown, origin: SourceLocation): RiskTable {
  assertConfig(schema, value, 'capability_risk', origin);
  const { risk_levels: levels = {}, classifications } = value as RiskTableFile;
  return {
    levels: { ...DEFAULT_LEVELS, ...compact(levels) },
    classifications: classifications.map(({ risk, patterns, description = '' }) => ({
      risk,
      patterns: patterns.map((pattern) => parseCapability(String(pattern), origin)),
      description: String(description),
    })),
  };
}

interface Match {
  readonly risk: Risk;
  readonly pattern: string;
}

/**
 * Risk of holding a capability. The most specific pattern that includes it decides, and of equally specific ones
 * the highest risk; a capability with `*` also takes the risk of every more specific pattern that it could reach.
 * A capability that no pattern classifies is elevated. `declared` is the risk of the item itself: it counts if the table classifies
 * only its whole type, and can raise but not lower the table's risk of its id or of a pattern. A capability with
 * `*` is lowered by it only if it is `bounded`: if it reaches nothing but tools of the program.
 */
export function riskOf(
  capability: string,
  table: RiskTable,
  declared?: Risk,
  bounded = isExact(capability),
): Risk {
  const matches: Match[] = table.classifications.flatMap(({ risk, patterns }) =>
    patterns.map((pattern) => ({ risk, pattern })),
  );
  const deciding = mostSpecific(matches.filter(({ pattern }) => includes(pattern, capability)));
  const classified = deciding?.risk ?? 'elevated';
  const blanket = deciding === undefined || isBlanket(deciding.pattern);
  const known = bounded && blanket ? (declared ?? classified) : classified;
  // what meets a capability without `*` includes it
  const reached = isExact(capability)
    ? []
    : matches.filter(
        ({ pattern }) => !includes(pattern, capability) && meet(pattern, capability).length > 0,
      );
  return highest([known, declared ?? 'safe', ...reached.map(({ risk }) => risk)]);
}

function mostSpecific(matches: readonly Match[]): Match | undefined {
  const rank = ({ pattern, risk }: Match): number =>
    specificity(pattern) * RISKS.length + RISKS.indexOf(risk);
  return matches.reduce<Match | undefined>(
    (best, match) => (best === undefined || rank(match) > rank(best) ? match : best),
    undefined,
  );
}

/** True if a pattern covers whole verbs or types rather than ids. */
function isBlanket(pattern: string): boolean {
  return pattern
    .split('.')
    .slice(3)
    .every((segment) => segment === '*');
}

function highest(risks: readonly Risk[]): Risk {
  return risks.reduce(
    (top, risk) => (RISKS.indexOf(risk) > RISKS.indexOf(top) ? risk : top),
    'safe',
  );
}

/** Input of {@link assessRisks}. */
export interface RiskRequest {
  /** After attenuation and ceilings. */
  readonly capabilities: readonly string[];
  readonly table: RiskTable;
  readonly acknowledged: readonly Acknowledgement[];
  /** Item and MCP tools by id with the risk that they declare; undefined if they declare none. */
  readonly toolRisks: ReadonlyMap<string, Risk | undefined>;
  /** Capabilities with `*` that reach only tools of the program: their declared risk counts as that of exact ones does. */
  readonly bounded?: ReadonlySet<string>;
}

/** Verdict on a set of capabilities: all risks, and an error for each one that may not be held. */
export interface RiskAssessment {
  readonly risks: readonly AssessedRisk[];
  /** `acknowledge_required` and `risk_blocked`, in the order of the capabilities. */
  readonly refusals: readonly RyeError[];
}

/**
 * Judges what a thread is about to hold. Acknowledging a risk also acknowledges the lower ones, for the same tools.
 */
export function assessRisks(request: RiskRequest): RiskAssessment {
  const { capabilities, table, acknowledged, toolRisks, bounded } = request;
  const risks = capabilities.map((capability) => ({
    capability,
    risk: riskOf(
      capability,
      table,
      declaredRisk(capability, toolRisks),
      isExact(capability) || bounded?.has(capability),
    ),
  }));
  const refusals = risks
    .filter(({ risk }) => isRefused(table.levels[risk]))
    .filter((assessed) => !acknowledged.some((one) => accepts(one, assessed)))
    .map((assessed) => refusal(assessed, table));
  return { risks, refusals };
}

/** True if an acknowledgement is of that risk or a higher one, and of all that the capability reaches. */
function accepts({ risk, tool }: Acknowledgement, assessed: AssessedRisk): boolean {
  if (RISKS.indexOf(assessed.risk) > RISKS.indexOf(risk)) return false;
  return tool === undefined || includes(toolCapability(tool), assessed.capability);
}

/** A risk that a person is asked about at each call may be held. */
function isRefused(level: RiskPolicy): boolean {
  return level !== 'allow' && level !== 'ask';
}

/**
 * The capabilities with `*` whose tools are all `own`: tools of the program, or signed item tools that the plan names with
 * their risk. One that could reach an MCP server, another item type or the built-in tools as well is not among them. A
 * tool that comes later is judged when it is loaded.
 */
export function boundedCapabilities(
  capabilities: readonly string[],
  tools: readonly { readonly id: string; readonly own: boolean }[],
): ReadonlySet<string> {
  const bounded = capabilities.filter((capability) => {
    const [, verb, type, namespace = '*'] = capability.split('.');
    if (isExact(capability) || verb !== 'execute' || type !== 'tool') return false;
    if (namespace.includes('*') || RESERVED_NAMESPACES.has(namespace)) return false;
    const reached = tools.filter(({ id }) => includes(capability, toolCapability(id)));
    return reached.length > 0 && reached.every(({ own }) => own);
  });
  return new Set(bounded);
}

const RESERVED_NAMESPACES: ReadonlySet<string> = new Set(['mcp', 'rye']);

/** The highest risk among the tools that a capability reaches; a tool that declares nothing is elevated. */
function declaredRisk(
  capability: string,
  toolRisks: ReadonlyMap<string, Risk | undefined>,
): Risk | undefined {
  const reached: Risk[] = [];
  for (const [id, risk] of toolRisks) {
    if (includes(capability, toolCapability(id))) reached.push(risk ?? 'elevated');
  }
  return reached.length === 0 ? undefined : highest(reached);
}

function refusal({ capability, risk }: AssessedRisk, table: RiskTable): RyeError {
  const blocked = table.levels[risk] === 'block';
  const rows = table.classifications.filter((row) => row.risk === risk);
  const why = rows
    .flatMap(({ patterns, description }) => patterns.map((pattern) => ({ pattern, description })))
    .filter(({ pattern }) => includes(pattern, capability))
    .toSorted((one, other) => specificity(other.pattern) - specificity(one.pattern))
    .at(0)?.description;
  const reason = why === undefined || why === '' ? '' : ` (${why})`;
  const [, tool] = /^rye\.execute\.tool\.(.+)$/.exec(capability) ?? [];
  const id = tool?.replaceAll('.', '/');
  const option = id === undefined ? risk : `${risk}:${id}`;
  const attribute = id === undefined ? '' : ` tool="${id}"`;
  return new RyeError(
    blocked ? 'risk_blocked' : 'acknowledge_required',
    `the capability "${capability}" is ${risk}${reason} and ${blocked ? 'blocked' : 'refused'} unless acknowledged`,
    {
      hint: `Pass --acknowledge ${option} (not for --async, hooks and children), add <acknowledge risk="${risk}"${attribute}>REASON</acknowledge> to the directive's <permissions>, or accept it for the project: risk_levels: {${risk}: allow} in .ai/config/agent/capability_risk.yaml.`,
      details: { capability, risk },
    },
  );
}

/** A tool's access, as far as its traits and its id tell. */
export interface TaintedTool {
  readonly id: string;
  /** Reaches other systems, so it brings in text that anybody may have written, and can carry text out. */
  readonly network: boolean;
}

/** Built-in tools that show the model what is in files and knowledge. */
const READERS = new Set([
  'rye/file-system/read',
  'rye/file-system/grep',
  'rye/file-system/edit',
  'rye/search',
  'rye/bash',
]);

/** Prefix of a taint note. */
const TAINT = 'taint: ';

/** True for a taint note among the warnings of a plan: it describes a choice of the author, not a fault. */
export function isTaintNote(warning: string): boolean {
  return warning.startsWith(TAINT);
}

/**
 * One sentence when a thread holds all of private data, untrusted content and an outward channel, else undefined:
 * the author of the untrusted text can then ask for the private data. (Known as the lethal trifecta, S. Willison.)
 */
export function taintNote(
  tools: readonly TaintedTool[],
  capabilities: readonly string[],
): string | undefined {
  const outward = tools.filter(({ network }) => network).map(({ id }) => id);
  const readers = tools.filter(({ id }) => READERS.has(id)).map(({ id }) => id);
  const fetches = capabilities.filter((one) => one === 'rye.*' || one.startsWith('rye.fetch.'));
  if (outward.length === 0 || (readers.length === 0 && fetches.length === 0)) return undefined;
  return `${TAINT}it reads private data (${listed([...readers, ...fetches])}), and through ${listed(outward)} it sees text that anybody may have written and can send data out; text that it reads could make it leak what it knows`;
}

function listed(names: readonly string[]): string {
  const unique = [...new Set(names)];
  const rest = unique.length - 3;
  return rest > 0 ? `${unique.slice(0, 3).join(', ')} and ${rest} more` : unique.join(', ');
}
