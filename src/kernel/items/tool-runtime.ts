import { extname } from 'node:path';
import type { RyeError } from '../core/errors.ts';
import { isJsonObject, type JsonObject } from '../core/json.ts';
import {
  graphAdvice,
  importAdvice,
  inertAdvice,
  mcpAdvice,
  plainText,
  providerAdvice,
  type RuntimeQuestion,
  refuse,
  type SourceFacts,
} from './tool-advice.ts';
import { type HttpTemplate, readHttpTemplate } from './tool-http.ts';

/** The way parameters are passed to a tool. If the metadata has none, the tool reads one JSON document on stdin. */
export type ToolRuntime =
  /** Python: `execute(params, project_path)` is called and its result is printed as JSON. */
  | { readonly how: 'function' }
  /** `--project-path PATH` after the file, JSON on stdin; with `params` also `--params JSON`. */
  | { readonly how: 'arguments'; readonly params: boolean }
  /** The project path is the only argument of a shell script. */
  | { readonly how: 'project' }
  /** Replaces `{name}` in the words of a manifest's command with the parameter. */
  | { readonly how: 'words' }
  /** A shell command in which `{name}` is replaced with the quoted parameter. */
  | { readonly how: 'shell'; readonly script: string }
  | { readonly how: 'http'; readonly request: HttpTemplate };

type Executor =
  | 'none'
  | 'function'
  | 'script'
  | 'node'
  | 'shell'
  | 'process'
  | 'http'
  | 'mcp'
  | 'graph'
  | 'rust'
  | 'unknown';

/** The executors of Rye OS by the end of their ids, in the spellings of all its versions. */
const EXECUTORS: Readonly<Record<string, Executor>> = {
  'python/function': 'function',
  python_function_runtime: 'function',
  'python/script': 'script',
  python_script_runtime: 'script',
  python_runtime: 'script',
  'node/node': 'node',
  node_runtime: 'node',
  'bash/bash': 'shell',
  bash_runtime: 'shell',
  'primitives/execute': 'process',
  'primitives/subprocess': 'process',
  subprocess: 'process',
  'primitives/http_client': 'http',
  http_client: 'http',
  'mcp/stdio': 'mcp',
  'mcp/http': 'mcp',
  mcp_stdio_runtime: 'mcp',
  mcp_http_runtime: 'mcp',
  'state-graph/runtime': 'graph',
  state_graph_runtime: 'graph',
  'rust/runtime': 'rust',
  rust_runtime: 'rust',
};

function executorOf(value: JsonObject): Executor {
  const id = value['executor_id'];
  if (typeof id !== 'string' || id === '') return 'none';
  const parts = id.split('/');
  const tail = (count: number): string => parts.slice(-count).join('/');
  return EXECUTORS[tail(2)] ?? EXECUTORS[tail(1)] ?? 'unknown';
}

/** Manifest types that describe internal parts of Rye OS. */
const INNER_TYPES = new Set([
  'runtime',
  'primitive',
  'parser',
  'extractor',
  'processor',
  'sink',
  'config',
  'config-schema',
  'config_schema',
  'capability',
  'capabilities',
  'schema',
]);

/**
 * Decides how a tool runs from its declaration (`executor_id`, `tool_type`), else from its source. Returns undefined for
 * the standard contract, JSON on stdin. Throws `tool_unsupported` with a replacement in the hint, so that no tool runs
 * that would do nothing.
 */
export function runtimeOf(question: RuntimeQuestion): ToolRuntime | undefined {
  const executor = executorOf(question.value);
  if (executor === 'unknown' && question.kind !== 'manifest') throw unknownExecutor(question);
  switch (question.kind) {
    case 'python':
      return pythonRuntime(question, executor);
    case 'javascript':
    case 'typescript':
      return nodeRuntime(question, executor);
    case 'shell':
      if (question.facts?.runsSomething === false) throw refuse(question, inertAdvice('shell'));
      return executor === 'shell' ? { how: 'project' } : undefined;
    case 'manifest':
      return manifestRuntime(question, executor);
    default:
      return undefined;
  }
}

