import { type ConfigNode, mergeConfig, nestConfig } from './config.ts';

/** A translated Rye OS file and its settings that rye ignores. */
export interface TranslatedConfig {
  readonly node: ConfigNode;
  /** One `file:line: setting` with an instruction per setting. */
  readonly ignored: readonly string[];
}

/** Members that only describe the file. */
const METADATA = new Set(['category', 'schema_version', 'tool_type', 'version']);

type Move =
  | { readonly to: string; readonly values?: Readonly<Record<string, string>> }
  | { readonly drop: string };

const NO_EFFECT: Move = { drop: 'it has no effect in rye' };
const inCoordination = (setting: string): Move => ({
  drop: `write ${setting} into agent/coordination.yaml`,
});

/** Settings of Rye OS by file and dotted path, with their path in rye. */
const MOVES: Readonly<Record<string, Readonly<Record<string, Move>>>> = {
  'agent/resilience': {
    description: NO_EFFECT,
    'limits.defaults': { to: 'limits' },
    'limits.spend_currency': NO_EFFECT,
    'limits.enforcement': NO_EFFECT,
    'retry.policies': NO_EFFECT,
    checkpoint: NO_EFFECT,
    coordination: NO_EFFECT,
    child_policy: inCoordination('child_policy.on_parent_…: cancel | keep'),
    concurrency: inCoordination('concurrency.max_children and concurrency.max_total'),
    'tool_preload.enabled': NO_EFFECT,
  },
  'agent/coordination': {
    description: NO_EFFECT,
    'coordination.continuation.trigger_threshold': { to: 'continuation.trigger_threshold' },
    'coordination.continuation.transcript_integrity': { to: 'transcript_integrity' },
    'coordination.transcript_integrity': { to: 'transcript_integrity' },
    coordination: NO_EFFECT,
  },
  'agent/agent': {
    description: NO_EFFECT,
    max_output_tokens: { drop: 'a provider file sets max_output_tokens for each model' },
    tier_mapping: { drop: 'write tiers into the file of a provider' },
  },
  'agent/error_classification': {
    description: NO_EFFECT,
    default: NO_EFFECT,
    operators: NO_EFFECT,
    combinators: NO_EFFECT,
    retry_policy_types: NO_EFFECT,
  },
  'agent/hook_conditions': {
    description: NO_EFFECT,
    context_hooks: { drop: 'write context hooks into agent/hooks.yaml' },
    action_primaries: NO_EFFECT,
    action_item_types: NO_EFFECT,
  },
  'agent/capability_risk': { description: NO_EFFECT },
  'agent/events': { description: NO_EFFECT },
};

/** Translates the layout of Rye OS: drops metadata, moves settings and reports settings without effect. */
export function fromRyeOs(name: string, node: ConfigNode): TranslatedConfig {
  if (node.kind !== 'map') return { node, ignored: [] };
  const kept = new Map([...node.members].filter(([key]) => !METADATA.has(key)));
  const moves = Object.hasOwn(MOVES, name) ? (MOVES[name] ?? {}) : {};
  let root: ConfigNode = { ...node, members: kept };
  const ignored: string[] = [];
  for (const [path, move] of Object.entries(moves)) {
    const keys = path.split('.');
    const found = memberAt(root, keys);
    if (found === undefined) continue;
    root = without(root, keys);
    if ('to' in move) root = mergeConfig(root, nestConfig(move.to.split('.'), found));
    else if (path !== 'description') ignored.push(`${found.origin}: ${path}: ${move.drop}`);
  }
  if (name === 'agent/hook_conditions') root = withoutInner(root, ignored);
  if (name === 'agent/error_classification') root = withoutPatterns(root, ignored);
  return { node: root, ignored };
}

/** Drops hooks that call internal tools of Rye OS, because rye does their work itself. */
function withoutInner(root: ConfigNode, ignored: string[]): ConfigNode {
  if (root.kind !== 'map') return root;
  const members = new Map(
    [...root.members].map(([key, list]): [string, ConfigNode] => {
      if (list.kind !== 'list') return [key, list];
      const items = list.items.filter((item) => {
        const id = memberAt(item, ['action', 'item_id']);
        const isInner = id?.kind === 'scalar' && String(id.value).startsWith('rye/agent/threads/');
        if (isInner) ignored.push(`${item.origin}: ${String(id.value)}: rye does this itself`);
        return !isInner;
      });
      return [key, { ...list, items }];
    }),
  );
  return { ...root, members };
}

/** Drops error patterns of Rye OS, which match by paths and operators instead of status, type, phase and message. */
function withoutPatterns(root: ConfigNode, ignored: string[]): ConfigNode {
  const patterns = memberAt(root, ['patterns']);
  if (root.kind !== 'map' || patterns?.kind !== 'list') return root;
  const items = patterns.items.filter((item) => {
    const match = memberAt(item, ['match']);
    const keys = match?.kind === 'map' ? [...match.members.keys()] : [];
    const isOld = keys.some((key) => ['path', 'op', 'any', 'all', 'not'].includes(key));
    if (isOld) {
      ignored.push(`${item.origin}: patterns: write match: {status, type, phase, message}`);
    }
    return !isOld;
  });
  return { ...root, members: new Map([...root.members, ['patterns', { ...patterns, items }]]) };
}

function memberAt(node: ConfigNode, keys: readonly string[]): ConfigNode | undefined {
  return keys.reduce<ConfigNode | undefined>(
    (at, key) => (at?.kind === 'map' ? at.members.get(key) : undefined),
    node,
  );
}

function without(node: ConfigNode, [key = '', ...rest]: readonly string[]): ConfigNode {
  if (node.kind !== 'map') return node;
  const members = new Map(node.members);
  const inner = members.get(key);
  if (rest.length === 0 || inner === undefined) members.delete(key);
  else members.set(key, without(inner, rest));
  return { ...node, members };
}
