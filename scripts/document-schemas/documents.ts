// The documents that commands print with `--json`. A member is declared once: in the type that the command prints.

import type { Branched } from '../../src/faces/cli/commands/threads-branch.ts';
import type { documentOf } from '../../src/faces/cli/commands/threads-session.ts';
import type { ResultDocument } from '../../src/faces/cli/result-document.ts';
import type { Exchange } from '../../src/faces/ui/chat/piped.ts';
import type { AppliedReport } from '../../src/features/rye-os/apply.ts';
import type { RyeOsReview } from '../../src/features/rye-os/review.ts';
import type {
  ApprovalVerification,
  DecidedApproval,
  ListedApproval,
} from '../../src/kernel/app/api/approvals.ts';
import type {
  EnrolledWorker,
  FleetMade,
  FleetQueueState,
  FleetRoot,
  FleetStatus,
  FleetWorker,
} from '../../src/kernel/app/api/fleet.ts';
import type {
  AcceptedLock,
  FetchedItem,
  GuardDiff,
  ItemSummary,
  KeyRotation,
  KeySummary,
  KeysService,
  LockReport,
  NewItem,
  Problem,
  SignatureState,
  SignOutcome,
  VerifyOutcome,
} from '../../src/kernel/app/api/items.ts';
import type { RuleRow, RuleScan, RuleTrial } from '../../src/kernel/app/api/rules.ts';
import type {
  ConfigValue,
  DoctorLine,
  HookExplanation,
  InitOutcome,
  McpServerReport,
  ModelUse,
} from '../../src/kernel/app/api/rye.ts';
import type { LastFiring, ListedSchedule, Timer } from '../../src/kernel/app/api/schedules.ts';
import type {
  KilledThread,
  LaunchedThread,
  LogMark,
  PulledThread,
  RecoveredThread,
  RecoveryReport,
  RepairReport,
  RetentionReport,
  SentDelivery,
  SignedRecords,
  ThreadDetails,
  ThreadStats,
  ThreadTreeNode,
  ThreadVerification,
  ToolRunResult,
  UnverifiedPart,
  WaitReport,
} from '../../src/kernel/app/api/threads.ts';
import type {
  FileUndo,
  ImportedSession,
  LogProblem,
  ManualCompaction,
  PiProblem,
  ReplayReport,
  ThreadExport,
  TreeView,
  UndoneFile,
  UnrecordedCall,
} from '../../src/kernel/app/api/trees.ts';
import type { GitSetup } from '../../src/kernel/app/git.ts';
import type { listModels } from '../../src/kernel/app/model-choice.ts';
import type { Receipt } from '../../src/kernel/app/receipt.ts';
import type {
  AttemptState,
  CloseReason,
  DecisionName,
  Delivery,
  DeliveryReport,
} from '../../src/kernel/core/delivery.ts';
import type { ErrorCode, ErrorInfo } from '../../src/kernel/core/errors.ts';
import type { UnknownEvent } from '../../src/kernel/core/events.ts';
import type { HookDeclaration, HookEvent } from '../../src/kernel/core/hook.ts';
import type { ItemType, SignableType, Space } from '../../src/kernel/core/ids.ts';
import type { WorktreeChanges } from '../../src/kernel/core/isolation.ts';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import type {
  InterruptMode,
  PlannedModel,
  PlannedTool,
  PlanSource,
  ProgramParts,
  RepeatMode,
  RuleEngine,
  ThreadPlan,
} from '../../src/kernel/core/plan.ts';
import type { SearchAnswer, SearchHit } from '../../src/kernel/core/search.ts';
import type {
  CostedThread,
  ExportFormat,
  Integrity,
  ThreadStatus,
} from '../../src/kernel/core/thread.ts';
import type { priceRows } from '../../src/kernel/providers/price-book.ts';

declare const closed: unique symbol;

/** Marks an object that has no members beyond its type's. */
type Closed<T> = T & { readonly [closed]?: true };

/** Objects that have no members beyond their types', wherever they are. */
export type ClosedParts = [
  GuardDiff,
  LastFiring,
  ListedSchedule,
  PiProblem,
  ProgramParts,
  NonNullable<ReplayReport['difference']>,
  RetentionReport['copies'],
  UnrecordedCall,
  UnverifiedPart,
  WorktreeChanges,
  WorktreeChanges['files'][number],
  NonNullable<WorktreeChanges['conflicts']>[number],
  NonNullable<WorktreeChanges['left_out']>,
];

