import { cpSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import type { Lab } from '../attacks/lab.ts';
import { text } from '../helpers/wire-server.ts';
import { bash, type UndoDesk, undoDesk } from './undo-desk.ts';

export const THREADS = 'state/threads';

/** Copies files aside; the function returned puts them back, and removes those that were not there. */
export function keep(lab: Lab, label: string, names: readonly string[]): () => void {
  const kept = (name: string): string => join(lab.home, 'kept', label, name.replaceAll('/', '+'));
  const there = names.filter((name) => existsSync(lab.path(name)));
  for (const name of there) cpSync(lab.path(name), kept(name), { recursive: true });
  return () => {
    for (const name of names) rmSync(lab.path(name), { recursive: true, force: true });
    for (const name of there) cpSync(kept(name), lab.path(name), { recursive: true });
  };
}

/** A desk with a thread that has had one run, and no open database. */
export async function afterOneRun(): Promise<{ readonly desk: UndoDesk; readonly id: string }> {
  const desk = await undoDesk();
  desk.turns.push([text('One.')]);
  const rye = desk.lab.rye();
  const { thread_id: id } = await rye.threads.execute({ directiveId: 'work' });
  rye.close();
  return { desk, id };
}

export async function secondRun(
  { lab, turns }: UndoDesk,
  threadId: string,
  onTool: () => void = () => undefined,
): Promise<void> {
  turns.push([bash('true')], [text('Two.')]);
  const rye = lab.rye();
  const onEvent = ({ event_type: type }: { readonly event_type: string }): void => {
    if (type === 'tool_settled') onTool();
  };
  await rye.recovery.resume({ threadId, message: 'Continue.', onEvent });
  rye.close();
}

/** Makes the process that held a thread one that has ended. */
export function endOwner({ lab }: UndoDesk, threadId: string): void {
  const lease = lab.path(`${THREADS}/${threadId}/lease.json`);
  const held = JSON.parse(readFileSync(lease, 'utf8')) as object;
  writeFileSync(lease, JSON.stringify({ ...held, process_start: 'gone' }));
  const database = new Database(lab.path(`${THREADS}/registry.db`));
  database.prepare("UPDATE threads SET process_start = 'gone'").run();
  database.close();
}

/** A thread whose process ended in the middle of its second run. */
export async function crashed(): Promise<{ readonly desk: UndoDesk; readonly id: string }> {
  const { desk, id } = await afterOneRun();
  let cut = (): void => undefined;
  await secondRun(desk, id, () => {
    cut = keep(desk.lab, 'state', ['state', '~/.ai/state/heads']);
  });
  cut();
  endOwner(desk, id);
  return { desk, id };
}
