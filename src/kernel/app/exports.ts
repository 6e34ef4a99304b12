import { isoTime } from '../core/clock.ts';
import type { ErrorInfo } from '../core/errors.ts';
import { featureMissing } from '../core/errors.ts';
import { compact, type JsonObject } from '../core/json.ts';
import { proxySecrets } from '../core/proxy-secrets.ts';
import type { ExportFormat } from '../core/thread.ts';
import { type Redacted, Redaction } from '../export/redact.ts';
import { type Exporter, type ExportSource, onlyPath } from '../export/source.ts';
import { buildTree, entryByPrefix, isKnown } from '../log/tree.ts';
import { keysIn } from '../providers/endpoint.ts';
import type { OpenedLog } from '../storage/store.ts';
import type { ThreadFiles } from '../threads/ports.ts';
import type { ThreadDocument } from '../threads/thread-document.ts';
import type { ThreadVerification } from './api/threads.ts';
import type { ExportOptions, ThreadExport } from './api/trees.ts';
import { featuresOf, learnWords } from './feature.ts';
import { modelsOf } from './models.ts';
import { threadFiles } from './thread-files.ts';
import { verifyThread } from './verification/thread.ts';
import type { Workspace } from './workspace.ts';

declare const __RYE_VERSION__: string;

/** Loads the exporter of a format. A new format is one in `EXPORT_FORMATS` of the library's types, and a feature's. */
async function exporterOf(workspace: Workspace, format: ExportFormat): Promise<Exporter> {
  if (format === 'md') return (await import('../export/knowledge.ts')).exportMarkdown;
  if (format === 'jsonl') return (await import('../export/path-log.ts')).exportPathLog;
  const load = featuresOf(workspace).find(({ formats }) => formats?.[format])?.formats?.[format];
  if (load === undefined) throw featureMissing(format);
  return await load();
}

/** Reads a thread, checks its record and hands it to the exporter of a format. Never writes. */
export async function exportThread(
  workspace: Workspace,
  threadId: string,
  { format, branch, redact = false, pageOf }: ExportOptions,
): Promise<ThreadExport> {
  await learnWords(workspace);
  const files = threadFiles(workspace);
  const opened = await readUnlessUnsigned(workspace, threadId);
  const told = await factsOf(workspace, files, opened);
  const redaction = redact ? new Redaction(await redactedOf(workspace, opened, told)) : undefined;
  const log = redaction
    ? { ...opened, events: opened.events.map((event) => redaction.event(event)) }
    : opened;
  const verification = await verifyThread(workspace, files, threadId);
  const tree = buildTree(log.events, (index) => log.offsets[index] ?? 0);
  const leafId =
    branch === undefined || branch === 'leaf' ? tree.leafId : entryByPrefix(tree, branch).id;
  const problems = [...log.problems, ...tree.problems];
  const facts = redaction ? redactedFacts(redaction, told.facts) : told.facts;
  const clean = <T>(value: T): T => (redaction ? redaction.prose(value) : value);
  const whole: ExportSource = {
    header: log.header,
    events: log.events,
    tree,
    leafId,
    facts,
    itemIntegrity: told.itemIntegrity,
    checks: verification.checks.map(({ name, ok, detail, error }) => ({
      name,
      ok,
      detail: clean(detail ?? error?.message ?? ''),
    })),
    problems,
    exportedAt: isoTime(workspace.clock.now()),
    version: __RYE_VERSION__,
    ...(redaction ? { redactions: redaction.count } : {}),
    ...(pageOf ? { pageOf } : {}),
  };
  const source = branch === undefined ? whole : onlyPath(whole);
  const exporter = await exporterOf(workspace, format);
  return {
    thread_id: threadId,
    format,
    leaf_id: leafId,
    entries: source.tree.entries.length,
    ...(redaction ? { redactions: redaction.count } : {}),
    problems,
    tampered: tamperedBy(verification),
    chunks: exporter(source),
  };
}

