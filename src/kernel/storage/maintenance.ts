/** The result of an inspection of a database file. `unreadable`: rye can neither use nor repair it. */
export interface DatabaseState {
  readonly name: 'registry' | 'ledger' | 'index';
  readonly path: string;
  readonly state: 'ok' | 'missing' | 'damaged' | 'unreadable';
  readonly detail: string;
}

/** Repairs of databases that are files on the local disk. */
export interface StoreMaintenance {
  /** Looks at the databases; changes nothing. */
  inspect(): readonly DatabaseState[];
  /**
   * Moves a damaged database aside, with the files that SQLite keeps beside it; returns its new path. The next use
   * creates a new one.
   */
  setAside(name: DatabaseState['name'], suffix: string): string;
  /** Keeps other repairs of this project's state away; refused with `thread_locked` while one runs. */
  holdRepair(): { release(): void };
}
