import type { Acknowledgement } from '../core/capability.ts';
import type { SourceLocation } from '../core/errors.ts';
import type { JsonObject } from '../core/json.ts';
import type { OutputDeclaration, ProcessStep } from '../core/plan.ts';
import type {
  ContextRef,
  InputDeclaration,
  ModelChoice,
  RawHook,
  RawLimit,
} from './directive-ast.ts';
import type { Problems } from './problem.ts';
import { originOf } from './source-text.ts';

/** A directive while its elements are read; each reader fills in its own members. */
export interface DirectiveDraft {
  readonly path: string;
  readonly problems: Problems;
  readonly origins: Record<string, string>;
  name: string;
  version: string;
  extends: string | undefined;
  /** Simple text elements of the metadata by name. */
  readonly metadataText: Map<string, string>;
  model: ModelChoice | undefined;
  readonly limits: RawLimit[];
  readonly permissions: {
    readonly capabilities: string[];
    readonly acknowledgements: Acknowledgement[];
    ceiling: boolean;
    readonly xml: string[];
    origin: string;
  };
  readonly hooks: RawHook[];
  readonly context: {
    readonly system: ContextRef[];
    readonly before: ContextRef[];
    readonly after: ContextRef[];
    readonly suppress: string[];
  };
  behavior: JsonObject;
  readonly inputs: InputDeclaration[];
  readonly outputs: OutputDeclaration[];
  readonly steps: ProcessStep[];
}

export function newDraft(path: string, problems: Problems): DirectiveDraft {
  return {
    path,
    problems,
    origins: {},
    name: '',
    version: '',
    extends: undefined,
    metadataText: new Map(),
    model: undefined,
    limits: [],
    permissions: { capabilities: [], acknowledgements: [], ceiling: false, xml: [], origin: path },
    hooks: [],
    context: { system: [], before: [], after: [], suppress: [] },
    behavior: {},
    inputs: [],
    outputs: [],
    steps: [],
  };
}

/** Remembers where the value at a dotted path was declared; the first declaration counts. */
export function noteOrigin(draft: DirectiveDraft, path: string, location: SourceLocation): void {
  if (!Object.hasOwn(draft.origins, path)) draft.origins[path] = originOf(location);
}
