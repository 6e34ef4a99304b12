import { lstatSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { isRecord, parseJson } from '../../../kernel/core/json.ts';
import { makeFolders } from '../../../kernel/disk/folders.ts';
import { writeWhole } from '../../../kernel/disk/whole-file.ts';

/** Messages that the history keeps. */
const MAX_ENTRIES = 500;
/** Longer messages are not kept: they are pasted documents. */
const MAX_CHARS = 8192;
const MAX_BYTES = 8 * 1024 * 1024;

/** The messages that a person sent in chats, in a private file of the user space. */
export interface ChatHistory {
  /** Oldest first. */
  read(): readonly string[];
  /** Adds a message. One that starts with a space is not kept. A history that cannot be written is not an error. */
  add(message: string): void;
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
  return {
    read,
    add: (message) => {
      if (message.startsWith(' ') || message.length > MAX_CHARS) return;
      // another chat may have added some since
      const before = read().filter((known) => known !== message);
      const lines = [...before, message].slice(-MAX_ENTRIES);
      try {
        makeFolders(dirname(file), 0o700);
        writeWhole(file, lines.map((text) => `${JSON.stringify({ text })}\n`).join(''), {
          mode: 0o600,
        });
      } catch {
        // the conversation is worth more than its history
      }
    },
  };
}

/** The history of a person who keeps none. */
export const NO_HISTORY: ChatHistory = { read: () => [], add: () => {} };

function messageOf(line: string): string[] {
  const value = line === '' ? undefined : parseJson(line);
  return isRecord(value) && typeof value['text'] === 'string' ? [value['text']] : [];
}