/** Words to which versions may add: any text is allowed. */
export type OpenWords = [
  AttemptState,
  CloseReason,
  DecisionName,
  DoctorLine['status'],
  ErrorCode,
  ExportFormat,
  HookDeclaration['layer'],
  HookDeclaration['position'],
  HookEvent,
  ImportedSession['format'],
  Integrity,
  InterruptMode,
  ItemType,
  LogProblem['kind'],
  NewItem['type'],
  PiProblem['kind'],
  Problem['severity'],
  RecoveredThread['action'],
  RepairReport['moved'][number]['database'],
  RepeatMode,
  RuleEngine,
  RuleRow['bucket'],
  SignOutcome['status'],
  SignableType,
  SignatureState,
  Space,
  ThreadStatus,
  ThreadStatus | 'not_found',
  ThreadVerification['checks'][number]['name'],
];

/** A type without some of its members; `Omit` would lose their order. */
type Without<T, K> = { [N in keyof T as N extends K ? never : N]: T[N] };
/** A type with other members in place of some. */
type With<T, M> = Without<T, keyof M> & M;
/** A type with members that are objects, or lists of them, whose own members are not described. */
type Vague<T, K> = { [N in keyof T]: N extends K ? Undescribed<T[N]> : T[N] };
type Undescribed<V> = V extends readonly unknown[]
  ? readonly JsonObject[]
  : V extends object
    ? JsonObject
    : V;

/** Members of every document. */
interface Head {
  readonly success: boolean;
  /** Warnings of the call; empty if there are none. */
  readonly warnings: readonly string[];
}

/** A document that may have more members than those listed. */
type Open<T> = With<Head, T>;
/** A document that has no members but those listed. */
type Whole<T> = Closed<With<Head, T>>;

/** A list of everything and its length. */
type Listing<N extends string, T> = { readonly [K in N]: readonly T[] } & {
  readonly total: number;
};

type PlainError = Pick<ErrorInfo, 'code' | 'message'>;
type EndStatus = 'completed' | 'error' | 'cancelled' | 'continued' | 'suspended';
type Mark = Without<LogMark, 'error'>;
type ThreadRow = Vague<CostedThread, 'error'>;
type SentMessage = Without<Delivery, 'child_run'> & { readonly source_key: string | null };
type Hook = Vague<Without<HookDeclaration, 'shipped' | 'suppressed'>, 'actions' | 'condition'>;
type Model = Vague<PlannedModel, 'pricing'>;
type Source = Without<PlanSource, 'key_id'>;
type Undo = With<
  FileUndo,
  {
    /** Files that differed from what they were then. */
    readonly files: readonly Closed<With<UndoneFile, { readonly problem?: PlainError }>>[];
  }
>;

/** Optional members of a plan whose form is no promise. */
type UnpublishedPart =
  | 'asks'
  | 'fleet'
  | 'granted_limits'
  | 'label'
  | 'raised_limits'
  | 'requested'
  | 'work_path'
  | 'worktree';

