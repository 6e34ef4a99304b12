import { RyeError } from '../core/errors.ts';
import { didYouMean } from '../core/text.ts';
import { readConfigFile, readOverShipped } from '../items/config-fs.ts';
import type { FoundFile, Spaces } from '../items/spaces-fs.ts';
import { parseApprovalPolicy } from '../policy/approvals.ts';
import { parseRiskTable } from '../policy/risk.ts';
import { parseCatalog } from '../providers/catalog.ts';
import { parseServers } from '../tools/mcp/config.ts';
import { readPolicyLayer } from '../trust/policy.ts';
import { fileHashes } from './mcp/configured.ts';
import { shippedKinds } from './models.ts';

const PROVIDERS = 'agent/providers/';

/** Throws the mistakes of a configuration file with its own reader, as a run would find them. */
export async function checkOwnReader(file: FoundFile, spaces: Spaces): Promise<void> {
  const { id, path } = file;
  if (id === 'trust') {
    const { value } = await readOverShipped(file, spaces);
    readPolicyLayer(value, path);
  } else if (id === 'agent/capability_risk') {
    const { value } = await readOverShipped(file, spaces);
    parseRiskTable(value, { path });
  } else if (id === 'agent/approvals') {
    const { value } = await readConfigFile(file);
    parseApprovalPolicy(value, file.space, { path });
  } else if (id === 'schedules') {
    const { readSchedules } = await import('../schedules/schedule.ts');
    readSchedules((await readConfigFile(file)).value, path);
  } else if (id === 'mcp') {
    const { value } = await readOverShipped(file, spaces);
    const { servers, disclosure } = value;
    const read = parseServers({ servers, disclosure, origin: path, env: ANY_VARIABLE });
    const [first] = [...read.problems, ...fileHashes(value).problems];
    if (first) throw first;
  } else if (id.startsWith(PROVIDERS)) await checkProvider(file, spaces);
}

/** Has every variable: those that are set are a matter of the machine, not of the file. */
const ANY_VARIABLE = new Proxy<Record<string, string>>({}, { get: () => 'value' });

async function checkProvider(file: FoundFile, spaces: Spaces): Promise<void> {
  const own = file.id.slice(PROVIDERS.length);
  const { kind, models } = (await readOverShipped(file, spaces)).value;
  // a program may bring this kind along: only it can check the file, and a run without it fails
  if (isOtherKind(kind) && models !== undefined) return;
  const shipped = spaces
    .list('config', { space: 'system' })
    .filter(({ id }) => id.startsWith(PROVIDERS) && id !== file.id)
    .flatMap(({ id }) => spaces.find('config', id, { space: 'system' }) ?? []);
  const files = await Promise.all(
    [...shipped, file].map(async (each) => [
      each.id.slice(PROVIDERS.length),
      await readOverShipped(each, spaces),
    ]),
  );
  try {
    parseCatalog(Object.fromEntries(files), shippedKinds());
  } catch (error) {
    // other files may hold what this one refers to
    const message = error instanceof RyeError ? error.message : '';
    if (message.includes(file.path) || message.includes(`providers/${own}`)) throw error;
    if (!(error instanceof RyeError)) throw error;
  }
}

/** True for the name of a kind that is not shipped and is no misspelling of one that is. */
function isOtherKind(kind: unknown): boolean {
  const names = Object.keys(shippedKinds());
  return typeof kind === 'string' && !names.includes(kind) && didYouMean(kind, names) === undefined;
}
