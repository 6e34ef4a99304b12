// The library: the same thing as the program, without a process around it.

export type {
  FetchedItem,
  ItemSummary,
  ItemsService,
  KeySummary,
  KeysService,
  Problem,
  SignatureState,
  SignOutcome,
  VerifyOutcome,
} from './app/api/items.ts';
export type {
  RuleHit,
  RuleListing,
  RuleRow,
  RuleSample,
  RuleScan,
  RulesService,
} from './app/api/rules.ts';
export type {
  ConfigValue,
  DoctorLine,
  ExecuteDirectiveRequest,
  HookExplanation,
  InitOutcome,
  McpServerStart,
  OpenRyeOptions,
  Rye,
} from './app/api/rye.ts';
export type {
  ExecuteToolRequest,
  LogMark,
  ThreadDetails,
  ThreadListFilter,
  ThreadsService,
  ThreadVerification,
  ToolRunResult,
} from './app/api/threads.ts';
export type {
  BranchOptions,
  ContextSettings,
  ExportOptions,
  ExportsService,
  FoldedContext,
  ImportedSession,
  ImportOptions,
  ManualCompaction,
  ReplayOptions,
  ReplayReport,
  SessionTrees,
  ThreadExport,
  TreeEntry,
  TreeFilter,
  TreeRow,
  TreeView,
} from './app/api/trees.ts';
export { openRye } from './app/open-rye.ts';
export { composePresets, type LibraryTool, type Preset } from './app/presets.ts';
export {
  completedOrThrow,
  type RunHandle,
  type RunOutcome,
  type RunRequest,
} from './app/run-types.ts';
export { runThreadProcess, type ThreadProcessOptions } from './app/thread-process.ts';
export type { BehaviorOptions, ToolBudgetOption } from './core/behavior.ts';
export type { Risk } from './core/capability.ts';
export type { ErrorCode, ErrorInfo, ExitCode, SourceLocation } from './core/errors.ts';
export { EXIT, exitCodeOf, RyeError } from './core/errors.ts';
export type { EventPayloads, EventType, LogEvent, UnknownEvent } from './core/events.ts';
export type { HookDeclaration, HookEvent } from './core/hook.ts';
export type { ItemType, SignableType, Space } from './core/ids.ts';
export type { JsonObject, JsonValue } from './core/json.ts';
export type { LimitName, Limits, PartialLimits } from './core/limits.ts';
export type {
  AssistantMessage,
  ContentBlock,
  Message,
  ToolResultMessage,
  UserMessage,
} from './core/message.ts';
export { contentBytes } from './core/message.ts';
export type { ThreadPlan } from './core/plan.ts';
export type { SearchAnswer, SearchHit } from './core/search.ts';
export type { ExportFormat, ThreadRecord, ThreadResult, ThreadStatus } from './core/thread.ts';
export type { Cost, Usage } from './core/usage.ts';
export {
  type ChildEvent,
  composeHandlers,
  type DecidingHandlers,
  type HandlerMap,
} from './hooks/handlers.ts';
export type { ToolContext, ToolOutput, ToolTraits } from './tools/tool.ts';