function unknownExecutor(question: RuntimeQuestion): RyeError {
  const id = plainText(question.value['executor_id']);
  return refuse(
    question,
    {
      message: `the executor ${JSON.stringify(id)} is unknown`,
      hint: `Remove it and read the parameters as JSON from stdin, or use one of rye/core/runtimes/python/function, python/script, node/node, bash/bash and rye/core/primitives/execute.`,
    },
    'executor_id',
  );
}

function pythonRuntime(question: RuntimeQuestion, executor: Executor): ToolRuntime | undefined {
  const { facts } = question;
  if (facts === undefined) return scriptRuntime(executor, []);
  refuseImports(question, facts);
  const { execute } = facts;
  const isFunction = executor === 'function';
  if (isFunction && execute === undefined) {
    throw refuse(
      question,
      {
        message:
          'the function runtime calls execute(params, project_path), which the file does not define',
        hint: 'Define it: def execute(params, project_path): return {"result": …}',
      },
      'executor_id',
    );
  }
  if (execute !== undefined && (isFunction || (executor === 'none' && !facts.hasMain))) {
    if (execute.required > 2 || execute.keywords > 0) {
      throw refuse(question, {
        message: 'execute takes more than params and project_path',
        hint: 'Give its other parameters defaults: def execute(params, project_path, …=None)',
        line: execute.line,
      });
    }
    return { how: 'function' };
  }
  if (!facts.runsSomething && !loadsPinned(question, facts))
    throw refuse(question, inertAdvice('python', question.path, question.value));
  return scriptRuntime(executor, facts.flags);
}

/** True if the file imports a pinned module only for what that module does. */
function loadsPinned({ files = {} }: RuntimeQuestion, { loads = [] }: SourceFacts): boolean {
  const pinned = new Set(Object.keys(files).map((name) => name.replace(/(?:\.py|\/.*)$/, '')));
  return loads.some((module) => pinned.has(module));
}

/** Refuses imports that work only in Rye OS, which has its Python package on the path. */
function refuseImports(question: RuntimeQuestion, { imports }: SourceFacts): void {
  const pinned = new Set(Object.keys(question.files ?? {}).map((name) => name.split('/')[0]));
  for (const one of imports) {
    const root = one.module.split('.')[0] ?? '';
    const isPinned = pinned.has(`${root}.py`) || pinned.has(root);
    if (one.optional || (isPinned && one.level === 0)) continue;
    const advice = importAdvice(one);
    if (advice !== undefined) throw refuse(question, { ...advice, line: one.line });
  }
}

function scriptRuntime(executor: Executor, flags: readonly string[]): ToolRuntime | undefined {
  const params = flags.includes('--params');
  const isDeclared = executor === 'script' || executor === 'node';
  return isDeclared || params || flags.includes('--project-path')
    ? { how: 'arguments', params }
    : undefined;
}

function nodeRuntime(question: RuntimeQuestion, executor: Executor): ToolRuntime | undefined {
  const { facts, path } = question;
  if (question.kind === 'typescript' && !runsTypescript(process.versions.node)) {
    const extension = extname(path);
    const name = path.slice(path.lastIndexOf('/') + 1, -extension.length);
    throw refuse(question, {
      message: `TypeScript does not run on Node ${process.versions.node}`,
      hint: `Compile it and delete the original: npx esbuild ${name}${extension} --bundle --platform=node --format=esm --outfile=${name}.mjs`,
    });
  }
  if (facts?.runsSomething === false) throw refuse(question, inertAdvice('javascript'));
  return scriptRuntime(executor, facts?.flags ?? []);
}

/** True if this version of Node runs TypeScript without an option: 22.18, 23.6 and later. */
export function runsTypescript(version: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return major > 23 || (major === 23 && minor >= 6) || (major === 22 && minor >= 18);
}

function manifestRuntime(question: RuntimeQuestion, executor: Executor): ToolRuntime | undefined {
  const { value, parameters } = question;
  const type = plainText(value['tool_type']).toLowerCase();
  const config = isJsonObject(value['config']) ? value['config'] : {};
  refuseDeclaration(question, executor, type);
  if (executor === 'http' || type === 'http') {
    return { how: 'http', request: readHttpTemplate(question, config) };
  }
  refusePart(question, executor, type);
  if (executor === 'shell') {
    return { how: 'shell', script: shellScript(question, config, parameters) };
  }
  const isOlder = executor === 'process' || (executor === 'none' && value['command'] === undefined);
  return isOlder && config['command'] !== undefined ? { how: 'words' } : undefined;
}

