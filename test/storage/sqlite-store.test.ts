import { appendFileSync } from 'node:fs';
import { describeStore } from '../../testing/conformance/store.ts';
import { openTestStore, type TestStore } from './support.ts';

// Requirement: finished-runs-again
describeStore('SQLite and files', () => openTestStore(), {
  openAgain: (store) => openTestStore((store as TestStore).projectPath),
  tear: ({ logs }, threadId, text) => appendFileSync(logs.location(threadId), text),
});