/** Reads what a redaction removes from texts. */
async function redactedOf(
  workspace: Workspace,
  { events, header }: OpenedLog,
  { inputs }: Told,
): Promise<Redacted> {
  const started = events.find((event) => isKnown(event, 'thread_started'))?.payload;
  const { projectPath, env } = workspace.options;
  // a configuration that cannot be read has no keys
  const keys = await modelsOf(workspace)
    .choices()
    .then(({ catalog }) =>
      Object.values(catalog).flatMap((config) => keysIn(config, workspace.credentials.env)),
    )
    .catch(() => []);
  return {
    directive: header.directive,
    inputs: [inputs, started?.inputs].filter((one) => one !== undefined),
    hidden: [...keys, ...proxySecrets(env), projectPath, env['HOME'] ?? ''],
    isPlayed: started?.provider === 'literal',
  };
}

/** Drops everything after the last signature. Reads a tampered log whole: its export reports that. */
async function readUnlessUnsigned(workspace: Workspace, threadId: string): Promise<OpenedLog> {
  const { logs } = workspace.store;
  const verdict = await logs.verify(threadId, { verifier: workspace.keyring.payloadVerifier });
  return verdict.ok
    ? await logs.read(threadId, { end: verdict.verified_bytes })
    : await logs.read(threadId);
}

/** The record and the metadata decide: a missing or edited export does not affect the log. */
function tamperedBy({ checks }: ThreadVerification): ErrorInfo | null {
  const broken = checks.find(
    ({ name, ok }) => !ok && (name === 'transcript' || name === 'thread.json'),
  );
  const error = broken?.error;
  if (error === undefined) return null;
  // the thread is there: its log was read
  return error.code === 'thread_not_found' ? { ...error, code: 'thread_tampered' } : error;
}

/** From the signed thread.json; where that can't be read, from the log and the registry. */
async function factsOf(workspace: Workspace, files: ThreadFiles, log: OpenedLog): Promise<Told> {
  const { header } = log;
  const id = header.thread_id;
  const capabilitiesRef = `.ai/state/threads/${id}/capabilities.md`;
  const signed = await files.readDocument(id).catch(() => undefined);
  const document = signed ?? (await unsignedDocument(workspace, log));
  const plan = signed && (await files.readPlan(signed).catch(() => undefined));
  const facts = {
    document,
    description: plan?.directive.description ?? '',
    capabilitiesRef,
    finishedAt: document.updated_at,
  };
  return { facts, itemIntegrity: signed?.integrity, inputs: signed?.inputs };
}

type Told = Pick<ExportSource, 'facts' | 'itemIntegrity'> & {
  readonly inputs: JsonObject | undefined;
};

/** Facts without what is removed; the members that no exporter shows are not there. */
function redactedFacts(redaction: Redaction, facts: ExportSource['facts']): ExportSource['facts'] {
  const { document, description } = facts;
  const { imported_from: origin, ...rest } = redaction.outcome(document);
  return {
    ...facts,
    document: { ...rest, ...(origin ? { imported_from: redaction.prose(origin) } : {}) },
    description: redaction.scrub(description),
  };
}

type Unsigned = ExportSource['facts']['document'] & Pick<ThreadDocument, 'updated_at'>;

async function unsignedDocument(
  { store }: Workspace,
  { header, events }: OpenedLog,
): Promise<Unsigned> {
  const record = await store.registry.get(header.thread_id);
  const end = events.findLast((event) => isKnown(event, 'thread_finished'));
  return compact({
    thread_id: header.thread_id,
    directive: header.directive,
    status: end?.payload.status ?? record?.status ?? 'unknown',
    model: record?.model ?? '',
    created_at: header.created_at,
    updated_at: events.at(-1)?.timestamp ?? header.created_at,
    parent_thread_id: record?.parent_id ?? null,
    continuation_of: header.continuation_of,
    cost: end?.payload.cost,
    result: end?.payload.result,
    outputs: end?.payload.outputs,
    error: end?.payload.error,
  });
}
