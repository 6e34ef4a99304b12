import { BY_THREAD_MIGRATION, LISTING_MIGRATION } from '../../../kernel/storage/thread-indexes.ts';

/**
 * The tables of a fleet's store. Columns match the SQLite store, so that both run the same statements; a `rowid`
 * column replaces SQLite's own one. Texts compare by their bytes, in every locale of the server.
 */
const TABLES = `
  CREATE TABLE threads (
    rowid BIGINT GENERATED ALWAYS AS IDENTITY,
    thread_id TEXT COLLATE "C" PRIMARY KEY,
    directive TEXT COLLATE "C" NOT NULL,
    parent_id TEXT COLLATE "C",
    status TEXT NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL,
    updated_at TEXT COLLATE "C" NOT NULL,
    completed_at TEXT,
    pid INTEGER,
    process_start TEXT,
    host TEXT,
    epoch INTEGER NOT NULL DEFAULT 0,
    heartbeat_at TEXT,
    model TEXT,
    cost TEXT NOT NULL,
    spawn_count INTEGER NOT NULL DEFAULT 0,
    result TEXT,
    outputs TEXT,
    error TEXT,
    continuation_of TEXT,
    continuation_thread_id TEXT,
    chain_root_id TEXT,
    cancel_requested TEXT,
    background INTEGER NOT NULL DEFAULT 0,
    signed_head TEXT,
    run INTEGER NOT NULL DEFAULT 1
  );
  CREATE INDEX threads_by_parent ON threads (parent_id);
  CREATE INDEX threads_by_status ON threads (status);
  CREATE INDEX threads_by_time ON threads (created_at);
  CREATE UNIQUE INDEX threads_by_lower_id ON threads (lower(thread_id));

  CREATE TABLE ends (
    thread_id TEXT NOT NULL,
    run INTEGER NOT NULL,
    ending TEXT NOT NULL,
    PRIMARY KEY (thread_id, run)
  );

  CREATE TABLE heads (
    thread_id TEXT PRIMARY KEY,
    status TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    updated_at TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    sha256 TEXT NOT NULL,
    events INTEGER NOT NULL,
    knowledge_sha256 TEXT
  );

  CREATE TABLE budget_ledger (
    rowid BIGINT GENERATED ALWAYS AS IDENTITY,
    thread_id TEXT PRIMARY KEY,
    parent_id TEXT REFERENCES budget_ledger (thread_id) ON DELETE RESTRICT,
    max BIGINT NOT NULL CHECK (max >= 0),
    reserved BIGINT NOT NULL CHECK (reserved >= 0),
    actual BIGINT NOT NULL CHECK (actual >= 0),
    status TEXT NOT NULL CHECK (status IN ('active', 'released')),
    epoch INTEGER NOT NULL DEFAULT 0
  );
  CREATE INDEX budget_by_parent ON budget_ledger (parent_id);
  CREATE INDEX budget_active ON budget_ledger (thread_id) WHERE status = 'active';

  CREATE TABLE approvals (
    rowid BIGINT GENERATED ALWAYS AS IDENTITY,
    approval_id TEXT COLLATE "C" PRIMARY KEY,
    thread_id TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'approved', 'denied', 'answered', 'expired',
      'withdrawn', 'voided')),
    requested TEXT NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL,
    expires_at TEXT NOT NULL,
    closed_at TEXT,
    CHECK ((state = 'pending') = (closed_at IS NULL))
  );
  CREATE INDEX approvals_by_thread ON approvals (thread_id, state);
  CREATE INDEX approvals_by_state ON approvals (state, created_at);
  CREATE TABLE approval_decisions (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    approval_id TEXT COLLATE "C" NOT NULL REFERENCES approvals (approval_id),
    signature TEXT NOT NULL,
    signed TEXT NOT NULL,
    recorded_at TEXT NOT NULL,
    late INTEGER NOT NULL CHECK (late IN (0, 1)),
    UNIQUE (approval_id, signature)
  );

  CREATE TABLE deliveries (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    delivery_id TEXT NOT NULL UNIQUE,
    thread_id TEXT NOT NULL,
    sent_to TEXT NOT NULL,
    class TEXT NOT NULL CHECK (class IN ('person', 'background')),
    kind TEXT NOT NULL CHECK (kind IN ('steer', 'message', 'child_result')),
    mode TEXT NOT NULL CHECK (mode IN ('auto', 'idle', 'active', 'follow-up')),
    source TEXT NOT NULL,
    source_key TEXT UNIQUE,
    text TEXT NOT NULL,
    requires_artifact INTEGER NOT NULL DEFAULT 0 CHECK (requires_artifact IN (0, 1)),
    state TEXT NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'manual', 'closed')),
    close_reason TEXT CHECK (close_reason IN ('delivered', 'delivered_absorbed', 'consumed_by_wait',
      'operator_confirmed', 'operator_dropped', 'requeued')),
    manual_reason TEXT,
    attempts INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    closed_at TEXT,
    entry_id TEXT UNIQUE,
    run_id TEXT,
    accepted INTEGER NOT NULL DEFAULT 0 CHECK (accepted IN (0, 1)),
    answer_id TEXT,
    child_run INTEGER,
    CHECK ((state = 'closed') = (close_reason IS NOT NULL)),
    CHECK ((state = 'manual') = (manual_reason IS NOT NULL)),
    CHECK (attempts BETWEEN 0 AND max_attempts),
    CHECK (accepted = 0 OR entry_id IS NOT NULL),
    CHECK (close_reason IS NULL OR close_reason NOT IN ('delivered', 'delivered_absorbed')
      OR (accepted = 1 AND answer_id IS NOT NULL))
  );
  CREATE INDEX deliveries_waiting ON deliveries (thread_id, seq) WHERE state <> 'closed';
  CREATE INDEX deliveries_by_address ON deliveries (sent_to);
  CREATE TABLE runs (
    run_id TEXT PRIMARY KEY,
    thread_id TEXT NOT NULL,
    epoch INTEGER NOT NULL CHECK (epoch >= 1),
    kind TEXT NOT NULL CHECK (kind IN ('regular', 'delivery', 'compact', 'unknown')),
    status TEXT NOT NULL CHECK (status IN ('running', 'completed', 'failed', 'interrupted', 'replaced')),
    requires_approval INTEGER,
    requires_network INTEGER,
    requires_write_access INTEGER,
    risk_class TEXT NOT NULL CHECK (risk_class IN ('read_only_low_risk', 'elevated', 'unknown')),
    revision INTEGER NOT NULL DEFAULT 1,
    started_at TEXT NOT NULL,
    ended_at TEXT,
    point TEXT
  );
  CREATE UNIQUE INDEX one_open_run ON runs (thread_id) WHERE status = 'running';
  CREATE TABLE delivery_attempts (
    attempt_id TEXT PRIMARY KEY,
    delivery_id TEXT NOT NULL REFERENCES deliveries (delivery_id),
    thread_id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('turn_start', 'turn_steer')),
    marker TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL CHECK (state IN ('accept_pending', 'tracking', 'delivered', 'rejected', 'abandoned')),
    epoch INTEGER NOT NULL CHECK (epoch >= 1),
    expected_run_id TEXT NOT NULL,
    expected_revision INTEGER NOT NULL,
    run_id TEXT,
    reason TEXT,
    proof TEXT,
    created_at TEXT NOT NULL,
    UNIQUE (delivery_id, generation),
    CHECK (state NOT IN ('tracking', 'delivered') OR run_id IS NOT DISTINCT FROM expected_run_id),
    CHECK (kind = 'turn_start' OR coalesce(proof::json ->> 'risk_class', '') = 'read_only_low_risk')
  );
  CREATE UNIQUE INDEX one_unresolved_attempt ON delivery_attempts (thread_id)
    WHERE state IN ('accept_pending', 'tracking');
  CREATE TABLE delivery_decisions (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    delivery_id TEXT NOT NULL,
    attempt_id TEXT,
    run_id TEXT,
    epoch INTEGER,
    decision TEXT NOT NULL,
    reason TEXT NOT NULL,
    details TEXT NOT NULL
  );
  CREATE INDEX decisions_by_delivery ON delivery_decisions (delivery_id);`;

