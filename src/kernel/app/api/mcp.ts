/** An MCP server: a command to start, or a url. `${NAME}` in `env` and `headers` is a variable of the environment. */
export interface McpServerOptions {
  readonly type?: 'stdio' | 'http' | 'streamable-http';
  readonly command?: string;
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly url?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** `lazy`: its tools are listed by name only, and found with `tool_search`. */
  readonly disclosure?: 'eager' | 'lazy';
  readonly timeout_seconds?: number;
  readonly connect_timeout_seconds?: number;
  /** True to trust the annotations of its tools, such as `readOnlyHint`. */
  readonly trust_annotations?: boolean;
  /** True to run calls of its tools beside other calls of an answer, although they may change something. */
  readonly parallel?: boolean;
  readonly enabled?: boolean;
}
