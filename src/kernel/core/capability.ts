import type { ItemType } from './ids.ts';

/** Actions on an item that a capability can allow. */
export const VERBS = ['execute', 'fetch', 'sign'] as const;
export type Verb = (typeof VERBS)[number];

/**
 * A call needs a verb on the item that it really uses. Without `item_id` the call is a query over a type.
 */
export interface CapabilityNeed {
  readonly verb: Verb;
  readonly item_type: ItemType;
  readonly item_id?: string;
}

/** Risks of holding a capability, the lowest first. */
export const RISKS = ['safe', 'write', 'elevated', 'unrestricted'] as const;
export type Risk = (typeof RISKS)[number];

/** A risk to accept, for all tools or for those that a pattern covers: `elevated`, `elevated:rye/bash`. */
export type AcceptedRisk = Risk | `${Risk}:${string}`;

/** A risk that a person accepted, with the reason and the place of the acceptance. */
export interface Acknowledgement {
  readonly risk: Risk;
  /** The tools that it is accepted for, as a pattern of IDs; absent: for all of that risk. */
  readonly tool?: string;
  readonly reason: string;
  readonly origin: string;
}

/** The option that makes the same acknowledgement. */
export function acceptedRisk({ risk, tool }: Acknowledgement): AcceptedRisk {
  return tool === undefined ? risk : `${risk}:${tool}`;
}

/** `rye.*`, `rye.<verb>.*`, `rye.<verb>.<type>` or `rye.<verb>.<type>.<id with / as .>`, `*` crossing segments. */
const CAPABILITY =
  /^rye\.(?:\*|(?:execute|fetch|sign)\.(?:\*|(?:directive|tool|knowledge|rule|skill)(?:\.[A-Za-z0-9_*.-]+)?))$/;

/** Why `text` is no tool ID and no pattern of them, or undefined when it is one. */
export function toolProblem(text: string): string | undefined {
  return capabilityProblem(toolCapability(text));
}

/** The capability to run a tool, or the tools that a pattern of IDs covers. */
export function toolCapability(id: string): string {
  return `rye.execute.tool.${id.replaceAll('/', '.')}`;
}

/** Why `text` is not a capability pattern, or undefined when it is. */
export function capabilityProblem(text: string): string | undefined {
  if (text.includes('..')) return 'it has an empty segment';
  if (text.endsWith('.')) return 'it ends with a dot';
  return CAPABILITY.test(text)
    ? undefined
    : 'it is not rye.<execute|fetch|sign>.<directive|tool|knowledge|rule|skill>.<id or pattern>';
}

/** The capability string of a need: the id's slashes as dots. */
export function capabilityOf({ verb, item_type, item_id }: CapabilityNeed): string {
  const base = `rye.${verb}.${item_type}`;
  return item_id === undefined ? base : `${base}.${item_id.replaceAll('/', '.')}`;
}
