import { fsync, lstatSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { isRecord, parseJson } from '../../../kernel/core/json.ts';
import { makeFolders } from '../../../kernel/disk/folders.ts';
import { writeWholeBy } from '../../../kernel/disk/whole-file.ts';

/** Messages that the history keeps. */
const MAX_ENTRIES = 500;
/** Longer messages are not kept: they are pasted documents. */
const MAX_CHARS = 8192;
const MAX_BYTES = 8 * 1024 * 1024;

/** The messages that a person sent in chats, in a private file of the user space. */
export interface ChatHistory {
  /** Oldest first. */
  read(): readonly string[];
  /**
   * Adds a message, after those before it. One that starts with a space is not kept. A history that cannot be written is
   * not an error.
   */
  add(message: string): Promise<void>;
}

/** Opens the history of a user space: `.ai/state/chat-history.jsonl`, readable by its owner only. */
export function openHistory(userSpacePath: string): ChatHistory {
  const file = join(userSpacePath, '.ai', 'state', 'chat-history.jsonl');
  const read = (): readonly string[] => {
    try {
      const { size } = lstatSync(file);
      if (size > MAX_BYTES) return [];
      return readFileSync(file, 'utf8').split('\n').flatMap(messageOf).slice(-MAX_ENTRIES);
    } catch {
      return [];
    }
  };
  const write = async (message: string): Promise<void> => {
    // another chat may have added some since
    const before = read().filter((known) => known !== message);
    const lines = [...before, message].slice(-MAX_ENTRIES);
    const text = lines.map((line) => `${JSON.stringify({ text: line })}\n`).join('');
    try {
      makeFolders(dirname(file), 0o700);
      await writeWholeBy(syncInPool, file, text, { mode: 0o600 });
    } catch {
      // the conversation is worth more than its history
    }
  };
  let written = Promise.resolve();
  return {
    read,
    add: async (message) => {
      if (message.startsWith(' ') || message.length > MAX_CHARS) return;
      written = written.then(async () => await write(message));
      await written;
    },
  };
}

/** A message is sent while the history that has it is synced. */
const syncInPool = promisify(fsync);

/** The history of a person who keeps none. */
export const NO_HISTORY: ChatHistory = { read: () => [], add: async () => {} };

function messageOf(line: string): string[] {
  const value = line === '' ? undefined : parseJson(line);
  return isRecord(value) && typeof value['text'] === 'string' ? [value['text']] : [];
}
