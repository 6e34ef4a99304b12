import { join } from 'node:path';
import type { Document } from 'yaml';
import { pinSigned } from '../../kernel/app/guards.ts';
import { ensureKey } from '../../kernel/app/signing-key.ts';
import type { Workspace } from '../../kernel/app/workspace.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import { readTextInside, writeInside } from '../../kernel/disk/inside.ts';
import { readConfigFile } from '../../kernel/items/config-fs.ts';
import { verifyFile } from '../../kernel/items/verified-fs.ts';
import { readSchedules, type Schedule } from '../../kernel/schedules/schedule.ts';
import { faultError } from '../../kernel/trust/policy.ts';
import { signText } from '../../kernel/trust/signature.ts';
import { lockSchedules } from './schedule-locks.ts';

/** The name of the configuration file. */
const SUBJECT = { kind: 'config', id: 'schedules' } as const;

/**
 * Reads the schedules of a project. Throws the fault of a file whose signature does not hold: it must fire nothing, and
 * a person must learn about it.
 */
export async function loadSchedules({ verification }: Workspace): Promise<readonly Schedule[]> {
  const found = verification.spaces.find('config', SUBJECT.id, {
    space: verification.spaces.own,
  });
  if (found === undefined) return [];
  const verdict = verifyFile(found, verification);
  if (!verdict.ok) throw faultError(found, verdict);
  return readSchedules((await readConfigFile(found)).value, found.path);
}

/** Changes the file, signs and pins it; its comments and other schedules stay. `edit` may refuse the change. */
export async function editSchedules(
  workspace: Workspace,
  edit: (document: Document, schedules: readonly Schedule[]) => void,
): Promise<void> {
  const { projectPath } = workspace.options;
  const lock = lockSchedules(projectPath, 'edit');
  try {
    const schedules = await loadSchedules(workspace);
    const folder = join(projectPath, '.ai', 'config');
    const path =
      workspace.spaces.locate('config', SUBJECT.id, workspace.spaces.own) ??
      join(folder, 'schedules.yaml');
    const { parseDocument } = await import('yaml');
    const document = parseDocument(readTextInside(projectPath, path) ?? '');
    // an empty member reads as undefined
    if (document.has('schedules') && document.get('schedules') === undefined)
      document.set('schedules', document.createNode({}));
    edit(document, schedules);
    await ensureKey(workspace);
    const signed = signText({
      text: document.toString(),
      style: 'yaml',
      subject: SUBJECT,
      key: workspace.keyring.signer(),
      now: workspace.clock.now(),
    });
    writeInside(projectPath, path, signed);
    await pinSigned(workspace, [{ type: 'config', id: SUBJECT.id }]);
  } finally {
    lock.release();
  }
}

/** Returns the schedule of this name. Throws `item_not_found`. */
export function scheduleNamed(schedules: readonly Schedule[], name: string): Schedule {
  const found = schedules.find((schedule) => schedule.name === name);
  if (found) return found;
  throw new RyeError('item_not_found', `no schedule has the name ${JSON.stringify(name)}`, {
    hint: 'List them with: rye schedule list',
  });
}
