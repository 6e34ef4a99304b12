import type { KeySummary } from '../../../kernel/app/api/items.ts';
import { compact } from '../../../kernel/core/json.ts';
import { oneLine, shown, visible } from '../../ui/visible.ts';
import {
  argument,
  defineCommand,
  defineGroup,
  flag,
  list as optionList,
  text,
} from '../command.ts';
import { confirm, readTextSource } from '../input.ts';
import { displayPath, formatTable, printResult } from '../output.ts';
import { withRye } from '../session.ts';

const yes = flag('Do not ask; without a terminal, rye never asks', { short: 'y' });

const init = defineCommand({
  name: 'init',
  summary: 'Create the signing key, or use one of ssh-agent',
  details:
    'With --agent the private key stays in ssh-agent, and rye asks the agent that SSH_AUTH_SOCK names for each signature.',
  options: {
    agent: text('KEY', 'An Ed25519 key of ssh-agent, by its comment or SHA256 fingerprint'),
  },
  examples: ['rye keys init', 'rye keys init --agent me@laptop'],
  run: async (call) => {
    const { agent } = call.options;
    const key = await withRye(call, (rye) => rye.keys.init(compact({ agent })));
    return printResult(call, key, () =>
      call.global.quiet ? [] : [shown`signing key ${oneLine(key.key_id)} in ${oneLine(key.path)}`],
    );
  },
});

const list = defineCommand({
  name: 'list',
  summary: 'List your own and trusted keys',
  examples: ['rye keys list --json'],
  run: async (call) => {
    const keys = await withRye(call, (rye) => rye.keys.list());
    return printResult(call, { keys, total: keys.length }, () => {
      const rows = keys.map((key) => [
        key.key_id,
        key.owner,
        key.source,
        stateOf(key),
        allowedBy(key),
      ]);
      const headings = ['KEY', 'OWNER', 'SOURCE', 'STATE', 'MAY'];
      return formatTable(headings, rows, call.io.stdout, ['SOURCE', 'OWNER']);
    });
  },
});

function stateOf({ revoked, revoked_at, trusted, rotated_from: from }: KeySummary): string {
  if (revoked) return revoked_at === undefined ? 'revoked' : `revoked ${revoked_at}`;
  if (!trusted) return 'not trusted';
  return from === undefined ? 'trusted' : `trusted (after ${from})`;
}

/** Names what a key may do, and where. */
function allowedBy({ purposes, only, types, projects }: KeySummary): string {
  if (purposes.length === 0) return '-';
  const limits = [
    types?.join(','),
    only === undefined ? undefined : `only ${only.join(',')}`,
    projects === undefined ? undefined : `in ${projects.join(', ')}`,
  ].filter((part) => part !== undefined);
  return [purposes.join(','), ...limits].join('; ');
}

const exportKey = defineCommand({
  name: 'export',
  summary: 'Print the public key as PEM',
  examples: ['rye keys export > alice.pem'],
  run: async (call) => {
    const key = await withRye(call, (rye) => rye.keys.export());
    return printResult(call, key, () => [visible(key.pem.trimEnd())]);
  },
});

const trust = defineCommand({
  name: 'trust',
  summary: 'Trust a public key from a PEM or TOML file',
  details:
    'Without limits the key may sign every item. Trusting a key again replaces its limits. A key never approves tool calls unless --for has approve.',
  arguments: { file: argument('The key file, or - for standard input') },
  options: {
    owner: text('NAME', "Name of the key's owner"),
    only: optionList('GLOB', "Only items with these IDs, such as 'reports/*' or 'team/**'"),
    types: text('LIST', 'Only these item types, such as directive,tool; thread means records'),
    for: text('LIST', 'What it may do: sign, approve or sign,approve (default: sign)'),
    yes,
  },
  examples: [
    'rye keys trust alice.pem --owner alice',
    "rye keys trust bob.pem --owner bob --only 'reports/*' --for sign,approve --yes",
    'rye keys trust - < alice.pem',
  ],
  run: async (call) => {
    const { owner, only, types, for: purposes } = call.options;
    const { file } = call.args;
    const content = await readTextSource(file, 'rye keys trust', call.io);
    const source = file === '-' ? 'standard input' : file;
    const wanted = compact({
      owner,
      ids: only.length === 0 ? undefined : only.flatMap(namesIn),
      types: types === undefined ? undefined : namesIn(types),
      purposes: purposes === undefined ? undefined : namesIn(purposes),
    });
    const key = await withRye(call, async (rye) => {
      const offer = await rye.keys.inspect(content, { ...wanted, source });
      const place = offer.projects === undefined ? 'everywhere' : offer.projects.join(', ');
      await confirm(
        call,
        [
          oneLine(
            `key ${offer.key_id} of ${offer.owner}, trusted in: ${place}, for: ${offer.scope}`,
          ),
          shown`Everything signed with it will run with your permissions. Compare the fingerprint with the owner first.`,
        ],
        shown`Trust it?`,
      );
      return await rye.keys.trust(content, wanted);
    });
    return printResult(call, key, () => [
      oneLine(`trusted ${key.key_id} (${key.owner}) for ${allowedBy(key)}`),
    ]);
  },
});

