/** A new thread asks whether its ID was used before: that must not cost a look at every row of the past. */
export const BY_THREAD_MIGRATION = `
  CREATE INDEX deliveries_by_thread ON deliveries (thread_id);
  CREATE INDEX runs_by_thread ON runs (thread_id);
  CREATE INDEX attempts_by_thread ON delivery_attempts (thread_id);`;
