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
} from './app/api/approvals.ts';
export type * from './app/api/directives.ts';
export type * from './app/api/fleet.ts';
export type * from './app/api/items.ts';
export type * from './app/api/output-schema.ts';
export type * from './app/api/rules.ts';
export type * from './app/api/rye.ts';
export type * from './app/api/schedules.ts';
export type * from './app/api/threads.ts';
export type * from './app/api/trees.ts';
export { openRye } from './app/open-rye.ts';
export { composePresets, type LibraryTool, type Preset } from './app/presets.ts';
export { defineDirective } from './app/program/define-directive.ts';
export { defineTool, type ToolDeclaration } from './app/program/define-tool.ts';
export {
  completedOrThrow,
  type RunHandle,
  type RunInputs,
  type RunOptions,
  type RunOutcome,
  type RunRequest,
} from './app/run-types.ts';
export { runThreadProcess, type ThreadProcessOptions } from './app/thread-process.ts';
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
} from './core/approval.ts';
export type { BehaviorOptions, ToolBudgetOption } from './core/behavior.ts';
export type { AcceptedRisk, Acknowledgement, Risk, Verb } from './core/capability.ts';
export type { CheckpointPayload, FirstCheckpointPayload } from './core/checkpoint.ts';
export type { Clock } from './core/clock.ts';
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
} from './core/delivery.ts';
export type { ErrorCode, ErrorInfo, ExitCode, SourceLocation } from './core/errors.ts';
export { EXIT, exitCodeOf, RyeError } from './core/errors.ts';
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
} from './core/events.ts';
export type { FileChange, FileState, KeepFile } from './core/file-change.ts';
export type {
  Condition,
  ConditionOperator,
  ControlAction,
  HookAction,
  HookDeclaration,
  HookEvent,
  HookLayer,
} from './core/hook.ts';
export type { IdSource, ItemType, SignableType, Space } from './core/ids.ts';
export type {
  ChangedFile,
  Isolation,
  IsolationKind,
  IsolationResult,
  PlannedWorktree,
  PushedChanges,
  SavedWorktree,
  WorktreeChanges,
} from './core/isolation.ts';
export type { JsonObject, JsonValue } from './core/json.ts';
export type { LimitName, Limits, PartialLimits } from './core/limits.ts';
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
} from './core/message.ts';
export { contentBytes } from './core/message.ts';
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
} from './core/plan.ts';
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
} from './core/search.ts';
export type { KeyRefusal, PayloadKey, PayloadSigner, PayloadVerifier } from './core/signing.ts';
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
} from './core/thread.ts';
export type {
  Cost,
  CostShare,
  FamilyCost,
  MicroUsd,
  Pricing,
  SessionCost,
  Usage,
} from './core/usage.ts';
export type { HookContexts } from './hooks/contexts.ts';
export type {
  CallContext,
  ChildHandlers,
  FailedCallContext,
  HandlerLists,
  ObservingHandlers,
  RequestContext,
  ResultContext,
  ResultValue,
  UnknownCallContext,
} from './hooks/handlers.ts';
export {
  type ChildEvent,
  composeHandlers,
  type DecidingHandlers,
  type HandlerMap,
  type RunEvent,
} from './hooks/handlers.ts';
export type { Schema, TypeOf } from './hooks/schema.ts';
export type { Checkpoint, LogHead } from './log/checkpoint.ts';
export type { LogProblem, LogProblemKind } from './log/codec.ts';
export type {
  LogExtent,
  LogFlaw,
  LogIntact,
  LogTampered,
  LogVerification,
} from './log/verifier.ts';
export type { Heir, Held } from './policy/budget.ts';
export type { SteerDecision, SteerRules } from './policy/steer.ts';
export type {
  Catalog,
  Dialect,
  ModelCapability,
  ModelConfig,
  OptionProblem,
  ProviderConfig,
  ThinkingStyle,
} from './providers/catalog.ts';
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
} from './providers/provider.ts';
export type { ModelFile, ProviderFile, WireFile } from './schemas/provider.ts';
export type {
  ApprovalFilter,
  Approvals,
  StoredApproval,
  StoredDecision,
} from './storage/approvals.ts';
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
} from './storage/deliveries.ts';
export type { Ledger } from './storage/ledger.ts';
export type { DatabaseState, StoreMaintenance } from './storage/maintenance.ts';
export { type MemoryStoreOptions, openMemoryStore } from './storage/memory-store.ts';
export type { FolderScope, IndexAnswer, SearchIndex } from './storage/search-index.ts';
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
} from './storage/store.ts';
export type { KilledThread } from './threads/family/cancel.ts';
export type { SentDelivery } from './threads/family/deliver.ts';
export type { WaitedThread, WaitReport } from './threads/family/wait.ts';
export type { LaunchedThread } from './threads/ports.ts';
export type { DirectiveRequest } from './threads/prepare/request.ts';
export type { ReplayDifference } from './threads/session/replay-world.ts';
export type { ImportedFrom, ThreadDocument, UnsignedRun } from './threads/thread-document.ts';
export type {
  AwaitedThreads,
  FromSchema,
  ToolContext,
  ToolOutput,
  ToolTraits,
} from './tools/tool.ts';
export type { FoundLock, GuardChange, Lock, Pin } from './trust/lock.ts';