export interface Documents {
  /** rye approvals list: Requests, oldest first; questions too. */
  approvals: Open<Listing<'approvals', ListedApproval>>;
  /** rye approvals show: One request. */
  approval: Open<{ readonly approval: ListedApproval }>;
  /** rye approve|deny|answer: The requests that were decided. */
  'approval-decided': Whole<
    Listing<'approvals', DecidedApproval> & {
      readonly problems: readonly { readonly id: string; readonly error: ErrorInfo }[];
      readonly error?: ErrorInfo;
    }
  >;
  /** rye approvals verify: A request and its decisions, checked in the thread's signed log. */
  'approval-verify': Open<ApprovalVerification>;
  /** rye list: Items of a type, shadowed ones included. */
  list: Open<Listing<'items', ItemSummary>>;
  /** rye search: Ranked hits with snippets. */
  search: Open<
    With<
      SearchAnswer,
      {
        readonly query: string;
        readonly results: readonly With<SearchHit, { readonly title: string | null }>[];
      }
    >
  >;
  /** rye fetch: One resolved item. */
  fetch: Open<FetchedItem>;
  /** rye sign: Outcome of each file. */
  sign: Open<Listing<'items', SignOutcome> & { readonly error?: PlainError | null }>;
  /** rye validate: Every problem of the items that were checked. */
  validate: Open<
    Listing<'problems', Problem> & { readonly checked: number; readonly error?: PlainError | null }
  >;
  /** rye verify: Each item and the state of its signature. */
  verify: Open<Listing<'items', Without<VerifyOutcome, 'error' | 'signed_by_thread'>>>;
  /** rye verify thread: Each signed part of a thread. */
  'verify-thread': Open<
    With<
      ThreadVerification,
      { readonly checks: readonly Without<ThreadVerification['checks'][number], 'thread_id'>[] }
    >
  >;
  /** rye sign thread: The records of one run without a signing key. */
  'sign-thread': Open<SignedRecords>;
  /** rye keys export: The public key. */
  'keys-export': Open<Awaited<ReturnType<KeysService['export']>>>;
  /** rye keys init, trust, untrust, protect and revoke: The key that the command was about. */
  'keys-key': Whole<Without<KeySummary, 'problem'>>;
  /** rye keys list: Own, trusted and revoked keys. */
  'keys-list': Open<
    Listing<
      'keys',
      With<Without<KeySummary, 'problem' | 'revoked_at'>, { readonly source: string }>
    >
  >;
  /** rye keys rotate: The signing keys before and after the rotation. */
  'keys-rotate': Whole<KeyRotation>;
  /** rye new: The file that was written. */
  'new': Whole<NewItem>;
  /** rye git setup: What git uses to merge signed files. */
  'git-setup': Whole<GitSetup>;
  /** rye keys publish: The statements that were written to the project. */
  'keys-publish': Whole<Listing<'files', string>>;
  /** rye lock accept: The new lock, and the changes that it accepts. */
  'lock-accept': Open<AcceptedLock>;
  /** rye lock status: What is pinned and what differs from it. While runs are refused, success is false and error is the refusal. */
  'lock-status': Open<Without<LockReport, 'refusal'> & { readonly error?: JsonObject }>;
  /** rye execute directive: The ThreadResult; with stream-json the last line. */
  'thread-result': Open<With<ResultDocument, { readonly status: EndStatus }>>;
  /** rye chat: A conversation that was piped in, with every message and its answer. */
  chat: Open<{
    readonly thread_id: string | null;
    readonly status: EndStatus | null;
    readonly messages: readonly With<Exchange, { readonly status: EndStatus }>[];
    readonly cost?: ResultDocument['cost'];
    readonly error?: ErrorInfo;
    readonly warnings?: readonly string[];
  }>;
  /** rye execute tool: The outcome of one tool. */
  'tool-result': Open<ToolRunResult>;
  /** rye execute directive --async --json, rye execute tool --async: A background thread, running or queued. */
  launched: Whole<LaunchedThread>;
  /** rye execute directive --dry-run: The plan of a thread: everything that decides how it would run, and in origins the file that gave each value. */
  plan: Whole<{
    readonly plan: With<
      Vague<
        Without<ThreadPlan, UnpublishedPart>,
        'acknowledged' | 'hooks' | 'outputs' | 'process' | 'rules' | 'settings'
      >,
      {
        readonly directive: Without<ThreadPlan['directive'], 'key_id'>;
        readonly chain: readonly Source[];
        readonly context_sources: readonly Source[];
        readonly tools: readonly With<PlannedTool, { readonly risk: string }>[];
        readonly model: Model;
        readonly fallbacks: readonly Model[];
      }
    >;
    readonly warnings: readonly string[];
  }>;
  /** any command: Why nothing was done; every failure has this form. */
  failure: Open<{ readonly error: ErrorInfo }>;
  /** rye schedule add|pause|resume|remove: The schedule as it is, or was before it was removed. */
  schedule: Whole<{ readonly schedule: ListedSchedule }>;
  /** rye schedule list: The schedules of the project. */
  'schedule-list': Whole<Listing<'schedules', ListedSchedule>>;
  /** rye schedule add --print: What a timer of the system needs to run the directive. */
  'schedule-timer': Whole<{ readonly timer: Timer; readonly text: string }>;
  /** rye threads branch: Where the leaf is now. With --run the document is a thread result. */
  'threads-branch': Open<
    With<
      Branched,
      {
        /** With --files: what was restored. */
        readonly files?: Closed<Undo>;
      }
    >
  >;
  /** rye threads compact: The compaction that was written, or why there is none. */
  'threads-compact': Open<{ readonly thread_id: string } & ManualCompaction>;
  /** rye threads entries: The session tree of a thread, depth first, the active branch first. */
  'threads-entries': Open<
    Mark &
      Without<TreeView, 'rows'> & {
        readonly entries: readonly Vague<
          ReturnType<typeof documentOf>['entries'][number],
          'payload'
        >[];
      }
  >;
  /** rye threads entries --entry ENTRY: One entry of a session tree, as the log has it. */
  'threads-entry': Open<
    Mark & {
      readonly thread_id: string;
      readonly entry: With<
        UnknownEvent,
        { readonly id: string; readonly parent_id: string | null }
      >;
    }
  >;
  /** rye threads export: A thread in another form, in the document or in a file. */
  'threads-export': Whole<
    With<
      Without<ThreadExport, 'chunks' | 'tampered'>,
      {
        /** False where the log is damaged or does not verify; what is readable is exported all the same. */
        readonly success: boolean;
        readonly problems: readonly Closed<LogProblem>[];
        /** The text, without --out. */
        readonly content?: string;
        /** The file, with --out. */
        readonly path?: string;
        /** Length of the file. */
        readonly bytes?: number;
        readonly error?: PlainError;
      }
    >
  >;
  /** rye threads import: The thread that a session of another program became. */
  'threads-import': Whole<
    With<
      Without<ImportedSession, 'thread'>,
      { readonly success: true; readonly thread_id: string; readonly status: 'completed' }
    >
  >;
  /** rye threads rename: The title that was set. */
  'threads-rename': Open<{
    /** The thread in which the session continues. */
    readonly thread_id: string;
    readonly title: string;
  }>;
  /** rye threads label: The entry and its label; null: it has none. */
  'threads-label': Open<{
    readonly thread_id: string;
    readonly entry_id: string;
    readonly label: string | null;
  }>;
  /** rye threads undo: The files that were restored to what they were at an entry, or before the thread. */
  'threads-undo': Open<Undo>;
  /** rye threads replay: How a thread's recorded answers go through today's rules, hooks and gates. */
  'threads-replay': Whole<
    ReplayReport & {
      /** False with --verify where the replay differs. */
      readonly success: boolean;
      readonly same: boolean;
    }
  >;
  /** rye threads cancel: The threads that were asked to stop. */
  'threads-cancel': Whole<Listing<'threads', string> & { readonly thread_id: string }>;
  /** rye threads deliveries: The messages to a thread, with every try and every decision. */
  'threads-deliveries': Whole<
    Listing<'deliveries', SentMessage & Pick<DeliveryReport, 'tries' | 'decisions'>>
  >;
  /** rye threads gc: The logs that were archived, or would be; sizes in bytes. */
  'threads-gc': Whole<
    Listing<'threads', RetentionReport['archived'][number]> &
      Pick<RetentionReport, 'copies'> & {
        readonly dry_run: boolean;
        readonly problems: RetentionReport['failures'];
      }
  >;
  /** rye threads kill: The threads that were ended, and the process of each. */
  'threads-kill': Whole<Listing<'threads', KilledThread> & { readonly thread_id: string }>;
  /** rye threads pull: The thread that was copied. */
  'threads-pull': Whole<PulledThread>;
  /** rye threads list: The registry, newest first. */
  'threads-list': Open<
    Listing<'threads', CostedThread> & {
      /** Folders of threads that the registry does not list; `rye doctor --repair` does. */
      readonly unlisted?: readonly string[];
    }
  >;
  /** rye threads logs: Events of a log, as docs/log-format.md describes them. */
  'threads-logs': Whole<Mark & Listing<'events', UnknownEvent> & { readonly thread_id: string }>;
  /** rye threads recover: What was done about threads whose process died. */
  'threads-recover': Whole<
    Listing<'threads', RecoveredThread> & {
      readonly problems: RecoveryReport['failures'];
      readonly results: readonly JsonObject[];
    }
  >;
  /** rye threads receipt: The work of a thread and the threads below it. */
  'threads-receipt': Open<Receipt>;
  /** rye threads show: One thread with its document, children and chain. */
  'threads-show': Open<
    Mark &
      With<
        Without<ThreadDetails, 'deliveries'>,
        {
          readonly thread: ThreadRow;
          readonly chain: readonly ThreadRow[];
          readonly document: JsonObject | null;
          readonly children: readonly unknown[];
        }
      >
  >;
  /** rye threads stats: Spend, tokens and outcomes. */
  'threads-stats': Open<
    Listing<'stats', With<ThreadStats, { readonly error: number | null }>> & { readonly by: string }
  >;
  /** rye threads steer: A message that was left, and what is to be expected of it. */
  'threads-steer': Whole<With<SentDelivery, { readonly delivery: SentMessage }>>;
  /** rye threads tree: Parents and children. */
  'threads-tree': Open<
    Listing<'threads', With<ThreadTreeNode, { readonly children: readonly unknown[] }>> & {
      /** Threads whose logs are not what was signed. */
      readonly unverified: readonly ({ readonly thread_id: string } & With<
        Mark,
        { readonly verified: boolean }
      >)[];
    }
  >;
  /** rye threads wait: State of each awaited thread. */
  'threads-wait': Open<Without<WaitReport, 'waiting'> & { readonly total: number }>;
  /** rye fleet init: The fleet that was made. */
  'fleet-init': Whole<FleetMade>;
  /** rye fleet root: The public key of the root. */
  'fleet-root': Whole<FleetRoot>;
  /** rye fleet enroll: A worker that may join. The token is a secret. */
  'fleet-enroll': Whole<EnrolledWorker>;
  /** rye fleet status: The workers and the queues. */
  'fleet-status': Whole<FleetStatus>;
  /** rye fleet workers: The workers, by ID. */
  'fleet-workers': Whole<Listing<'workers', FleetWorker>>;
  /** rye fleet queues: The queues, by name. */
  'fleet-queues': Whole<Listing<'queues', FleetQueueState>>;
  /** rye fleet limits|pause: The queue as it is now. */
  'fleet-queue': Whole<{ readonly queue: FleetQueueState }>;
  /** rye fleet drain: The worker that was asked to leave. */
  'fleet-drain': Whole<{ readonly worker_id: string }>;
  /** rye config path: The folders that configuration is read from. */
  'config-path': Whole<{ readonly project: string; readonly user: string }>;
  /** rye config show|get: Each value with the file that set it. */
  'config-show': Open<Listing<'values', ConfigValue>>;
  /** rye mcp list|test: MCP servers with their tools. */
  mcp: Open<Listing<'servers', Vague<McpServerReport, 'error'>>>;
  /** rye mcp add: The file that names the server. */
  'mcp-add': Whole<{ readonly name: string; readonly path: string }>;
  /** rye doctor: Each check with its outcome. */
  doctor: Open<
    Listing<'checks', DoctorLine> & {
      /** Outcome of --repair. */
      readonly repair?: RepairReport;
    }
  >;
  /** rye hooks explain: Which hooks would fire and why the others would not. */
  'hooks-explain': Open<
    Listing<'hooks', With<HookExplanation, { readonly hook: Hook }>> & {
      readonly directive: string;
    }
  >;
  /** rye hooks list: The merged table of hooks. */
  'hooks-list': Open<Listing<'hooks', Hook>>;
  /** rye hooks schema: What the hooks of each event can read. */
  'hooks-schema': Whole<
    Listing<'schemas', { readonly event: string; readonly schema: JsonObject }>
  >;
  /** rye import rye-os: What each item needs before it can be used. */
  'import-rye-os': Open<
    With<
      RyeOsReview,
      {
        readonly summary: JsonObject;
        readonly total: number;
        readonly applied?: Vague<AppliedReport, 'files' | 'skipped'>;
      }
    >
  >;
  /** rye init: What was written and which key signs. */
  init: Open<With<InitOutcome, { readonly kept: readonly unknown[] }>>;
  /** rye models list: Configured models. */
  'models-list': Open<
    Listing<
      'models',
      With<
        Awaited<ReturnType<typeof listModels>>[number],
        {
          readonly model: string | null;
          readonly pricing: JsonObject | null;
          readonly prices_as_of: string | null;
          readonly capabilities: readonly string[];
          readonly fallback: readonly unknown[];
        }
      >
    >
  >;
  /** rye models prices: Prices of models. */
  'models-prices': Open<Listing<'prices', ReturnType<typeof priceRows>[number]>>;
  /** rye models use: The model for directives that name none. */
  'models-use': Open<ModelUse>;
  /** rye rules list: Rules of the three spaces. */
  'rules-list': Open<
    Listing<
      'rules',
      With<RuleRow, { readonly globs: readonly unknown[]; readonly problems: readonly unknown[] }>
    > & { readonly refused: readonly unknown[] }
  >;
  /** rye rules scan: The rules that files break; success is false when there is a hit. */
  'rules-scan': Whole<RuleScan & { readonly total: number }>;
  /** rye rules test: The rules that a text breaks. */
  'rules-test': Whole<RuleTrial & { readonly total: number }>;
}
