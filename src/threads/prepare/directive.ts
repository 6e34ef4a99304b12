import type { HookDeclaration } from '../../core/hook.ts';
import { compact, type JsonObject } from '../../core/json.ts';
import type { PlanSource } from '../../core/plan.ts';
import { parseHooks } from '../../hooks/declaration.ts';
import { dispatchRouting } from '../../hooks/dispatch.ts';
import { mergeLayers } from '../../hooks/layers.ts';
import { assertStandsFor } from '../../items/binding.ts';
import { parseDirective } from '../../items/directive.ts';
import {
  type Composed,
  composeChain,
  type LoadedDirective,
  walkChain,
} from '../../items/extends.ts';
import type { ItemSource, LoadedItem, ThreadConfig } from '../ports.ts';

const DIRECTIVE_LAYER = 1;

interface ChainLink extends LoadedDirective {
  readonly item: LoadedItem;
}

/** A directive with its ancestors: what they say together and the verified files that said it. */
export interface ResolvedDirective {
  readonly leaf: LoadedItem;
  readonly chain: readonly PlanSource[];
  readonly composed: Composed;
  readonly hooks: readonly HookDeclaration[];
  readonly warnings: readonly string[];
  /** The hook that chose the parent, if one did. */
  readonly routedBy: string | undefined;
  /** What `resolve_extends` hooks were told. */
  readonly routingContext: JsonObject;
}

export interface DirectiveRequest {
  readonly directiveId: string;
  readonly inputs: JsonObject;
}

/** Loads and verifies a directive, lets `resolve_extends` hooks route it, walks and composes its chain. */
export async function resolveDirective(
  items: ItemSource,
  config: ThreadConfig,
  { directiveId, inputs }: DirectiveRequest,
): Promise<ResolvedDirective> {
  const load = async (id: string): Promise<ChainLink> => {
    const item = await items.load('directive', id, 'execute');
    const directive = parseDirective(item.text, item.path);
    assertStandsFor(item, directive);
    return { id, item, directive };
  };
  const leaf = await load(directiveId);
  const { directive } = leaf;
  const ownHooks = parseHooks(directive.rawHooks, DIRECTIVE_LAYER);
  const { id, tier, provider } = directive.model ?? {};
  const routingContext: JsonObject = {
    directive: directiveId,
    has_extends: directive.extends !== undefined,
    category: directive.category ?? '',
    inputs,
    model: id ?? tier ?? null,
    requested_model: compact({ id, tier, provider }),
  };
  const routing = dispatchRouting(
    mergeLayers({ ...config.hooks, directive: ownHooks }).hooks,
    routingContext,
  );
  const links = await walkChain(
    directiveId,
    async (link) => (link === directiveId ? leaf : await load(link)),
    routing.target,
  );
  const composed = composeChain(links);
  const directiveHooks = parseHooks(composed.rawHooks, DIRECTIVE_LAYER);
  const merged = mergeLayers({ ...config.hooks, directive: directiveHooks });
  return {
    leaf: leaf.item,
    chain: links.map(({ item }) => sourceOf(item)),
    composed,
    hooks: merged.hooks,
    warnings: merged.warnings,
    routedBy: routing.decidedBy,
    routingContext,
  };
}

/** The part of a loaded item that a plan and thread.json name. */
export function sourceOf({ type, id, space, path, sha256, integrity }: LoadedItem): PlanSource {
  return { type, id, space, path, sha256, integrity };
}
