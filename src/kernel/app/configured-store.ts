import { featureMissing, RyeError } from '../core/errors.ts';
import { verifyFile } from '../items/verified-fs.ts';
import type { Approvals } from '../storage/approvals.ts';
import { projectIndex } from '../storage/cached-index.ts';
import type { Deliveries } from '../storage/deliveries.ts';
import type { Ledger } from '../storage/ledger.ts';
import { openStore } from '../storage/open-store.ts';
import { processOwners } from '../storage/owners.ts';
import type { SqliteSearchIndex } from '../storage/sqlite/search-index.ts';
import type {
  Bundles,
  CloseOptions,
  LogHeads,
  LogStore,
  Registry,
  Store,
  ThreadDocuments,
} from '../storage/store.ts';
import type { Fleet } from '../threads/fleet-port.ts';
import { faultError } from '../trust/policy.ts';
import { lazy } from './lazy.ts';
import type { StoreOpening, StorePart } from './store-part.ts';

/** The name of the configuration file. */
const NAME = 'store';

/**
 * The store that the configuration names. The configuration is read, and the store opened, by the first call that needs
 * it. Only the search index is on this machine: it can be rebuilt, and it covers this machine's items and exports.
 */
export function configuredStore(opening: StoreOpening): () => Store {
  return () => {
    const owners = processOwners();
    const index = projectIndex({ ...opening.options, clock: opening.clock });
    let opened: Promise<Store> | undefined;
    const open = async (): Promise<Store> => {
      opened ??= openNamed(opening, { owners, index });
      return await opened;
    };
    return {
      registry: lazy<Registry>(async () => (await open()).registry, {}),
      ledger: lazy<Ledger>(async () => (await open()).ledger, {}),
      deliveries: lazy<Deliveries>(async () => (await open()).deliveries, {}),
      heads: lazy<LogHeads>(async () => (await open()).heads, {}),
      approvals: lazy<Approvals>(async () => (await open()).approvals, {}),
      logs: lazy<LogStore>(async () => (await open()).logs, {
        since: 'stream',
        follow: 'stream',
        bytes: 'stream',
        location: (threadId) => `postgres:${threadId}`,
      }),
      documents: lazy<ThreadDocuments>(async () => (await open()).documents ?? NONE, {}),
      bundles: lazy<Bundles>(async () => (await open()).bundles ?? NO_BUNDLES, {}),
      index,
      owners,
      close(options?: CloseOptions) {
        // a store that failed to open holds nothing
        void opened?.then((store) => store.close(options)).catch(() => undefined);
        index.close(options);
      },
    };
  };
}

async function openNamed(
  opening: StoreOpening,
  { owners, index }: Pick<Store, 'owners'> & { readonly index: SqliteSearchIndex },
): Promise<Store> {
  const { clock, ids, options } = opening;
  const url = await configuredUrl(opening);
  if (url === undefined) return openStore({ projectPath: options.projectPath, clock, ids });
  return await (await storePart(opening)).open(opening, url, { owners, index });
}

/** Returns the URL of the store that the configuration names; undefined for the project's own store. */
export async function configuredUrl(opening: StoreOpening): Promise<string | undefined> {
  const { options } = opening;
  assertCounts(opening);
  const [{ readSettings }, { parseStoreUrl }] = await Promise.all([
    import('./settings.ts'),
    import('../storage/store-url.ts'),
  ]);
  const text = (await readSettings(await opening.config(), NAME)).url ?? '';
  if (text === '') return undefined;
  const url = parseStoreUrl(text);
  if (url.hasSecret && options.configOverrides?.some((one) => one.startsWith(`${NAME}.`))) {
    throw new RyeError('usage', '-c store.url holds a password, which every process can read', {
      hint: 'Write the URL to ~/.ai/config/store.yaml, or leave the password to ~/.pgpass.',
    });
  }
  return url.href;
}

/** The feature that opens stores of other machines. Throws `feature_missing`. */
async function storePart({ options: { features = [] } }: StoreOpening): Promise<StorePart> {
  const load = features.find(({ store }) => store !== undefined)?.store;
  if (load !== undefined) return await load();
  throw featureMissing('fleet');
}

/** The fleet on the store that the configuration names. It is loaded by the first thread that needs it. */
export function configuredFleet(opening: StoreOpening): Fleet {
  const connected = async (): Promise<Fleet | undefined> => {
    const url = await configuredUrl(opening);
    if (url === undefined) return undefined;
    return await (await storePart(opening)).fleet(opening, url);
  };
  let connecting: Promise<Fleet | undefined> | undefined;
  return {
    start: async (threadId, place) => {
      connecting ??= connected();
      await (await connecting)?.start(threadId, place);
    },
    resume: async (threadId) => {
      connecting ??= connected();
      return (await (await connecting)?.resume(threadId)) ?? false;
    },
  };
}

/**
 * Throws if the project names a store in a file that no trusted key has signed. Ignoring it, as for other files, would
 * continue without the threads that are in that store.
 */
function assertCounts({ spaces, verification }: StoreOpening): void {
  const found = spaces.find('config', NAME, { space: 'project' });
  if (found === undefined) return;
  const verdict = verifyFile(found, verification);
  if (!verdict.ok) throw faultError(found, verdict);
}

/** The configuration names no store: the files are in the project's folder. */
const NONE: ThreadDocuments = {
  put: async () => undefined,
  get: async () => undefined,
  list: async () => [],
};

/** The configuration names no store: no other machine could read a bundle. */
const NO_BUNDLES: Bundles = {
  put: async () => {
    throw new RyeError('fleet_unavailable', 'the configuration names no store for a bundle', {
      hint: 'Set store.url in .ai/config/store.yaml to the URL of a PostgreSQL database.',
    });
  },
  get: async () => undefined,
};