/** SQLite's function of this name, for patterns in which \`*\` is the only wildcard that is not in brackets. */
const GLOB = `
  CREATE FUNCTION glob(pattern TEXT, value TEXT) RETURNS BOOLEAN LANGUAGE sql IMMUTABLE AS $$
    SELECT value COLLATE "C" ~ ('^' || replace(regexp_replace(
      regexp_replace(pattern, '\\[([?[])\\]', '\\1', 'g'), '([.+?^$(){}|\\[\\]\\\\])', '\\\\\\1', 'g'), '*', '.*') || '$')
  $$;`;

/**
 * The logs of threads: pieces that together are the bytes of \`transcript.jsonl\`. The head names how long the log is and
 * the last link of a hash chain over the pieces; it is raised in the statement that adds one, so that a piece at a wrong
 * place, of an earlier owner, or after a lost piece is refused.
 */
const LOGS = `
  CREATE TABLE log_heads (
    thread_id TEXT COLLATE "C" PRIMARY KEY,
    epoch INTEGER NOT NULL DEFAULT 0,
    holder TEXT,
    lease TEXT,
    bytes BIGINT NOT NULL DEFAULT 0,
    lines BIGINT NOT NULL DEFAULT 0,
    link BYTEA NOT NULL DEFAULT ''::bytea,
    archived BOOLEAN NOT NULL DEFAULT false
  );
  CREATE TABLE log_pieces (
    thread_id TEXT COLLATE "C" NOT NULL REFERENCES log_heads (thread_id),
    start BIGINT NOT NULL,
    lines BIGINT NOT NULL,
    data BYTEA NOT NULL,
    PRIMARY KEY (thread_id, start)
  );
  ALTER TABLE log_pieces ALTER COLUMN data SET STORAGE EXTERNAL;
  CREATE TABLE log_quarantine (
    thread_id TEXT COLLATE "C" NOT NULL,
    file TEXT NOT NULL,
    part TEXT NOT NULL,
    data BYTEA NOT NULL,
    PRIMARY KEY (thread_id, file)
  );
  CREATE TABLE log_texts (
    thread_id TEXT COLLATE "C" NOT NULL,
    name TEXT NOT NULL,
    data BYTEA NOT NULL,
    PRIMARY KEY (thread_id, name)
  );

  CREATE FUNCTION append_log(id TEXT, held TEXT, offset_ BIGINT, piece BYTEA, added BIGINT) RETURNS TEXT
  LANGUAGE plpgsql AS $$
  DECLARE
    head log_heads;
    line BIGINT;
  BEGIN
    UPDATE log_heads SET bytes = offset_ + length(piece), lines = lines + added,
      link = sha256(link || sha256(piece)) WHERE thread_id = id AND lease = held AND bytes = offset_
      RETURNING lines - added INTO line;
    IF FOUND THEN
      INSERT INTO log_pieces (thread_id, start, lines, data) VALUES (id, offset_, line, piece);
      PERFORM pg_notify('rye_log', id);
      RETURN 'done';
    END IF;
    SELECT * INTO head FROM log_heads WHERE thread_id = id FOR UPDATE;
    IF head.lease IS DISTINCT FROM held THEN RETURN 'lost'; END IF;
    IF head.bytes = offset_ + length(piece) AND EXISTS (
      SELECT FROM log_pieces WHERE thread_id = id AND start = offset_ AND data = piece
    ) THEN RETURN 'done'; END IF;
    RETURN 'elsewhere';
  END $$;

  CREATE FUNCTION cut_log(id TEXT, held TEXT, end_ BIGINT, kept BIGINT, name TEXT, part_ TEXT, piece BYTEA)
  RETURNS BOOLEAN LANGUAGE plpgsql AS $$
  BEGIN
    PERFORM FROM log_heads WHERE thread_id = id AND lease = held FOR UPDATE;
    IF NOT FOUND THEN RETURN false; END IF;
    INSERT INTO log_quarantine (thread_id, file, part, data) VALUES (id, name, part_, piece) ON CONFLICT DO NOTHING;
    DELETE FROM log_pieces WHERE thread_id = id AND start >= end_;
    UPDATE log_pieces SET data = substr(data, 1, (end_ - start)::int)
      WHERE thread_id = id AND start + length(data) > end_;
    UPDATE log_heads SET bytes = end_, lines = kept WHERE thread_id = id;
    RETURN true;
  END $$;`;

