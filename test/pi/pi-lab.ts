import { exportPi } from '../../src/features/pi/export.ts';
import { importPi, type PiImport } from '../../src/features/pi/import-file.ts';
import { createPiReader, type PiSession } from '../../src/features/pi/session.ts';
import type { LogEvent, LogHeader, UnknownEvent } from '../../src/kernel/core/events.ts';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import { buildTree } from '../../src/kernel/log/tree.ts';
import { place } from '../log/support.ts';

export const HEADER: LogHeader = {
  event_type: 'thread',
  version: 1,
  thread_id: 'imported/pi-1771322456',
  directive: 'imported/pi',
  created_at: '2026-02-17T10:00:56.000Z',
};

/** The members of pi's SessionManager that these tests use. */
export interface PiManager {
  appendMessage(message: JsonObject): string;
  appendThinkingLevelChange(level: string): string;
  appendModelChange(provider: string, model: string): string;
  appendCompaction(summary: string, firstKept: string, tokens: number, details?: unknown): string;
  appendCustomEntry(type: string, data?: unknown): string;
  appendCustomMessageEntry(type: string, content: unknown, display: boolean): string;
  appendSessionInfo(name: string): string;
  appendLabelChange(target: string, label: string | undefined): string;
  branch(id: string): void;
  branchWithSummary(id: string | null, summary: string): string;
  buildSessionContext(): { messages: JsonObject[]; thinkingLevel: string };
  getLeafId(): string | null;
  getSessionFile(): string | undefined;
  getSessionId(): string;
  getSessionName(): string | undefined;
  getLabel(id: string): string | undefined;
  getEntries(): JsonObject[];
  getTree(): { children: unknown[] }[];
  getBranch(): { id: string }[];
}

interface PiModule {
  readonly SessionManager: {
    create(cwd: string, folder: string): PiManager;
    open(file: string): PiManager;
  };
  readonly buildSessionContext: (entries: JsonObject[]) => { messages: JsonObject[] };
  readonly migrateSessionEntries: (entries: JsonObject[]) => void;
}

/** pi's own code. Only the file that holds its sessions: the whole package takes seconds to load. */
export async function loadPi(): Promise<PiModule> {
  const entry = import.meta.resolve('@mariozechner/pi-coding-agent');
  return (await import(
    /* @vite-ignore */ new URL('./core/session-manager.js', entry).href
  )) as PiModule;
}

let counter = 0;
function nextId(): string {
  counter += 1;
  return `a${counter.toString(16).padStart(15, '0')}`;
}

/** Reads session text as a file with these bytes would be. */
function readText(text: string): PiSession {
  const reader = createPiReader({ path: 'session.jsonl', newId: nextId });
  const lines = text.split('\n');
  const rest = lines.pop() ?? '';
  for (const line of lines) reader.push(line);
  if (rest !== '') reader.push(rest, true);
  return reader.end();
}

export function imported(text: string): PiImport {
  return importPi(readText(text), nextId);
}

/** A log as a session of pi. */
export function exported(
  events: readonly (LogEvent | UnknownEvent)[],
  header: LogHeader = HEADER,
): string {
  const tree = buildTree(events);
  return [...exportPi({ header, events, tree, leafId: tree.leafId })].join('');
}

/** The session as rye gives it back after an import. */
export function roundTrip(text: string): string {
  return exported(place(imported(text).drafts));
}