/** Splits a list at its commas; an empty list stays empty, so that it is refused. */
function namesIn(names: string): readonly string[] {
  return names
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '');
}

const untrust = defineCommand({
  name: 'untrust',
  summary: 'Stop trusting a key',
  arguments: { keyid: argument('The fingerprint that `rye keys list` shows') },
  options: { yes },
  examples: ['rye keys untrust 0123456789abcdef --yes'],
  run: async (call) => {
    const { keyid } = call.args;
    const key = await withRye(call, async (rye) => {
      await confirm(
        call,
        [shown`rye will reject what it signed until you trust the key again or sign it yourself.`],
        shown`Stop trusting ${oneLine(keyid)}?`,
      );
      return await rye.keys.untrust(keyid);
    });
    return printResult(call, key, () => [shown`no longer trusted: ${oneLine(key.key_id)}`]);
  },
});

const KEY_ID = /^[0-9a-f]{16}$/;

const revoke = defineCommand({
  name: 'revoke',
  summary: 'Revoke a key',
  details:
    'Records that the key signed before the date stay valid; items must be signed again. The revocation of your own key is published in the project: everyone who trusts the key obeys it there. To keep the trust of others, run `rye keys rotate` first.',
  arguments: {
    keyid: argument(
      'The fingerprint that `rye keys list` shows, or the file of a published revocation',
    ),
  },
  options: {
    since: text('DATE', 'From this date or time on, in the past (default: now)'),
    reason: text('TEXT', 'Recorded with the revocation'),
    yes,
  },
  examples: [
    'rye keys revoke 0123456789abcdef --reason "laptop lost"',
    'rye keys revoke 0123456789abcdef --since 2026-01-31 --yes',
    'rye keys revoke .ai/config/keys/revoked/0123456789abcdef.toml',
  ],
  run: async (call) => {
    const { keyid } = call.args;
    const { reason, since } = call.options;
    const isFile = /[./]/.test(keyid) && !KEY_ID.test(keyid);
    const content = isFile ? await readTextSource(keyid, 'rye keys revoke', call.io) : '';
    const key = await withRye(call, async (rye) => {
      await confirm(
        call,
        [shown`rye will reject the items that it signed. You cannot undo this.`],
        shown`Revoke ${oneLine(keyid)}?`,
      );
      return isFile
        ? await rye.keys.importRevocation(content)
        : await rye.keys.revoke(keyid, compact({ reason, since }));
    });
    return printResult(call, key, () => [
      shown`revoked ${oneLine(key.key_id)} from ${oneLine(key.revoked_at ?? 'now')}`,
    ]);
  },
});

const rotate = defineCommand({
  name: 'rotate',
  summary: 'Create a new signing key, endorsed by the old one',
  details:
    'A statement below .ai/config/keys/rotated of the project moves the trust of others to the new key. Commit it.',
  options: { yes },
  examples: ['rye keys rotate'],
  run: async (call) => {
    const rotation = await withRye(call, async (rye) => {
      const { key_id } = await rye.keys.export();
      await confirm(
        call,
        [
          oneLine(
            `A new key will sign from now on. The key ${key_id} stays trusted until you revoke it.`,
          ),
        ],
        shown`Create a new signing key?`,
      );
      return await rye.keys.rotate();
    });
    const { statement } = rotation;
    return printResult(call, rotation, () => [
      shown`signing key ${oneLine(rotation.key_id)} replaces ${oneLine(rotation.old_key_id)}`,
      statement === undefined
        ? shown`To move the trust of others, run in each project: rye keys publish`
        : shown`commit ${displayPath(statement, call.io)}; in your other projects run: rye keys publish`,
    ]);
  },
});

const protect = defineCommand({
  name: 'protect',
  summary: 'Encrypt the signing key with a passphrase',
  details:
    'Then every command that signs asks for it at the terminal, or reads it from the file or the open descriptor (fd:3) that RYE_KEY_PASSPHRASE names. Background threads and schedules need RYE_KEY_PASSPHRASE.',
  options: { off: flag('Remove the protection') },
  examples: ['rye keys protect', 'rye keys protect --off'],
  run: async (call) => {
    const { off } = call.options;
    const key = await withRye(call, (rye) => rye.keys.protect({ off }));
    return printResult(call, key, () => [
      oneLine(
        off ? `${key.key_id} needs no passphrase` : `${key.key_id} needs its passphrase to sign`,
      ),
    ]);
  },
});

const publish = defineCommand({
  name: 'publish',
  summary: 'Write your rotations and revocations to the project',
  details: 'Everyone who trusts the old key obeys them after the next pull.',
  examples: ['rye keys publish'],
  run: async (call) => {
    const files = await withRye(call, (rye) => rye.keys.publish());
    return printResult(call, { files, total: files.length }, () =>
      files.length === 0
        ? [shown`nothing to publish`]
        : files.map((file) => shown`wrote ${displayPath(file, call.io)}`),
    );
  },
});

export const keys = defineGroup({
  defaultCommand: 'list',
  examples: ['rye keys', 'rye keys list --json'],
  commands: [init, list, exportKey, trust, untrust, rotate, protect, revoke, publish],
});
