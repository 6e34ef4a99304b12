import { type ErrorCode, RyeError, type SourceLocation } from '../core/errors.ts';
import { isJsonObject, type JsonObject, type JsonValue } from '../core/json.ts';

/** Returns advice for a file that would exit with success without doing anything. */
export function inertAdvice(
  kind: 'python' | 'javascript' | 'shell',
  path = '',
  value: JsonObject = {},
): Advice {
  if (kind === 'shell') {
    return {
      message: 'the script has no command outside its functions, so running it would do nothing',
      hint: 'Write the commands below the header and the functions; the parameters come as JSON on stdin.',
    };
  }
  if (kind === 'javascript') {
    return {
      message: 'the file only declares and exports, so running it would do nothing',
      hint: "End it with the work: import { readFileSync } from 'node:fs'; console.log(JSON.stringify(await execute(JSON.parse(readFileSync(0, 'utf8')), process.env.RYE_PROJECT_PATH)));",
    };
  }
  const name = path.slice(path.lastIndexOf('/') + 1);
  if (name === '__init__.py' || Object.keys(value).length === 0) {
    return {
      message: `${name} is a module, not a tool: it describes no tool and runs nothing`,
      hint: `Pin it in the tool that imports it, __files__ = {"${name}": "SHA-256"}, or move it out of .ai/tools.`,
    };
  }
  return {
    message:
      'the file only defines functions, classes or constants, so running it would do nothing',
    hint: `Define execute(params, project_path), which rye calls, or end the file with if __name__ == "__main__": and the work. If other tools import it, pin it in them: __files__ = {"${name}": "SHA-256"}.`,
  };
}

/** Modules that Rye OS provides to its tools. */
const RUNTIME_LIBRARY = new Set(['module_loader', 'condition_evaluator', 'interpolation']);
const OWN_PACKAGES = /^(?:rye|lillux|lilux|kiwi_mcp|ryeos_\w+)$/;

/** Replacements for parts of Rye OS's Python package. */
const REPLACEMENTS: readonly (readonly [pattern: RegExp, hint: string])[] = [
  [/\bAI_DIR\b/, 'Write AI_DIR = ".ai" instead of the import.'],
  [
    /path_utils|get_user_space|constants/,
    'Write the path instead: Path(project_path) / ".ai", or Path.home() / ".ai" for the user space.',
  ],
  [
    /integrity|signing|metadata_manager|lillux|verify/i,
    'Remove it: rye checks signatures before a tool runs. `rye sign` and `rye verify` do it by hand.',
  ],
  [
    /execut|actions|tools?\b|resolv|fetch|search/i,
    'A tool cannot call rye in its own process: let the directive call the other item, or run subprocess.run(["rye", "execute", "tool", ID, "--json"]).',
  ],
];

/** Explains why an import cannot work; undefined for a package that may be installed. */
export function importAdvice({ module, names, level, line }: ModuleImport): Advice | undefined {
  const root = module.split('.')[0] ?? '';
  if (level > 0) {
    const file = `${root === '' ? (names[0] ?? 'module') : root}.py`;
    return {
      message: `line ${line} imports ${'.'.repeat(level)}${module} relative to a package, but a tool is not in a package`,
      hint: `Write ${root === '' ? `import ${names.join(', ')}` : `from ${module} import ${names.join(', ')}`} and pin the file: __files__ = {"${file}": "SHA-256"}.`,
    };
  }
  if (RUNTIME_LIBRARY.has(root)) {
    return {
      message: `line ${line} imports ${module} from the runtime library of Rye OS, which rye does not have`,
      hint: `Copy what the tool needs from it into the tool, or pin a copy: __files__ = {"${root}.py": "SHA-256"}.`,
    };
  }
  if (!OWN_PACKAGES.test(root)) return undefined;
  const text = [module, ...names].join(' ');
  const hint = REPLACEMENTS.find(([pattern]) => pattern.test(text))?.[1];
  return {
    message: `line ${line} imports ${[module, ...names].join(' ').trim()}: rye does not have the Python package of Rye OS`,
    hint:
      hint ??
      'Remove the import, or wrap it in try: … except ImportError: if the tool works without it.',
  };
}

/** Explains why a sibling module is missing when the tool runs. */
export function siblingAdvice(file: string, sha256: string | undefined, line: number): Advice {
  const hash = sha256 ?? 'SHA-256';
  return {
    message: `line ${line} imports ${file}, which the tool's signature does not cover`,
    hint: `Pin it in the tool: __files__ = {"${file}": "${hash}"}`,
  };
}

function yamlText(value: JsonValue | undefined): string {
  const text = plainText(value);
  return /^[A-Za-z0-9_./:@-]+$/.test(text) ? text : JSON.stringify(text);
}

