import type { AskedPermission } from '../core/approval.ts';
import type { Acknowledgement } from '../core/capability.ts';
import type { SourceLocation } from '../core/errors.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import type { LimitName } from '../core/limits.ts';
import type { OutputDeclaration, ProcessStep, ThreadPlan, ValueType } from '../core/plan.ts';
import { type ItemProblem, originOf, type Problems } from './source.ts';
import type { XmlElement } from './xml.ts';

/** The model that a `<model>` element requests. */
export interface ModelChoice {
  readonly tier?: string;
  readonly id?: string;
  readonly provider?: string;
  /** Model id or tier to use if the first choice fails. */
  readonly fallback?: string;
  readonly thinking?: ThreadPlan['thinking'];
}

/** One limit as a directive declares it, `max_` spelling already resolved; `spend` is USD. */
export interface RawLimit {
  readonly name: LimitName;
  readonly value: number;
  readonly location: SourceLocation;
}

/** A hook before validation, in the shape of the YAML form. `origin` is `file:line`. */
export interface RawHook {
  readonly value: JsonObject;
  readonly origin: string;
}

export interface Permissions {
  /** Capability patterns in document order. */
  readonly capabilities: readonly string[];
  /** The capabilities without which the directive may run. */
  readonly optional: readonly string[];
  /** Entries with `ask`: a person has to agree before what they allow is done. */
  readonly asks: readonly AskedPermission[];
  readonly acknowledgements: readonly Acknowledgement[];
  /** True if descendants must stay within these capabilities. */
  readonly ceiling: boolean;
  /** The element as written, for the prompt; empty if there is none. */
  readonly xml: string;
  readonly origin: string;
}

export interface InputDeclaration {
  readonly name: string;
  readonly type: ValueType;
  readonly required: boolean;
  /** Has the declared type. */
  readonly default?: JsonValue;
  /** Allowed values of an `enum`. */
  readonly values: readonly string[];
  /** Its value never reaches plans, logs, prompts or exports. */
  readonly secret: boolean;
  readonly description: string;
  readonly origin: string;
}

/** An item that a `<context>` element names. */
export interface ContextRef {
  readonly id: string;
  readonly origin: string;
  /** True if the directive may run without it; absent: false. */
  readonly optional?: true;
}

export interface DirectiveContext {
  readonly system: readonly ContextRef[];
  readonly before: readonly ContextRef[];
  readonly after: readonly ContextRef[];
  /** Ids of context items or hooks that must not contribute. */
  readonly suppress: readonly string[];
}

/** A parsed directive file. Nothing is inherited or interpolated yet. */
export interface Directive {
  readonly path: string;
  readonly name: string;
  /** `0.0.0` if the file declares none. */
  readonly version: string;
  readonly extends?: string;
  readonly description: string;
  /** Undefined if the element is absent. */
  readonly category?: string;
  readonly author: string;
  readonly model?: ModelChoice;
  readonly rawLimits: readonly RawLimit[];
  readonly permissions: Permissions;
  readonly rawHooks: readonly RawHook[];
  readonly context: DirectiveContext;
  readonly continuationDirective?: string;
  readonly behavior: JsonObject;
  readonly inputs: readonly InputDeclaration[];
  readonly outputs: readonly OutputDeclaration[];
  readonly steps: readonly ProcessStep[];
  /** The instructions: everything after the fence, trimmed. */
  readonly body: string;
  /** Free text before the fence, without the signature comment. */
  readonly preamble: string;
  /** Dotted path of a value → `file:line`. */
  readonly origins: Readonly<Record<string, string>>;
  readonly warnings: readonly ItemProblem[];
}

/** Elements whose content is kept as written. */
export const OPAQUE_ELEMENTS: ReadonlySet<string> = new Set(['template', 'example', 'raw']);

/** A directive while its elements are being read; each reader fills in its own members. */
export class DirectiveDraft {
  readonly path: string;
  readonly problems: Problems;
  readonly origins: Record<string, string> = {};
  name = '';
  version = '';
  extends: string | undefined;
  /** Simple text elements of the metadata by name. */
  readonly metadataText = new Map<string, string>();
  model: ModelChoice | undefined;
  readonly limits: RawLimit[] = [];
  readonly permissions = {
    capabilities: [] as string[],
    optional: [] as string[],
    asks: [] as AskedPermission[],
    acknowledgements: [] as Acknowledgement[],
    ceiling: false,
    xml: [] as string[],
    origin: '',
  };
  readonly hooks: RawHook[] = [];
  readonly context = {
    system: [] as ContextRef[],
    before: [] as ContextRef[],
    after: [] as ContextRef[],
    suppress: [] as string[],
  };
  behavior: JsonObject = {};
  readonly inputs: InputDeclaration[] = [];
  readonly outputs: OutputDeclaration[] = [];
  readonly steps: ProcessStep[] = [];

  constructor(path: string, problems: Problems) {
    this.path = path;
    this.problems = problems;
    this.permissions.origin = path;
  }
}

/** Reports an element that the draft cannot take. */
export function malformed(
  draft: DirectiveDraft,
  { location }: XmlElement,
  message: string,
  hint?: string,
): void {
  draft.problems.error({ code: 'directive_malformed', message, location, hint });
}

/** Records where the value at a dotted path was declared; the first declaration counts. */
export function noteOrigin(draft: DirectiveDraft, path: string, location: SourceLocation): void {
  if (!Object.hasOwn(draft.origins, path)) draft.origins[path] = originOf(location);
}
