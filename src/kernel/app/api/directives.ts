import type { BehaviorOptions } from '../../core/behavior.ts';
import type { Risk, Verb } from '../../core/capability.ts';
import type { Condition, ControlAction, HookDeclaration, HookEvent } from '../../core/hook.ts';
import type { ItemType } from '../../core/ids.ts';
import type { IsolationKind, IsolationResult } from '../../core/isolation.ts';
import type { JsonObject, JsonValue } from '../../core/json.ts';
import type { PartialLimits } from '../../core/limits.ts';
import type { ProcessCall, ThreadPlan, ValueType } from '../../core/plan.ts';
import type { OutputSchema, TypeOfSchema } from './output-schema.ts';

/** An input of a directive from code. */
export interface DirectiveInput {
  /** Default: `enum` if values are listed, else `string`. */
  readonly type?: ValueType;
  readonly required?: boolean;
  readonly default?: JsonValue;
  /** Allowed values. */
  readonly enum?: readonly string[];
  /** True to keep its value out of plans, logs, prompts and exports. */
  readonly secret?: boolean;
  readonly description?: string;
}

export interface DirectiveOutput {
  /** Default: the type that `schema` names, else `string`. */
  readonly type?: ValueType;
  readonly required?: boolean;
  readonly description?: string;
  /** JSON Schema or a zod schema of the value; the model gets it with its first request, and the outputs have its type. */
  readonly schema?: OutputSchema;
  /** Expression that the value comes from if no model runs, such as `${steps.price.data.cents}`. */
  readonly from?: string;
}

/** Ids or patterns by item type, such as `{ tool: 'rye/file-system/*' }`; `*` grants all. */
export type DirectiveGrants = '*' | { readonly [T in ItemType]?: string | readonly string[] };

export interface DirectivePermissions extends Partial<Readonly<Record<Verb, DirectiveGrants>>> {
  /** True if descendants must stay within these permissions. */
  readonly ceiling?: boolean;
  /** True if the directive may run without the tools, MCP servers and skills that it names. */
  readonly optional?: boolean;
  readonly acknowledge?: readonly { readonly risk: Risk; readonly reason: string }[];
}

/** One call of a step; `params` may contain `{input:name}` and `${steps.name.…}`. */
export interface DirectiveCall extends Pick<ProcessCall, 'primary' | 'item_type' | 'item_id'> {
  readonly params?: JsonObject;
  readonly async?: boolean;
}

export interface DirectiveStep {
  readonly name: string;
  readonly description?: string;
  readonly calls: readonly DirectiveCall[];
  /** `worktree`: a directive that the step starts works in its own git worktree. */
  readonly isolation?: IsolationKind;
  /** The use of its changes. Default: `patch`. */
  readonly isolation_result?: IsolationResult;
}

/** Runs its parts for each item of a list. */
export interface DirectiveForeach {
  readonly foreach: {
    /** Name of the item, such as `f` for `${f}`. */
    readonly item: string;
    /** The list, or a reference to one, such as `${inputs.files}`. */
    readonly in: string | readonly JsonValue[];
    /** Items at once, from 1 to 64. Default: 1. */
    readonly parallel?: number;
    /** Default: `fail`. */
    readonly on_error?: 'fail' | 'continue';
    readonly process: readonly DirectivePart[];
  };
}

/** Runs its parts on a condition. */
export interface DirectiveIf {
  readonly if: {
    /** Such as `${inputs.deep} == true`. */
    readonly condition: string;
    readonly process: readonly DirectivePart[];
    /** Runs otherwise. */
    readonly else?: readonly DirectivePart[];
  };
}

/** A part of a process. */
export type DirectivePart = DirectiveStep | DirectiveForeach | DirectiveIf;

export interface DirectiveModel {
  readonly tier?: string;
  readonly id?: string;
  readonly provider?: string;
  readonly fallback?: string;
  readonly thinking?: ThreadPlan['thinking'];
}

/** Ids of knowledge entries for the prompt, and ids that must not contribute. */
export interface DirectiveKnowledge {
  readonly system?: readonly string[];
  readonly before?: readonly string[];
  readonly after?: readonly string[];
  readonly suppress?: readonly string[];
}

