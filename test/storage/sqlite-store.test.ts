import { describeStore } from '../conformance/store.ts';
import { openTestStore } from './support.ts';

describeStore('SQLite and files', () => openTestStore());