/** Converts a server's manifest to an entry of `.ai/config/mcp.yaml`; undefined if it has neither a command nor a URL. */
export function mcpServerEntry(name: string, server: JsonObject): string | undefined {
  const config = isJsonObject(server['config']) ? server['config'] : server;
  const { command, args, url, headers, timeout, env } = config;
  const lines: string[] = [];
  if (typeof url === 'string') lines.push(`url: ${yamlText(url)}`);
  else if (typeof command === 'string') {
    lines.push(`command: ${yamlText(command)}`);
    if (Array.isArray(args)) lines.push(`args: [${args.map(yamlText).join(', ')}]`);
  } else return undefined;
  for (const [key, value] of [
    ['headers', headers],
    ['env', env],
  ] as const) {
    if (!isJsonObject(value) || Object.keys(value).length === 0) continue;
    const pairs = Object.entries(value).map(
      ([member, text]) => `${member}: ${JSON.stringify(plainText(text))}`,
    );
    lines.push(`${key}: { ${pairs.join(', ')} }`);
  }
  if (typeof timeout === 'number') lines.push(`timeout_seconds: ${timeout}`);
  return [`  ${name}:`, ...lines.map((line) => `    ${line}`)].join('\n');
}

/** Derives a server name from the last segment of an id. */
export function mcpServerName(id: string): string {
  return (id.split('/').at(-1) ?? id).replaceAll(/[^A-Za-z0-9_-]/g, '-');
}

/** Returns advice for the manifests that Rye OS has for each MCP server and each of its tools. */
export function mcpAdvice({ value, path, manifest }: RuntimeQuestion): Advice {
  const config = isJsonObject(value['config']) ? value['config'] : {};
  const isServer = typeof config['tool_name'] !== 'string';
  const serverId = plainText(config['server'], path.replace(/\.\w+$/, ''));
  const name = mcpServerName(serverId);
  const server = isServer ? value : manifest?.(serverId);
  const entry =
    (server && mcpServerEntry(name, server)) ?? `  ${name}:\n    command: PROGRAM\n    args: []`;
  const write = `Delete this file and write into .ai/config/mcp.yaml:\nservers:\n${entry}\nThen sign it: rye sign config mcp.`;
  return isServer
    ? { message: `the MCP server ${name} is declared as a tool`, hint: write }
    : {
        message: `the tool ${plainText(config['tool_name'])} of the MCP server ${name} has a manifest`,
        hint: `${write} The tool is then mcp/${name}/${plainText(config['tool_name']).replaceAll(/[^A-Za-z0-9_-]/g, '_')}.`,
      };
}

/** Returns advice for a manifest that describes a model provider; undefined for other manifests. */
export function providerAdvice(value: JsonObject): Advice | undefined {
  const isProvider =
    ['tool_use', 'tier_mapping', 'pricing', 'profiles'].some((key) => value[key] !== undefined) ||
    plainText(value['category']).includes('agent/providers');
  if (!isProvider) return undefined;
  const name =
    plainText(value['tool_id'] ?? value['name'], 'NAME')
      .split('/')
      .at(-1) ?? 'NAME';
  return {
    message: `the manifest describes the model provider ${name}, which is not a tool`,
    hint: `Delete this file and write .ai/config/agent/providers/${name}.yaml:\n${providerFile(value)}\nThen sign it: rye sign config agent/providers/${name}.`,
  };
}

/** Marks what a person has to fill in. */
export const PLACEHOLDER = 'HOST';

/** Returns an equivalent provider file: URL, key variable, tiers and the price of each model. */
export function providerFile(value: JsonObject): string {
  const config = isJsonObject(value['config']) ? value['config'] : {};
  const auth = isJsonObject(config['auth']) ? config['auth'] : {};
  const url = typeof config['url'] === 'string' ? config['url'] : `https://${PLACEHOLDER}/v1`;
  const isAnthropic = /\/messages\b/.test(url) || url.includes('anthropic');
  const base = url.replace(/\/(?:v1\/messages|chat\/completions|messages)\b.*$/, '');
  const variable = /\$\{(\w+)\}/.exec(plainText(auth['token'] ?? auth['key']))?.[1];
  const tiers = isJsonObject(value['tier_mapping']) ? Object.entries(value['tier_mapping']) : [];
  const prices = isJsonObject(value['pricing']) ? Object.entries(value['pricing']) : [];
  const ids = new Set([...tiers.map(([, id]) => plainText(id)), ...prices.map(([id]) => id)]);
  const priceOf = (id: string): string => {
    const price = prices.find(([one]) => one === id)?.[1];
    return isJsonObject(price) && price['input'] !== undefined
      ? `{ input: ${plainText(price['input'], '0')}, output: ${plainText(price['output'], '0')} }`
      : 'null';
  };
  const models = [...ids].map(
    (id) =>
      `  ${yamlText(id)}: { context_window: 128000, max_output_tokens: 8192, pricing: ${priceOf(id)} }`,
  );
  return [
    `kind: ${isAnthropic ? 'anthropic' : 'openai'}`,
    ...(base.includes(PLACEHOLDER)
      ? [`# Replace ${PLACEHOLDER}: the manifest names no address.`]
      : []),
    `base_url: ${yamlText(base)}`,
    ...(variable === undefined ? [] : [`api_key_env: ${variable}`]),
    ...(tiers.length === 0
      ? []
      : [`tiers: { ${tiers.map(([tier, id]) => `${tier}: ${yamlText(id)}`).join(', ')} }`]),
    ...(models.length === 0 ? ['models: {}'] : ['models:', ...models]),
  ].join('\n');
}