/** One step of a hook, as in a file. Texts in `item_id`, `params`, `data` and `inject` may contain `${path}`. */
export type DirectiveHookAction =
  | ControlAction
  | { readonly inject: string }
  | { readonly emit: string; readonly data?: JsonObject }
  | { readonly set_extends: string }
  | (Pick<ProcessCall, 'primary' | 'item_type' | 'item_id'> & { readonly params?: JsonObject });

/** A hook of a directive. `enabled: false` without an action disables the builtin hook of the same id. */
export interface DirectiveHook
  extends Partial<
    Pick<
      HookDeclaration,
      'position' | 'wrap' | 'enabled' | 'timeout_seconds' | 'on_error' | 'description'
    >
  > {
  readonly id: string;
  readonly event?: HookEvent;
  /** Default: always. */
  readonly condition?: Condition;
  readonly action?: DirectiveHookAction;
  /** Several steps, in place of `action`. */
  readonly actions?: readonly DirectiveHookAction[];
}

export type DirectiveInputDeclarations = Readonly<Record<string, DirectiveInput>>;
export type DirectiveOutputDeclarations = Readonly<Record<string, DirectiveOutput>>;

/** Declarations by name. A member that `T` does not have is refused. */
type Exact<D, T> = D & {
  readonly [N in keyof D]: Readonly<Record<Exclude<keyof D[N], keyof T>, never>>;
};

/** The members of a directive file, as a value. */
export interface DirectiveDeclaration<
  D = DirectiveInputDeclarations,
  O = DirectiveOutputDeclarations,
> {
  /** Such as `team/quote`. */
  readonly id: string;
  readonly description: string;
  /** Markdown for the model: the body of a file. */
  readonly instructions: string;
  /** Default: `1.0.0`. */
  readonly version?: string;
  /** Default: `program`. */
  readonly author?: string;
  /** Id of the directive that this one extends. */
  readonly extends?: string;
  readonly continuationDirective?: string;
  readonly inputs?: Exact<D, DirectiveInput>;
  readonly outputs?: Exact<O, DirectiveOutput>;
  readonly limits?: PartialLimits;
  readonly permissions?: '*' | DirectivePermissions;
  readonly model?: DirectiveModel;
  readonly behavior?: BehaviorOptions;
  readonly context?: DirectiveKnowledge;
  readonly hooks?: readonly DirectiveHook[];
  /** Steps, lists and conditions that run without a model. */
  readonly process?: readonly DirectivePart[];
}

type ValueOf<D> = D extends { readonly enum: readonly (infer E)[] }
  ? E
  : D extends { readonly type: 'integer' | 'number' }
    ? number
    : D extends { readonly type: 'boolean' }
      ? boolean
      : D extends { readonly type: 'array' }
        ? readonly JsonValue[]
        : D extends { readonly type: 'object' }
          ? JsonObject
          : string;

type OutputOf<D> = D extends { readonly schema: infer S } ? TypeOfSchema<S> : ValueOf<D>;

type RequiredOf<D> = {
  [N in keyof D]: D[N] extends { readonly required: true } ? N : never;
}[keyof D];

type ValuesOf<D> = { readonly [N in RequiredOf<D>]: ValueOf<D[N]> } & {
  readonly [N in Exclude<keyof D, RequiredOf<D>>]?: ValueOf<D[N]>;
};

/** The type of the inputs that a run of a declared directive takes. */
export type DirectiveInputs<D> = string extends keyof D ? JsonObject : ValuesOf<D>;

type OutputsOf<D> = { readonly [N in RequiredOf<D>]: OutputOf<D[N]> } & {
  readonly [N in Exclude<keyof D, RequiredOf<D>>]?: OutputOf<D[N]>;
};

/** The type of the outputs that a completed run of a declared directive has. Null only if no output is required. */
export type DirectiveOutputs<O> = string extends keyof O
  ? JsonObject | null
  : OutputsOf<O> | ([RequiredOf<O>] extends [never] ? null : never);

/** A directive from code, for `rye.run({ directive })` or `directives` of a preset. */
export interface DefinedDirective<I extends object = object, O = unknown> {
  readonly id: string;
  /** The file that the declaration is equal to. */
  readonly text: string;
  /** Carries the type of the inputs; has no value. */
  readonly inputs?: I;
  /** Carries the type of the outputs; has no value. */
  readonly outputs?: O;
}
