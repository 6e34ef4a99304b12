import type { ToolSession } from '../threads/ports.ts';
import type { BuiltinOptions, FileMemory } from '../tools/builtin/options.ts';
import type { sandboxFor } from '../tools/sandbox.ts';
import type { Tool } from '../tools/tool.ts';

/** What tools may draw on while they run. Without one they serve as declarations only. */
export interface ToolScope extends Pick<ToolSession, 'secrets' | 'children'> {
  readonly capabilities: readonly string[];
  readonly allowPaths: readonly string[];
  /** Confines commands; absent: they run as they are. */
  readonly sandbox?: ReturnType<typeof sandboxFor>;
  /** Hosts that HTTP tools may reach; absent if commands run without a sandbox. */
  readonly allowDomains?: readonly string[];
  /** Refuses a tool that is loaded while the thread runs and that it may not hold. */
  readonly admit?: (tool: Tool) => void;
  /** What the thread has read; absent where the same file may be read again and again. */
  readonly memory?: FileMemory;
  /** How the thread's behavior sets the built-in tools. */
  readonly builtin?: Pick<
    BuiltinOptions,
    'readLineNumbers' | 'maxOutputBytes' | 'maxResultBytes' | 'metadata'
  >;
}
