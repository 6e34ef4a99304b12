import { readOverShipped } from '../../kernel/items/config-fs.ts';
import type { FoundFile, Spaces } from '../../kernel/items/spaces-fs.ts';
import { parseServers } from './config.ts';
import { fileHashes } from './configured.ts';

/** Has every variable: those that are set are a matter of the machine, not of the file. */
const ANY_VARIABLE = new Proxy<Record<string, string>>({}, { get: () => 'value' });

/** Throws the first mistake in a file of servers. */
export async function checkServersFile(file: FoundFile, spaces: Spaces): Promise<void> {
  const { value } = await readOverShipped(file, spaces);
  const { servers, disclosure } = value;
  const read = parseServers({ servers, disclosure, origin: file.path, env: ANY_VARIABLE });
  const [first] = [...read.problems, ...fileHashes(value).problems];
  if (first) throw first;
}
