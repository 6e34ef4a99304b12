import type { Clock } from '../core/clock.ts';
import type { IdSource } from '../core/ids.ts';
import type { Config } from '../items/config-fs.ts';
import type { Spaces } from '../items/spaces-fs.ts';
import type { VerifyContext } from '../items/verified-fs.ts';
import type { SearchIndex } from '../storage/search-index.ts';
import type { Store } from '../storage/store.ts';
import type { Fleet } from '../threads/fleet-port.ts';
import type { NamedFeature } from './api/rye.ts';

/** The parts of an opened project that decide which store it has. */
export interface StoreOpening {
  readonly options: {
    readonly projectPath: string;
    readonly userSpacePath: string;
    readonly env?: Readonly<Record<string, string | undefined>>;
    readonly configOverrides?: readonly string[];
    readonly features?: readonly StoringFeature[];
  };
  readonly clock: Clock;
  readonly ids: IdSource;
  readonly spaces: Spaces;
  readonly verification: VerifyContext;
  readonly isGuest: boolean;
  config(): Promise<Config>;
  onClose(end: () => void): void;
}

/** Opens the store that a URL names, and the fleet that shares it. */
export interface StorePart {
  open(
    opening: StoreOpening,
    url: string,
    local: Pick<Store, 'owners'> & { readonly index: SearchIndex & { close(): void } },
  ): Promise<Store>;
  fleet(opening: StoreOpening, url: string): Promise<Fleet>;
}

/** A feature, as far as opening a store goes. `feature.ts` declares the whole type. */
export interface StoringFeature extends NamedFeature {
  /** Stores of the scheme `postgres:`. */
  readonly store?: () => Promise<StorePart>;
}
