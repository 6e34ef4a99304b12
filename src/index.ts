// The library: the same thing as the program, without a process around it.

export type {
  ApprovalAttendant,
  ApprovalsService,
  ApprovalVerification,
  DecidedApproval,
  DecideRequest,
  ListedApproval,
  OnApproval,
  WatchApprovals,
} from './kernel/app/api/approvals.ts';
export type * from './kernel/app/api/chat.ts';
export type * from './kernel/app/api/directives.ts';
export type * from './kernel/app/api/fleet.ts';
export type * from './kernel/app/api/items.ts';
export type * from './kernel/app/api/output-schema.ts';
export type * from './kernel/app/api/rules.ts';
export type * from './kernel/app/api/rye.ts';
export type {
  Plugin,
  PluginCall,
  PluginCommand,
  PluginFactory,
  PluginHost,
  PluginRows,
} from './kernel/app/api/rye.ts';
export type * from './kernel/app/api/schedules.ts';
export type * from './kernel/app/api/skills.ts';
export type * from './kernel/app/api/threads.ts';
export type * from './kernel/app/api/trees.ts';
export type { ReplayDifference } from './kernel/app/api/trees.ts';
export { composePresets, type LibraryTool, type Preset } from './kernel/app/presets.ts';
export { defineDirective } from './kernel/app/program/define-directive.ts';
export { defineTool, type ToolDeclaration } from './kernel/app/program/define-tool.ts';
export type {
  BudgetFunction,
  ProgramBehavior,
  ProgramBudget,
  ThinkingFunction,
} from './kernel/app/program-behavior.ts';
export {
  completedOrThrow,
  type RunHandle,
  type RunInputs,
  type RunOptions,
  type RunOutcome,
  type RunRequest,
} from './kernel/app/run-types.ts';
export type { ThreadProcessOptions } from './kernel/app/thread-process.ts';
export type {
  ApprovalConstraints,
  ApprovalDecided,
  ApprovalDecision,
  ApprovalKind,
  ApprovalOutcome,
  ApprovalPreview,
  ApprovalRequest,
  ApprovalRequirement,
  ApprovalScope,
  ApprovalState,
  ApprovalSubject,
  ApprovalUse,
  ApprovalVerb,
  Approver,
  Ask,
  AskedPermission,
  EditedCall,
  OnExpiry,
  RequestedApproval,
  SignedDecision,
} from './kernel/core/approval.ts';
export type { BehaviorOptions, ToolBudgetOption } from './kernel/core/behavior.ts';
export type { AcceptedRisk, Acknowledgement, Risk, Verb } from './kernel/core/capability.ts';
export type { CheckpointPayload, FirstCheckpointPayload } from './kernel/core/checkpoint.ts';
export type { Clock } from './kernel/core/clock.ts';
export type {
  ActiveTurn,
  AttemptKind,
  AttemptState,
  CloseReason,
  DecisionName,
  Delivery,
  DeliveryAttempt,
  DeliveryClass,
  DeliveryDecision,
  DeliveryFacts,
  DeliveryKind,
  DeliveryMode,
  DeliveryReport,
  DeliveryState,
  RunEnd,
  RunKind,
  RunProof,
  RunRisk,
  RunTraits,
  WaitedChild,
} from './kernel/core/delivery.ts';
export { type EditOutcome, parseEditOutcomes } from './kernel/core/edit-hunks.ts';
export type { ErrorCode, ErrorInfo, ExitCode, SourceLocation } from './kernel/core/errors.ts';
export { EXIT, exitCodeOf, RyeError } from './kernel/core/errors.ts';
export type {
  ChangedSource,
  EventDraft,
  EventPayloads,
  EventType,
  LogEvent,
  LogHeader,
  PlanChange,
  RequestEstimate,
  UnknownEvent,
} from './kernel/core/events.ts';
export type { FileChange, FileState, KeepFile } from './kernel/core/file-change.ts';
export type {
  Condition,
  ConditionOperator,
  ControlAction,
  HookAction,
  HookDeclaration,
  HookEvent,
  HookLayer,
} from './kernel/core/hook.ts';
export type { IdSource, ItemType, SignableType, Space } from './kernel/core/ids.ts';
export type {
  ChangedFile,
  Isolation,
  IsolationKind,
  IsolationResult,
  PlannedWorktree,
  PushedChanges,
  SavedWorktree,
  WorktreeChanges,
} from './kernel/core/isolation.ts';
export type { JsonObject, JsonValue } from './kernel/core/json.ts';
export type { LimitName, Limits, PartialLimits } from './kernel/core/limits.ts';
export type {
  AssistantBlock,
  AssistantMessage,
  CallBatch,
  ContentBlock,
  ImageBlock,
  Message,
  StopReason,
  TextBlock,
  ThinkingBlock,
  ToolCallBlock,
  ToolOutcome,
  ToolResultMessage,
  UserMessage,
} from './kernel/core/message.ts';
export { contentBytes } from './kernel/core/message.ts';
export type {
  ContextBlock,
  InterruptMode,
  ListedRule,
  OutputDeclaration,
  PlannedFleet,
  PlannedModel,
  PlannedRule,
  PlannedRules,
  PlannedSource,
  PlannedTool,
  PlanSource,
  ProcessBlock,
  ProcessCall,
  ProcessStep,
  ProgramParts,
  RepeatMode,
  RequestedSettings,
  RuleEngine,
  RuleSettings,
  SourceKind,
  SourceResults,
  ThreadPlan,
  ThreadSettings,
  ValueType,
} from './kernel/core/plan.ts';
export type {
  FileFingerprint,
  IndexedHit,
  SearchAnswer,
  SearchDocument,
  SearchFilters,
  SearchHit,
  SearchNode,
  SearchQuery,
  TextField,
} from './kernel/core/search.ts';
export type {
  KeyRefusal,
  PayloadKey,
  PayloadSigner,
  PayloadVerifier,
} from './kernel/core/signing.ts';
export type {
  CostedThread,
  ExportFormat,
  FinalStatus,
  Integrity,
  RunReason,
  ThreadRecord,
  ThreadResult,
  ThreadRun,
  ThreadStatus,
} from './kernel/core/thread.ts';
export type {
  Cost,
  CostShare,
  FamilyCost,
  MicroUsd,
  Pricing,
  SessionCost,
  Usage,
} from './kernel/core/usage.ts';
export type { HookContexts } from './kernel/hooks/contexts.ts';
export type {
  BudgetContext,
  BudgetDecision,
  CallContext,
  CatalogContext,
  ChildHandlers,
  CredentialsContext,
  FailedCallContext,
  HandlerLists,
  McpHandlers,
  ObservingHandlers,
  RequestContext,
  ResultContext,
  ResultValue,
  SkillsContext,
  SystemContext,
  ThinkingContext,
  UnknownCallContext,
} from './kernel/hooks/handlers.ts';
export {
  type ChildEvent,
  composeHandlers,
  type DecidingHandlers,
  type HandlerMap,
  type RunEvent,
} from './kernel/hooks/handlers.ts';
export type { Schema, TypeOf } from './kernel/hooks/schema.ts';
export type { Checkpoint, LogHead } from './kernel/log/checkpoint.ts';
export type { LogProblem, LogProblemKind } from './kernel/log/codec.ts';
export type { LineVisitor } from './kernel/log/scanner.ts';
export type {
  LogExtent,
  LogFlaw,
  LogIntact,
  LogTampered,
  LogVerification,
} from './kernel/log/verifier.ts';
export type { Heir, Held } from './kernel/policy/budget.ts';
export type { SteerDecision, SteerRules } from './kernel/policy/steer.ts';
export type {
  Catalog,
  Dialect,
  ModelCapability,
  ModelConfig,
  OptionProblem,
  ProviderConfig,
  ThinkingStyle,
} from './kernel/providers/catalog.ts';
export type {
  ModelEvent,
  ModelProvider,
  ModelRequest,
  ModelStream,
  ProviderFailure,
  ProviderKind,
  ProviderKinds,
  ProviderSetup,
  ProviderTraits,
  ThinkingLevel,
  ToolDefinition,
} from './kernel/providers/provider.ts';
export type { ModelFile, ProviderFile, WireFile } from './kernel/schemas/provider.ts';
export type { Appends, QueuedEntry } from './kernel/storage/appends.ts';
export type {
  ApprovalFilter,
  Approvals,
  StoredApproval,
  StoredDecision,
} from './kernel/storage/approvals.ts';
export type {
  AdmitParams,
  Deliveries,
  EndRunParams,
  EnqueueParams,
  OpenRunParams,
  RecoverParams,
  ResolveParams,
  RunKey,
  SteerParams,
  SteerPoint,
} from './kernel/storage/deliveries.ts';
export type { Ledger } from './kernel/storage/ledger.ts';
export type { DatabaseState, StoreMaintenance } from './kernel/storage/maintenance.ts';
export { type MemoryStoreOptions, openMemoryStore } from './kernel/storage/memory-store.ts';
export type { FolderScope, IndexAnswer, SearchIndex } from './kernel/storage/search-index.ts';
export type {
  BudgetRow,
  Bundles,
  Durability,
  EntryLookup,
  FinishParams,
  FollowOptions,
  HoldOptions,
  LaunchLimits,
  ListedFile,
  LogHeads,
  LogHold,
  LogPart,
  LogRange,
  LogReopenOptions,
  LogStore,
  LogWriter,
  LogWriterOptions,
  OpenedLog,
  Owner,
  OwnerColumns,
  OwnerState,
  Owners,
  QuarantinedPart,
  RegisterParams,
  Registry,
  Store,
  StoredBundle,
  StoredFile,
  StoredHead,
  ThreadDocuments,
  ThreadFilter,
  TurnProgress,
  VerifiedLog,
  VerifyOptions,
} from './kernel/storage/store.ts';
export type { KilledThread } from './kernel/threads/family/cancel.ts';
export type { SentDelivery } from './kernel/threads/family/deliver.ts';
export type { WaitedThread, WaitReport } from './kernel/threads/family/wait.ts';
export type { LaunchedThread } from './kernel/threads/ports.ts';
export type { DirectiveRequest } from './kernel/threads/prepare/request.ts';
export type {
  ImportedFrom,
  ThreadDocument,
  UnsignedRun,
} from './kernel/threads/thread-document.ts';
export type {
  AwaitedThreads,
  DeferredTool,
  FromSchema,
  ToolContext,
  ToolOutput,
  ToolTraits,
} from './kernel/tools/tool.ts';
export type { FoundLock, GuardChange, Lock, Pin } from './kernel/trust/lock.ts';
export { openRye, runThreadProcess } from './open-rye.ts';
