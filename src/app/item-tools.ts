import { assertIdentity } from '../items/binding.ts';
import { readToolFiles, readToolMetadata } from '../items/tool-metadata-fs.ts';
import type { VerifiedItems } from '../items/verified-fs.ts';
import { createItemTool } from '../tools/item/item-tool.ts';
import type { Tool } from '../tools/tool.ts';
import type { ToolScope } from './session-tools.ts';

/** Reads a tool of the spaces and checks it. `others` are IDs that an error may suggest. */
export async function readItemTool(
  items: VerifiedItems,
  id: string,
  options: {
    readonly env: NodeJS.ProcessEnv;
    readonly scope: ToolScope | undefined;
    readonly others: readonly string[];
  },
): Promise<Tool> {
  const { env, scope, others } = options;
  const item = items.load('tool', id, 'execute', others);
  const metadata = await readToolMetadata(item.text, item.path);
  assertIdentity({ type: 'tool', id, path: item.path }, { category: metadata.category });
  if (metadata.unsupported) throw metadata.unsupported;
  const tool = createItemTool(
    {
      id,
      path: item.path,
      kind: metadata.kind,
      description: metadata.description,
      inputSchema: metadata.inputSchema,
      traits: metadata.traits,
      env: metadata.env,
      content: item.bytes,
      sha256: item.sha256,
      files: readToolFiles(item.path, metadata.files ?? {}),
      ...(metadata.command ? { command: metadata.command } : {}),
      ...(metadata.runtime ? { runtime: metadata.runtime } : {}),
    },
    {
      env,
      sandbox: scope?.sandbox,
      ...(scope?.allowDomains ? { allowDomains: scope.allowDomains } : {}),
      resolveSecret: (name) => scope?.secrets[name],
    },
  );
  scope?.admit?.(tool);
  return tool;
}
