/** A new thread asks whether its ID was used before: that must not cost a look at every row of the past. */
export const BY_THREAD_MIGRATION = `
  CREATE INDEX deliveries_by_thread ON deliveries (thread_id);
  CREATE INDEX runs_by_thread ON runs (thread_id);
  CREATE INDEX attempts_by_thread ON delivery_attempts (thread_id);`;

/** A list reads its page in the order of an index, with any filter, however many threads there are. */
export const LISTING_MIGRATION = `
  DROP INDEX threads_by_parent;
  CREATE INDEX threads_by_parent ON threads (parent_id, created_at);
  DROP INDEX threads_by_status;
  CREATE INDEX threads_by_status ON threads (status, created_at);
  CREATE INDEX threads_by_directive ON threads (directive, created_at);
  CREATE INDEX threads_last ON threads (parent_id, created_at) WHERE continuation_thread_id IS NULL;`;