/** Workers, and which of them runs a thread. A row is the right to own threads: it ends when the row is removed. */
const WORKERS = `
  CREATE TABLE workers (
    worker_id TEXT COLLATE "C" PRIMARY KEY,
    lease_until TIMESTAMPTZ NOT NULL,
    beat BIGINT NOT NULL DEFAULT 0,
    labels TEXT NOT NULL,
    version TEXT NOT NULL
  );
  ALTER TABLE threads ADD COLUMN worker TEXT COLLATE "C";`;

/** Files of threads, see `thread-documents.ts`. Each is signed: what the other columns tell is not relied on. */
const THREAD_FILES = `
  CREATE TABLE thread_files (
    thread_id TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    bytes BYTEA NOT NULL,
    sha256 TEXT NOT NULL,
    signature TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    written_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (thread_id, name)
  );`;

/** Bundles, see `bundles.ts`. */
const BUNDLES = `
  CREATE TABLE bundles (
    digest TEXT COLLATE "C" PRIMARY KEY,
    tar BYTEA NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
  );
  ALTER TABLE bundles ALTER COLUMN tar SET STORAGE EXTERNAL;
  CREATE TABLE bundle_statements (
    digest TEXT COLLATE "C" NOT NULL REFERENCES bundles (digest),
    plan_sha256 TEXT COLLATE "C" NOT NULL,
    envelope TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (digest, plan_sha256)
  );`;

