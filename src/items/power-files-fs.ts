import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { RyeError } from '../core/errors.ts';
import type { SignableType } from '../core/ids.ts';
import { hashOfText, type PowerFile } from '../trust/lock.ts';
import { faultError } from '../trust/policy.ts';
import { bearsPower } from './config.ts';
import { skillListPath } from './skill-files-fs.ts';
import { type FoundFile, itemFolder, type ListedItem, type Spaces } from './spaces-fs.ts';
import { type VerifyContext, verifyFile, verifySignedSkill } from './verified-fs.ts';

/** Kinds of items that decide how every run of a project behaves. */
const POWER_TYPES = ['config', 'rule', 'skill'] as const satisfies readonly SignableType[];

export function isPowerType(type: SignableType): boolean {
  return (POWER_TYPES as readonly SignableType[]).includes(type);
}

/**
 * The power files of a project with the state of their signatures: its configuration, rules and skills. Changes nothing.
 */
export function readPowerFiles(
  context: VerifyContext,
  skills: Spaces = context.spaces,
): readonly PowerFile[] {
  return POWER_TYPES.flatMap((type) => {
    const spaces = type === 'skill' ? skills : context.spaces;
    // a project without the folder pays for no walk through the other spaces
    const root = context.spaces.root('project');
    const isThere = root !== undefined && existsSync(join(root, itemFolder(type)));
    if (!isThere && skills === context.spaces) return [];
    return spaces
      .list(type, { space: 'project' })
      .map((item) => powerFile(item, spaces, { ...context, spaces }));
  });
}

function powerFile(item: ListedItem, spaces: Spaces, context: VerifyContext): PowerFile {
  const { type, id, path } = item;
  const needsSignature = type !== 'config' || bearsPower(id);
  const file = { type, id, path, needsSignature };
  try {
    const found = spaces.find(type, id, { space: 'project', path });
    if (found === undefined) throw new RyeError('item_not_found', `${path} is gone`);
    const verdict =
      type === 'skill' ? verifySignedSkill(found, context) : verifyFile(found, context);
    const sha256 = hashOfText(pinnedText(found));
    if (!verdict.ok) {
      const { code: fault, keyId = null, signedAs = null, detail = null } = verdict;
      return { ...file, sha256, fault, detail, keyId, signedAs, error: faultError(found, verdict) };
    }
    const keyId = verdict.by === 'key' ? verdict.keyId : null;
    return { ...file, sha256, fault: null, detail: null, keyId, signedAs: null, error: null };
  } catch (error) {
    if (!(error instanceof RyeError)) throw error;
    return {
      ...file,
      sha256: null,
      fault: 'unreadable',
      detail: null,
      keyId: null,
      signedAs: null,
      error,
    };
  }
}

/** What a pin is made over: a skill's signed list covers all of its files. */
function pinnedText({ type, path, text }: FoundFile): string {
  const list = skillListPath(dirname(path));
  return type === 'skill' && existsSync(list) ? readFileSync(list, 'utf8') : text;
}