/** Returns advice for a state graph, which rye expresses as a directive with explicit steps. */
export function graphAdvice(value: JsonObject): Advice {
  return {
    message: 'the manifest is a state graph, which rye does not run',
    hint: `Write a directive with a process; run it without a model with --provider literal:\n${graphSteps(value)}\nBranches (next: with when:) and loops (foreach) become instructions for a model in the body.`,
  };
}

/** Converts the nodes of a graph to `<process>` steps, in breadth-first order. */
function graphSteps(value: JsonObject): string {
  const config = isJsonObject(value['config']) ? value['config'] : {};
  const nodes = isJsonObject(config['nodes']) ? config['nodes'] : {};
  const order = visited(nodes, config['start']);
  const steps = order.flatMap((name) => {
    const node = nodes[name];
    const action = isJsonObject(node) && isJsonObject(node['action']) ? node['action'] : undefined;
    if (action === undefined) return [];
    const params = isJsonObject(action['params']) ? Object.entries(action['params']) : [];
    return [
      `  <step name="${name}">`,
      `    <execute item_type="${plainText(action['item_type'], 'tool')}" item_id="${plainText(action['item_id'])}">`,
      ...params.map(([key, text]) => `      <param name="${key}">${xmlText(text)}</param>`),
      '    </execute>',
      '  </step>',
    ];
  });
  return ['<process>', ...steps, '</process>'].join('\n');
}

function visited(nodes: JsonObject, start: JsonValue | undefined): readonly string[] {
  const order: string[] = [];
  const queue = [typeof start === 'string' ? start : (Object.keys(nodes)[0] ?? '')];
  for (let name = queue.shift(); name !== undefined; name = queue.shift()) {
    const node = nodes[name];
    if (order.includes(name) || !isJsonObject(node)) continue;
    order.push(name);
    const { next } = node;
    const edges = Array.isArray(next) ? next : [next];
    queue.push(
      ...edges.flatMap((edge) => {
        const target = isJsonObject(edge) ? edge['to'] : edge;
        return typeof target === 'string' ? [target] : [];
      }),
    );
  }
  return order;
}

function xmlText(value: JsonValue | undefined): string {
  const text = typeof value === 'string' ? value : JSON.stringify(value ?? null);
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll(/\$\{state\.(\w+)\}/g, '${steps.$1.text}');
}

/** An import of a Python module that is not part of the standard library. */
export interface ModuleImport {
  /** `a.b`; empty for `from . import x`. */
  readonly module: string;
  readonly names: readonly string[];
  /** Leading dots of a relative import. */
  readonly level: number;
  readonly line: number;
  /** True inside a `try` that handles ImportError. */
  readonly optional: boolean;
}

/** Facts about a script's behavior, read from its source without running it. */
export interface SourceFacts {
  /** `--params` and `--project-path`, if the source mentions them as arguments. */
  readonly flags: readonly string[];
  readonly imports: readonly ModuleImport[];
  /** Python modules that are imported but never used, so that only their own code can work. */
  readonly loads?: readonly string[];
  /** False if running the file can have no effect: it only defines and imports. */
  readonly runsSomething: boolean;
  /** True if the file has an entry point. */
  readonly hasMain: boolean;
  /** A top-level `execute` function: positional parameters without a default, required keyword-only ones, and its line. */
  readonly execute?: {
    readonly required: number;
    readonly keywords: number;
    readonly line: number;
  };
}

/** The input for deciding how a file runs. */
export interface RuntimeQuestion {
  readonly path: string;
  readonly kind: string;
  /** Members of the header, the manifest or the constants. */
  readonly value: JsonObject;
  locate(key: string): SourceLocation;
  readonly facts: SourceFacts | undefined;
  readonly files: Readonly<Record<string, string>> | undefined;
  /** The names of the input schema's properties. */
  readonly parameters: readonly string[];
  /** Reads another manifest below the same `.ai/tools` by id; undefined if there is none. */
  readonly manifest?: ((id: string) => JsonObject | undefined) | undefined;
}

/** A refusal with a hint that shows the replacement. */
export interface Advice {
  readonly message: string;
  readonly hint: string;
  readonly code?: ErrorCode;
  readonly line?: number;
}

export function refuse(question: RuntimeQuestion, advice: Advice, key = ''): RyeError {
  const { path } = question;
  const location = advice.line === undefined ? question.locate(key) : { path, line: advice.line };
  return new RyeError(advice.code ?? 'tool_unsupported', advice.message, {
    location,
    hint: advice.hint,
  });
}

/** Converts a scalar to text; returns the fallback for anything else. */
export function plainText(value: JsonValue | undefined, fallback = ''): string {
  if (typeof value === 'string') return value;
  return typeof value === 'number' || typeof value === 'boolean' ? String(value) : fallback;
}