/**
 * What a fleet knows of a thread: where its legs run, and how often it was taken over without a leg that ended. The
 * certificates let each machine check what workers signed.
 */
const FLEET = `
  ALTER TABLE threads ADD COLUMN fleet TEXT;
  ALTER TABLE workers ADD COLUMN is_draining BOOLEAN NOT NULL DEFAULT false;
  ALTER TABLE threads ADD COLUMN takeovers INTEGER NOT NULL DEFAULT 0;
  CREATE INDEX threads_of_fleet ON threads (status) WHERE fleet IS NOT NULL;
  CREATE FUNCTION json_or_null(value TEXT) RETURNS JSON LANGUAGE plpgsql IMMUTABLE AS $$
  BEGIN RETURN value::json; EXCEPTION WHEN OTHERS THEN RETURN NULL; END $$;
  CREATE FUNCTION json_texts(value JSON) RETURNS SETOF TEXT LANGUAGE sql IMMUTABLE AS $$
    SELECT json_array_elements_text(CASE json_typeof(value) WHEN 'array' THEN value ELSE '[]' END)
  $$;
  CREATE TABLE certificates (
    key_id TEXT COLLATE "C" PRIMARY KEY,
    certificate TEXT NOT NULL
  );`;

/** Secret inputs, sealed to the key of the workers, which the root of the fleet certifies. */
const SECRETS = `
  CREATE TABLE pool_keys (
    pool_id TEXT COLLATE "C" PRIMARY KEY,
    statement TEXT NOT NULL
  );
  CREATE TABLE sealed_secrets (
    thread_id TEXT COLLATE "C" PRIMARY KEY,
    sealed TEXT NOT NULL
  );`;

/** Money of model calls under way, and of the next ones. */
const CALLS = `
  ALTER TABLE budget_ledger ADD COLUMN in_flight BIGINT NOT NULL DEFAULT 0;
  ALTER TABLE budget_ledger ADD COLUMN next_call BIGINT NOT NULL DEFAULT 0;`;

/** The worker that holds a log open: its hold ends when its row is removed. */
const LOG_WORKERS = `
  ALTER TABLE log_heads ADD COLUMN worker TEXT COLLATE "C";`;

/** Entries that programs gave to threads which other processes run. */
const APPENDS = `
  CREATE TABLE appends (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    entry_id TEXT COLLATE "C" NOT NULL UNIQUE,
    thread_id TEXT COLLATE "C" NOT NULL,
    draft TEXT NOT NULL,
    created_at TEXT NOT NULL
  );
  CREATE INDEX appends_by_thread ON appends (thread_id, seq);`;

/** Steps from one version of the schema to the next. A database is at version n after the first n of them. */
export const MIGRATIONS: readonly string[] = [
  TABLES + GLOB + LOGS,
  WORKERS,
  THREAD_FILES,
  BUNDLES,
  FLEET,
  BY_THREAD_MIGRATION,
  SECRETS,
  CALLS,
  LOG_WORKERS,
  LISTING_MIGRATION,
  APPENDS,
];
