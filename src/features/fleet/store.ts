import type { StoreOpening, StorePart } from '../../kernel/app/store-part.ts';
import { keepCertificatesIn } from '../../kernel/trust/certificates-fs.ts';
import { connectFleet } from './connection.ts';
import { openFleetThreads, openPostgresStore } from './postgres/open-postgres.ts';

/** PostgreSQL as the store of a project, and the fleet on it. */
export const postgresStore: StorePart = {
  async open(opening, url, local) {
    const { clock, ids } = opening;
    const store = openPostgresStore({ url, clock, ids, ...local });
    await keepCertificates(opening, url);
    return store;
  },
  fleet: async (opening, url) => {
    const { clock, ids } = opening;
    return connectFleet({ url, clock, ids, onClose: (end) => opening.onClose(end) }).fleet;
  },
};

/** Keeps the certificates of the fleet's workers, so that what they signed can be checked without the store too. */
async function keepCertificates({ options, isGuest }: StoreOpening, url: string): Promise<void> {
  if (isGuest) return;
  const threads = openFleetThreads(url);
  try {
    keepCertificatesIn(options.userSpacePath, await threads.certificates());
  } finally {
    threads.close();
  }
}