/** Refuses graphs, MCP servers and model providers, which are not tools in rye. */
function refuseDeclaration(question: RuntimeQuestion, executor: Executor, type: string): void {
  const { value } = question;
  if (executor === 'graph' || ['graph', 'state_graph'].includes(type)) {
    throw refuse(question, graphAdvice(value), 'executor_id');
  }
  if (executor === 'mcp' || ['mcp', 'mcp_server'].includes(type)) {
    throw refuse(question, mcpAdvice(question), 'tool_type');
  }
  const isHttp = executor === 'http' || type === 'http';
  const provider = isHttp ? providerAdvice(value) : undefined;
  if (provider !== undefined) throw refuse(question, provider, 'tool_type');
}

function refusePart(question: RuntimeQuestion, executor: Executor, type: string): void {
  const name = question.path.slice(question.path.lastIndexOf('/') + 1);
  if (/^(?:package(?:-lock)?|tsconfig(?:\..+)?)\.json$/.test(name)) {
    throw refuse(question, {
      message: `${name} is not a tool`,
      hint: 'Move it out of .ai/tools, or pin it in the manifest that needs it (files: {NAME: SHA-256}) and name it there only.',
    });
  }
  if (INNER_TYPES.has(type)) {
    throw refuse(
      question,
      {
        message: `a manifest of the type "${type}" belongs to Rye OS itself and is not a tool`,
        hint: 'Delete it: rye has its own runtimes and parsers. A tool that named it as executor_id runs without it; see "Migrating from Rye OS" in docs/directives.md.',
      },
      'tool_type',
    );
  }
  if (executor === 'function' || executor === 'script' || executor === 'node') {
    throw refuse(
      question,
      {
        message: `the executor "${plainText(question.value['executor_id'])}" runs source code, but a manifest has none`,
        hint: 'Name the program: command: [python3, "{tool_dir}/NAME.py"] with files: {NAME.py: SHA-256}, without executor_id.',
      },
      'executor_id',
    );
  }
  if (executor === 'rust' || executor === 'unknown') throw unknownExecutor(question);
}

const PLACEHOLDER = /\{([A-Za-z_]\w*)\}/g;

/** Returns the shell command. Throws if a parameter is in a place where quoting cannot protect it. */
function shellScript(
  question: RuntimeQuestion,
  config: JsonObject,
  parameters: readonly string[],
): string {
  const script = config['command'];
  if (typeof script !== 'string' || script.trim() === '') {
    throw refuse(
      question,
      {
        message: 'the manifest has no command',
        hint: 'Write config: {command: "the shell command"}.',
        code: 'tool_malformed',
      },
      'config',
    );
  }
  // a quoted "{name}" means the same as {name}, which becomes one quoted word anyway
  const plain = script.replaceAll(/(["'])(\{[A-Za-z_]\w*\})\1/g, '$2');
  const used = [...plain.matchAll(PLACEHOLDER)].filter(([, name = '']) =>
    parameters.includes(name),
  );
  const unsafe = used.find(({ index }) => isInsideQuotes(plain, index));
  const [first] = unsafe ? [unsafe] : used;
  if (first !== undefined && (unsafe || /<<|`|\$\(|\\\{|(?:^|\s)#/.test(plain))) {
    throw refuse(
      question,
      {
        message: `the shell command puts ${first[0]} where the shell may read it as code`,
        hint: 'Write parameters outside of longer quotes, $(…), `…`, comments and here-documents (each becomes one quoted word), or read the JSON on stdin, such as with jq.',
      },
      'config',
    );
  }
  return plain;
}

function isInsideQuotes(script: string, offset: number): boolean {
  let quote = '';
  for (let at = 0; at < offset; at += 1) {
    const character = script.charAt(at);
    if (character === '\\' && quote !== "'") at += 1;
    else if (quote === '') quote = character === '"' || character === "'" ? character : '';
    else if (character === quote) quote = '';
  }
  return quote !== '';
}
